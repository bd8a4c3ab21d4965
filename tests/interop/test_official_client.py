"""The official Python SDK's client, on Trio, against our server over every transport: both eras."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, Literal

import mcp
import mcp_types
import pytest
import trio
from mcp.client import advertise
from mcp.client.sse import sse_client
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from tests.ways import WAYS, Way, each_way
from trio_mcp import HttpOptions, MemoryEventStore

from .official_transports import official_transport
from .support import DEADLINE, MODES, NEGOTIATED, TOOLS, TRICKY, Launch, fresh_server

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore::mcp.MCPDeprecationWarning"),
    # It leaves the streams that it has not read to the end to the garbage collector.
    pytest.mark.filterwarnings(r"ignore:Async generator '(httpx2|httpcore2|mcp)\.:ResourceWarning"),
]

Connect = Callable[..., contextlib.AbstractAsyncContextManager[mcp.Client]]

OVER_HTTP = {
    "HTTP": HttpOptions(),
    # The TypeScript client comes back for a call that it has cancelled, and reports that there is nothing to come for.
    "HTTP, with a store": HttpOptions(event_store=MemoryEventStore(), retry=60),
}


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


@contextlib.asynccontextmanager
async def over_http(options: HttpOptions, **arguments: Any) -> AsyncIterator[mcp.Client]:
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(fresh_server().serve_http, port=0, options=options))
        async with mcp.Client(url, **arguments) as client:
            yield client
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def over_socket(way: Way, **arguments: Any) -> AsyncIterator[mcp.Client]:
    async with way(fresh_server()) as url, mcp.Client(official_transport(url), **arguments) as client:
        yield client


@pytest.fixture(params=["stdio", *OVER_HTTP, *each_way()])
def connect(mode: str, our_server: Launch, request: pytest.FixtureRequest) -> Connect:
    """Make a client; entering it starts the server."""
    if request.param in OVER_HTTP:
        return partial(over_http, OVER_HTTP[request.param], mode=mode)
    if request.param in WAYS:
        return partial(over_socket, WAYS[request.param], mode=mode)
    return lambda **options: mcp.Client(our_server.for_official(), mode=mode, **options)


def text(result: mcp_types.CallToolResult) -> str:
    """Return the text of a result that has one text block and nothing else."""
    (block,) = result.content
    assert isinstance(block, mcp_types.TextContent)
    return block.text


class DoubleParams(mcp_types.RequestParams):
    number: int


class Double(mcp_types.Request[DoubleParams, Literal["com.example/double"]]):
    method: Literal["com.example/double"] = "com.example/double"
    params: DoubleParams


class Doubled(mcp_types.Result):
    doubled: int


async def test_an_extension_and_its_method(connect: Connect) -> None:
    request = Double(params=DoubleParams(number=21))
    with trio.fail_after(DEADLINE):
        async with connect(extensions=[advertise("com.example/doubling")]) as client:
            assert (await client.session.send_request(request, Doubled)).doubled == 42
        async with connect() as client:
            with pytest.raises(mcp.MCPError):
                await client.session.send_request(request, Doubled)


async def test_negotiation_results_and_errors(connect: Connect, mode: str) -> None:
    """The newest revision of the era, contracts from signatures, whole results, and calls that are told apart.

    The listing gives this client the output schemas, which it then holds every result against.
    """
    sums: dict[int, object] = {}
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            assert client.protocol_version == NEGOTIATED[mode]
            if mode != "2026-07-28":  # this client's pin sends nothing, so it learns nothing
                assert client.server_info is not None
                assert client.server_info.version
                assert client.instructions == "Call any tool."
                assert client.server_capabilities.tools is not None
            if mode == "legacy":
                await client.send_ping()
            listed = await client.list_tools()
            added = await client.call_tool("add", {"a": 2**40, "b": -1})
            echoed = await client.call_tool("echo", {"text": TRICKY})
            weather = await client.call_tool("weather", {"city": "Tromsø"})
            picture = await client.call_tool("picture", {})
            failed = await client.call_tool("fail", {})
            crashed = await client.call_tool("crash", {})
            invalid = await client.call_tool("add", {"a": "not a number"})
            with pytest.raises(mcp.MCPError, match="no-such-tool") as refused:
                await client.call_tool("no-such-tool", {})
            assert refused.value.code == -32602

            async def call(number: int) -> None:
                sums[number] = (await client.call_tool("add", {"a": number, "b": number})).structured_content

            async with trio.open_nursery() as nursery:
                for number in range(30):
                    nursery.start_soon(call, number)
    tools = {tool.name: tool for tool in listed.tools}
    assert tools.keys() == TOOLS["ours"]
    assert listed.next_cursor is None
    add = tools["add"]
    assert add.description == "Add two integers."
    assert add.input_schema["type"] == "object"
    kinds = {name: schema["type"] for name, schema in add.input_schema["properties"].items()}
    assert kinds == {"a": "integer", "b": "integer"}
    assert sorted(add.input_schema["required"]) == ["a", "b"]
    assert add.annotations is not None
    assert add.annotations.read_only_hint is True
    # The context is ours to supply, so the caller never sees it; neither is an image a structured result.
    assert set(tools["progress"].input_schema["properties"]) == {"n"}
    assert tools["picture"].output_schema is None
    output = tools["weather"].output_schema
    assert output is not None
    assert set(output["properties"]) == {"city", "celsius"}

    assert (added.structured_content, text(added), added.is_error) == ({"result": 2**40 - 1}, str(2**40 - 1), False)
    assert text(echoed) == TRICKY
    assert weather.structured_content == {"city": "Tromsø", "celsius": 21.5}
    (image,) = picture.content
    assert isinstance(image, mcp_types.ImageContent)
    assert image.mime_type == "image/png"
    assert image.data.startswith("iVBORw0KGgo")
    assert picture.structured_content is None
    # 2025-11-25, server/tools, Error Handling: the message a tool chose arrives, an accident's message does not.
    assert failed.is_error is crashed.is_error is invalid.is_error is True
    assert "this tool always fails" in text(failed)
    assert "secret" not in text(crashed)
    assert "a" in text(invalid)
    assert sums == {number: {"result": 2 * number} for number in range(30)}


async def test_progress_logs_and_cancellation(connect: Connect) -> None:
    """All that a tool reports arrives in order; the stateless era needs the request to ask for logs.

    Cancelling a call cancels the tool's own scope on the server, and the session goes on.
    """
    seen: list[tuple[float, float | None, str | None]] = []
    logs: list[tuple[str, str | None, object]] = []
    started = trio.Event()

    async def show(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def begin(progress: float, total: float | None, message: str | None) -> None:
        started.set()

    async def log(params: mcp_types.LoggingMessageNotificationParams) -> None:
        logs.append((params.level, params.logger, params.data))

    with trio.fail_after(DEADLINE):
        async with connect(logging_callback=log, log_level="debug") as client:
            result = await client.call_tool("progress", {"n": 5}, progress_callback=show)
            await client.call_tool("chatty", {"words": ["one", "two"]})
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    await client.call_tool("slow", {"seconds": 3600}, progress_callback=begin)

                nursery.start_soon(call)
                await started.wait()
                nursery.cancel_scope.cancel()
            # Also a later round trip: this client may still be handing over notifications when a call returns.
            events = await client.call_tool("events", {"until": "slow cancelled"})
    assert text(result) == "5 steps"
    assert seen == [(step, 5, f"step {step}") for step in range(1, 6)]
    assert logs == [("info", "chatty", "one"), ("info", "chatty", "two")]
    assert events.structured_content == {"result": ["slow cancelled"]}


@pytest.mark.parametrize("mode", ["auto", "2026-07-28"])
async def test_a_listener_hears_of_what_it_asked_for(connect: Connect) -> None:
    """Two `subscriptions/listen` on one link: acknowledged, told apart, and ended by the client."""
    with trio.fail_after(DEADLINE):
        async with connect() as client:
            async with (
                client.listen(tools_list_changed=True) as lists,
                client.listen(resource_subscriptions=["peer://a"]) as resources,
            ):
                assert lists.honored.tools_list_changed is True
                assert resources.honored.resource_subscriptions == ["peer://a"]
                await client.call_tool("announce", {"uri": "peer://b"})
                assert await anext(lists) == ToolsListChanged()
                await client.call_tool("announce", {"uri": "peer://a"})
                assert await anext(resources) == ResourceUpdated("peer://a")
            added = await client.call_tool("add", {"a": 1, "b": 2})
    assert added.structured_content == {"result": 3}


async def test_an_interview_gives_the_same_answer_in_each_era(connect: Connect, mode: str) -> None:
    """The modern era replays the handler."""
    assert await runs_of("interview", connect) == (1 if mode == "legacy" else 4)


async def test_a_parked_interview_runs_once(connect: Connect) -> None:
    assert await runs_of("parked_interview", connect) == 1


async def runs_of(tool: str, connect: Connect) -> int:
    """Call a tool that asks for two forms, the model and the roots; return how many times it has run."""
    asked: list[str] = []

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        asked.append(params.message)
        content: dict[str, Any] = {"colour": "blue"} if "colour" in params.message else {"nights": 3, "extras": ["map"]}
        return mcp_types.ElicitResult(action="accept", content=content)

    async def sample(context: object, params: mcp_types.CreateMessageRequestParams) -> mcp_types.CreateMessageResult:
        asked.append("model")
        content = mcp_types.TextContent(type="text", text="hello")
        return mcp_types.CreateMessageResult(role="assistant", content=content, model="m")

    async def roots(context: object) -> mcp_types.ListRootsResult:
        return mcp_types.ListRootsResult(roots=[mcp_types.Root(uri="file:///here")])  # type: ignore[arg-type]

    with trio.fail_after(DEADLINE):
        async with connect(elicitation_callback=answer, sampling_callback=sample, list_roots_callback=roots) as client:
            result = await client.call_tool(tool, {})
            ran = await client.call_tool("events", {"until": "interview"})
    assert text(result) == "blue, 3, ['map'], hello, file:///here"
    assert asked == ["Which colour?", "How long?", "model"]
    events: list[str] = (ran.structured_content or {})["result"]
    return events.count("interview")


async def test_a_page_to_visit_reaches_the_client(connect: Connect) -> None:
    seen: list[Any] = []

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        seen.append(params)
        return mcp_types.ElicitResult(action="decline")

    with trio.fail_after(DEADLINE):
        async with connect(elicitation_callback=answer) as client:
            result = await client.call_tool("ask_page", {})
    assert text(result) == "decline"
    assert [(each.mode, each.url) for each in seen] == [("url", "https://example.com/in")]


async def test_over_http_and_sse() -> None:
    """The transport of 2024-11-05: tools, progress, and a question while a call is open."""
    seen: list[float] = []

    async def show(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async def answer(context: object, params: mcp_types.ElicitRequestParams) -> mcp_types.ElicitResult:
        return mcp_types.ElicitResult(action="accept", content={"colour": "blue"})

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(fresh_server().serve_sse, port=0))
            async with mcp.Client(sse_client(url), mode="legacy", elicitation_callback=answer) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}
                assert text(await client.call_tool("progress", {"n": 3}, progress_callback=show)) == "3 steps"
                assert text(await client.call_tool("ask", {})) == "painted blue"
            nursery.cancel_scope.cancel()
    assert seen == [1, 2, 3]
