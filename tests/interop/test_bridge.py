"""`trio-mcp bridge` between peers of others and ours: the client of one era, the server of the other."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp
import mcp_types
import pytest
import trio

from tests.ways import WAYS, each_way
from trio_mcp import Answers, Client, McpError, ResourceUpdated, StdioServerParameters, types

from .support import DEADLINE, PEERS, TOOLS, Launch, fresh_server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
]

MODERN = "2026-07-28"


def bridged(launch: Launch, *options: str) -> Launch:
    """Return the command of a bridge to a server."""
    arguments = ["-m", "trio_mcp", "bridge", *options]
    for name, value in launch.env.items():
        arguments += ["--env", f"{name}={value}"]
    return Launch(sys.executable, [*arguments, "--", launch.command, *launch.args], launch.env)


def through(launch: Launch) -> StdioServerParameters:
    return bridged(launch).for_us()


def text(result: types.CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, types.TextContent))


async def test_a_modern_client_lists_and_uses_an_old_server(everything_server: Launch) -> None:
    """Tools, progress, prompts, resources, templates, completions, questions, cancellations pass through the bridge."""
    steps: list[float] = []
    forms: list[Any] = []
    started = trio.Event()
    slow = "trigger-long-running-operation"

    def fill_in(params: Any) -> Any:
        forms.append(params)
        return {"name": "Bo", "check": True}

    answers = Answers(elicitation=fill_in, sampling=lambda params: "a reply of the model", roots=["file:///srv/data"])
    with trio.fail_after(DEADLINE):
        async with Client(through(everything_server), mode=MODERN, answers=answers) as client:
            assert client.server_info is not None
            assert client.server_info.name == "mcp-servers/everything"
            tools = [tool.name async for tool in client.iter_tools()]
            weather = await client.call_tool("get-structured-content", {"location": "Chicago"})
            done = await client.call_tool(
                slow, {"duration": 0.2, "steps": 4}, on_progress=lambda update: steps.append(update.progress)
            )
            prompts = [prompt.name async for prompt in client.iter_prompts()]
            prompt = await client.get_prompt("args-prompt", {"city": "Oslo"})
            (plain,) = (await client.read_resource("demo://resource/dynamic/text/7")).contents
            templates = [each.uri_template async for each in client.iter_resource_templates()]
            completed = await client.request(
                "completion/complete",
                {
                    "ref": {"type": "ref/prompt", "name": "completable-prompt"},
                    "argument": {"name": "department", "value": "E"},
                },
            )
            with pytest.raises(McpError, match="no/such"):
                await client.read_resource("demo://no/such")
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    await client.call_tool(slow, {"duration": 360, "steps": 7200}, on_progress=lambda _: started.set())

                nursery.start_soon(call)
                await started.wait()
                nursery.cancel_scope.cancel()
            # The call is parked, and goes on with the answers.
            elicited = await client.call_tool("trigger-elicitation-request", {})
            sampled = await client.call_tool("trigger-sampling-request", {"prompt": "hello", "maxTokens": 20})
            rooted = await client.call_tool("get-roots-list", {})
    assert {"echo", "get-sum", "trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"} <= set(
        tools
    )
    assert len(forms) == 1
    assert "Bo" in text(elicited)
    assert "a reply of the model" in text(sampled)
    assert "file:///srv/data" in text(rooted)
    assert weather.structured_content == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    assert steps == [1, 2, 3, 4]
    assert text(done).startswith("Long running operation completed.")
    assert {"args-prompt", "completable-prompt"} <= set(prompts)
    assert "Oslo" in prompt.messages[0].content.text  # type: ignore[union-attr]
    assert isinstance(plain, types.TextResourceContents)
    assert "demo://resource/dynamic/text/{resourceId}" in templates
    assert completed["completion"]["values"] == ["Engineering"]


async def test_updates_of_an_old_server_reach_a_modern_listener(everything_server: Launch) -> None:
    """`subscriptions/listen` here is `resources/subscribe` there."""
    uri = "demo://resource/dynamic/text/2"
    with trio.fail_after(DEADLINE):
        async with Client(through(everything_server), mode=MODERN) as client:
            async with client.listen(tools_list_changed=True, resources=[uri]) as events:
                await client.call_tool("toggle-subscriber-updates", {})
                async for event in events:
                    if event == ResourceUpdated(uri):
                        break
            await client.call_tool("toggle-subscriber-updates", {})


async def test_logs_of_an_old_server_reach_a_modern_call(everything_server: Launch) -> None:
    """What the server logs while a call is in flight comes on that call."""
    heard = trio.Event()
    with trio.fail_after(DEADLINE):
        async with Client(
            through(everything_server), mode=MODERN, log_level="debug", on_log=lambda _: heard.set()
        ) as client:
            await client.call_tool("toggle-simulated-logging", {})  # sends the first at once, then each 5 seconds
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "trigger-long-running-operation", {"duration": 30, "steps": 1})
                await heard.wait()
                nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def bridged_to_modern(way: str, environment: dict[str, str], folder: Path) -> AsyncIterator[Launch]:
    """Yield the command of a bridge to our server, which the bridge has started, or which runs in this process."""
    source = (PEERS / "our_server.py").read_text()
    (file := folder / "modern.py").write_text(source.replace("Server(", 'Server(revisions=["2026-07-28"], name=', 1))
    if way == "stdio":
        yield bridged(Launch(sys.executable, ["-m", "trio_mcp", "run", str(file)], environment))
    else:
        async with WAYS[way](fresh_server(file)) as url:
            yield Launch(sys.executable, ["-m", "trio_mcp", "bridge", url], environment)


@pytest.mark.parametrize("way", ["stdio", *each_way("WebSocket", "Unix")])
async def test_the_official_client_in_the_legacy_era_uses_a_modern_server(
    way: str, environment: dict[str, str], tmp_path: Path
) -> None:
    """Calls, progress, reads, prompts and questions, by a client that has never heard of the modern era."""
    steps: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        steps.append(progress)

    async def elicited(context: Any, params: Any) -> mcp_types.ElicitResult:
        content: Any = {"colour": "blue"} if "colour" in params.message else {"nights": 3}
        return mcp_types.ElicitResult(action="accept", content=content)

    async def sampled(context: Any, params: Any) -> mcp_types.CreateMessageResult:
        content = mcp_types.TextContent(type="text", text="four")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(context: object) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri="file:///here")])  # type: ignore[arg-type]

    def said(result: Any) -> str:
        (block,) = result.content
        assert isinstance(block, mcp_types.TextContent)
        return block.text

    answers: Any = {"elicitation_callback": elicited, "sampling_callback": sampled, "list_roots_callback": roots}
    with trio.fail_after(DEADLINE):
        async with (
            bridged_to_modern(way, environment, tmp_path) as launch,
            mcp.Client(launch.for_official(), mode="legacy", **answers) as client,
        ):
            tools = {tool.name for tool in (await client.list_tools()).tools}
            added = await client.call_tool("add", {"a": 20, "b": 22})
            interview = await client.call_tool("interview", {})
            done = await client.call_tool("progress", {"n": 3}, progress_callback=on_progress)
            read = await client.read_resource("peer://a")
            prompt = await client.get_prompt("greeting", {"name": "Ann"})
    assert tools == TOOLS["ours"]
    assert (said(added), said(interview), said(done)) == ("42", "blue, 3, [], four, file:///here", "3 steps")
    assert steps == [1, 2, 3]
    assert read.contents[0].text == "a"  # type: ignore[union-attr]
    assert prompt.messages[0].content.text == "Greet Ann."  # type: ignore[union-attr]
