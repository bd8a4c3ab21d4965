"""Our client against the npm reference servers, which speak the legacy era only."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
import trio

from tests.listening import listens_on
from tests.waiting import eventually
from trio_mcp import Client, McpError, RequestTimeout, ResourceUpdated, ToolsListChanged, UnknownTool, types
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.low_level import ClientSession, stdio_client
from trio_mcp.types.versions import LEGACY_REVISIONS

from .support import DEADLINE, Launch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.again)])
@pytest.mark.parametrize(
    ("server", "name", "tool"),
    [
        ("everything_server", "mcp-servers/everything", "echo"),
        ("filesystem_server", "secure-filesystem-server", "read_text_file"),
        ("memory_server", "memory-server", "read_graph"),
    ],
)
async def test_negotiation_falls_back_to_the_handshake(
    server: str, name: str, tool: str, mode: str, request: pytest.FixtureRequest
) -> None:
    """With or without a probe first, the handshake settles on 2025-11-25, and the tools can be listed."""
    launch: Launch = request.getfixturevalue(server)
    with trio.fail_after(DEADLINE):
        async with Client(launch.for_us(), mode=mode) as client:
            assert client.protocol_version == "2025-11-25"
            assert client.server_info is not None
            assert client.server_info.name == name
            assert client.capabilities.tools is not None
            tools = {found.name: found async for found in client.iter_tools()}
    assert tools[tool].input_schema["type"] == "object"
    assert tools[tool].description


@pytest.mark.parametrize(
    "revision", ["2024-11-05", *(pytest.param(each, marks=pytest.mark.again) for each in LEGACY_REVISIONS[1:])]
)
@pytest.mark.parametrize("server", ["official_server", "everything_server"])
async def test_the_handshake_offers_any_revision_of_its_era(
    server: str, revision: str, request: pytest.FixtureRequest
) -> None:
    """`ClientSession` over `stdio_client`, as the tutorials write it."""
    launch: Launch = request.getfixturevalue(server)
    with trio.fail_after(DEADLINE):
        async with stdio_client(launch.for_us()) as (read, write), ClientSession(read, write) as session:
            declared = await session.initialize(revision)
            await session.ping()
            listed = await session.send_request("tools/list", None, types.ListToolsResult)
            echoed = await session.send_request(
                "tools/call", {"name": "echo", "arguments": {"text": "hi", "message": "hi"}}, types.CallToolResult
            )
    assert declared.revision == revision
    assert declared.info is not None
    assert declared.info["version"]
    assert "tools" in declared.capabilities
    assert "echo" in {tool.name for tool in listed.tools}
    (block,) = echoed.content
    assert isinstance(block, types.TextContent)
    assert block.text in ("hi", "Echo: hi")


async def test_everything_content_of_each_kind(everything_server: Launch) -> None:
    """Text, numbers, images, annotations, structured content, links and embedded resources arrive as such."""
    with trio.fail_after(DEADLINE):
        async with Client(everything_server.for_us()) as client:
            echoed = await client.call_tool("echo", {"message": "grüße\u2028\U0001f600"})
            total = await client.call_tool("get-sum", {"a": 2.5, "b": 40})
            picture = await client.call_tool("get-tiny-image", {})
            annotated = await client.call_tool("get-annotated-message", {"messageType": "error", "includeImage": True})
            weather = await client.call_tool("get-structured-content", {"location": "Chicago"})
            links = await client.call_tool("get-resource-links", {"count": 2})
            embedded = await client.call_tool("get-resource-reference", {"resourceType": "Text", "resourceId": 1})
            refused = await client.call_tool("get-sum", {"a": "two"})
            assert refused.is_error
            assert "Invalid arguments for tool get-sum" in refused.text
            with pytest.raises(UnknownTool, match="did you mean 'get-sum'"):
                await client.call_tool("get-sums")
    assert echoed.text == "Echo: grüße\u2028\U0001f600"
    assert total.text == "The sum of 2.5 and 40 is 42.5."

    before, image, after = picture.content
    assert isinstance(before, types.TextContent)
    assert isinstance(image, types.ImageContent)
    assert isinstance(after, types.TextContent)
    assert base64.b64decode(image.data, validate=True).startswith(b"\x89PNG")

    message, icon = annotated.content
    assert isinstance(message, types.TextContent)
    assert message.annotations is not None
    assert (message.annotations.priority, message.annotations.audience) == (1.0, ["user", "assistant"])
    assert isinstance(icon, types.ImageContent)
    assert icon.annotations is not None
    assert icon.annotations.priority == 0.5

    assert weather.structured_content == {"temperature": 36, "conditions": "Light rain / drizzle", "humidity": 82}
    assert json.loads(weather.text) == weather.structured_content

    _, blob, plain = links.content
    assert isinstance(blob, types.ResourceLink)
    assert isinstance(plain, types.ResourceLink)
    assert (blob.name, plain.name) == ("Blob Resource 1", "Text Resource 2")
    assert plain.uri.startswith("demo://resource/dynamic/text/")
    resources = [block for block in embedded.content if isinstance(block, types.EmbeddedResource)]
    assert len(resources) == 1
    assert isinstance(resources[0].resource, types.TextResourceContents)


async def test_everything_resources(everything_server: Launch) -> None:
    """Resources are listed and read, as text and as Base64; templates name those that no list has."""
    with trio.fail_after(DEADLINE):
        async with Client(everything_server.for_us()) as client:
            resources = [found async for found in client.iter_resources()]
            templates = {found.uri_template: found async for found in client.iter_resource_templates()}
            page = next(found for found in resources if found.name == "features.md")
            (document,) = (await client.read_resource(page.uri)).contents
            (plain,) = (await client.read_resource("demo://resource/dynamic/text/7")).contents
            (blob,) = (await client.read_resource("demo://resource/dynamic/blob/8")).contents
            with pytest.raises(McpError, match="no/such"):
                await client.read_resource("demo://no/such")
            after = await client.list_resources()
    assert page.mime_type == "text/markdown"
    assert isinstance(document, types.TextResourceContents)
    assert (document.uri, document.mime_type) == (page.uri, "text/markdown")
    assert document.text.startswith("# ")
    assert set(templates) == {"demo://resource/dynamic/text/{resourceId}", "demo://resource/dynamic/blob/{resourceId}"}
    assert isinstance(plain, types.TextResourceContents)
    assert plain.text.startswith("Resource 7: ")
    assert isinstance(blob, types.BlobResourceContents)
    assert base64.b64decode(blob.blob, validate=True).startswith(b"Resource 8: ")
    assert after.resources == resources


async def test_everything_prompts(everything_server: Launch) -> None:
    with trio.fail_after(DEADLINE):
        async with Client(everything_server.for_us()) as client:
            prompts = {found.name: found async for found in client.iter_prompts()}
            simple = await client.get_prompt("simple-prompt")
            filled = await client.get_prompt("args-prompt", {"city": "Bern", "state": "BE"})
            embedding = await client.get_prompt("resource-prompt", {"resourceType": "Text", "resourceId": "3"})
            with pytest.raises(McpError, match="city") as refused:
                await client.get_prompt("args-prompt", {})
    assert set(prompts) == {"simple-prompt", "args-prompt", "completable-prompt", "resource-prompt"}
    arguments = prompts["args-prompt"].arguments
    assert arguments is not None
    assert [(argument.name, bool(argument.required)) for argument in arguments] == [("city", True), ("state", False)]
    assert [message.role for message in simple.messages] == ["user"]
    (question,) = filled.messages
    assert isinstance(question.content, types.TextContent)
    assert question.content.text == "What's weather in Bern, BE?"
    resource = embedding.messages[1].content
    assert isinstance(resource, types.EmbeddedResource)
    assert resource.resource.uri == "demo://resource/dynamic/text/3"
    assert refused.value.code == -32602


async def test_everything_takes_a_log_level_and_logs_of_its_own_accord(everything_server: Launch) -> None:
    """This server logs each subscription at level info: it is sent under debug, and withheld under warning."""
    heard: list[Any] = []
    logged = trio.Event()

    def log(message: Any) -> None:
        heard.append(message)
        logged.set()

    with trio.fail_after(DEADLINE):
        async with Client(everything_server.for_us(), on_log=log, log_level="warning") as client:
            await client.subscribe_resource("demo://resource/dynamic/text/1")
            await client.set_log_level("debug")
            await client.subscribe_resource("demo://resource/dynamic/text/2")
            await client.list_prompts()
            await trio.testing.wait_all_tasks_blocked()
            assert [(message.level, "text/2" in str(message.data)) for message in heard] == [("info", True)]
            logged = trio.Event()
            await client.call_tool("toggle-simulated-logging", {})
            await logged.wait()
    assert str(heard[-1].level) in str(heard[-1].data).lower()


async def test_filesystem_reads_and_writes(filesystem_server: Launch, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    body = "first\nsecond\u2028 line\n"
    with trio.fail_after(DEADLINE):
        async with Client(filesystem_server.for_us()) as client:
            await client.call_tool("create_directory", {"path": str(tmp_path / "sub")})
            written = await client.call_tool("write_file", {"path": str(note), "content": body})
            read = await client.call_tool("read_text_file", {"path": str(note)})
            head = await client.call_tool("read_text_file", {"path": str(note), "head": 1})
            listed = await client.call_tool("list_directory", {"path": str(tmp_path)})
            edits = [{"oldText": "first", "newText": "1st"}]
            await client.call_tool("edit_file", {"path": str(note), "edits": edits})
            outside = await client.call_tool("read_text_file", {"path": "/etc/hostname"})
    assert not written.is_error
    assert note.read_text(encoding="utf-8") == body.replace("first", "1st")
    assert read.text == body
    assert read.structured_content == {"content": body}
    assert head.text == "first"
    assert set(listed.text.splitlines()) == {"[DIR] sub", "[FILE] note.txt"}
    assert outside.is_error is True
    assert "outside allowed directories" in outside.text


async def test_memory_keeps_a_graph(memory_server: Launch) -> None:
    """Entities and relations that were created are read back, in the same session and by the next process."""
    entity = {"name": "Ada", "entityType": "person", "observations": ["wrote a program"]}
    relation = {"from": "Ada", "to": "Engine", "relationType": "programmed"}
    engine = {"name": "Engine", "entityType": "machine", "observations": []}
    with trio.fail_after(DEADLINE):
        async with Client(memory_server.for_us()) as client:
            created = await client.call_tool("create_entities", {"entities": [entity, engine]})
            await client.call_tool("create_relations", {"relations": [relation]})
            missing = await client.call_tool(
                "add_observations", {"observations": [{"entityName": "Missing", "contents": ["x"]}]}
            )
        async with Client(memory_server.for_us()) as client:
            graph = await client.call_tool("read_graph", {})
            found = await client.call_tool("search_nodes", {"query": "program"})
    assert created.structured_content == {"entities": [entity, engine]}
    assert missing.is_error is True
    assert "Missing" in missing.text
    assert graph.structured_content == {"entities": [entity, engine], "relations": [relation]}
    assert found.structured_content is not None
    assert found.structured_content["entities"] == [entity]


# --- over every transport ---------------------------------------------------------------------------------------


@pytest.fixture(params=["stdio", "streamableHttp", "sse"])
async def everything(request: pytest.FixtureRequest, everything_server: Launch) -> AsyncIterator[Any]:
    """Yield a target: the server in a process of the client, or over HTTP when it takes connections."""
    kind = request.param
    if kind == "stdio":
        yield everything_server.for_us()
        return
    ORIGINS.clear()
    process = await trio.lowlevel.open_process(
        [everything_server.command, *everything_server.args, kind],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**everything_server.env, "PORT": "0"},
    )
    try:
        # It prints the port that it was given, and not the one that it has got.
        port = await eventually(lambda: listens_on(process.pid))
        yield f"http://localhost:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def test_everything_progress_cancellation_and_timeouts(everything: Any) -> None:
    """A long operation reports each step before its result; what ends another leaves the session usable."""
    progress: list[tuple[float, float | None]] = []
    slow, started = "trigger-long-running-operation", trio.Event()
    with trio.fail_after(DEADLINE):
        async with Client(everything) as client:
            assert client.protocol_version == "2025-11-25"
            done = await client.call_tool(
                slow,
                {"duration": 0.4, "steps": 2},
                on_progress=lambda update: progress.append((update.progress, update.total)),
            )
            assert done.text == "Long running operation completed. Duration: 0.4 seconds, Steps: 2."
            assert progress == [(1, 2), (2, 2)]
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    arguments = {"duration": 360, "steps": 7200}
                    await client.call_tool(slow, arguments, on_progress=lambda _: started.set())

                nursery.start_soon(call)
                await started.wait()
                nursery.cancel_scope.cancel()
            with pytest.raises(RequestTimeout):
                await client.call_tool(slow, {"duration": 60, "steps": 2}, timeout=0.3)
            assert (await client.call_tool("echo", {"message": "still here"})).text == "Echo: still here"


async def test_everything_listened_to(everything: Any) -> None:
    """`Client.listen` subscribes on entering; the update comes as an event; leaving unsubscribes."""
    uri = "demo://resource/dynamic/text/2"
    with trio.fail_after(DEADLINE):
        async with Client(everything) as client:
            async with client.listen(tools_list_changed=True, resources=[uri]) as events:
                assert events.honored.resource_subscriptions == [uri]
                await client.call_tool("toggle-subscriber-updates", {})  # sends the first at once
                while (event := await anext(events)) != ResourceUpdated(uri):
                    assert event == ToolsListChanged()
                await client.call_tool("toggle-subscriber-updates", {})
            async with client.listen(resources=[uri]):  # waits for the end of the subscription before
                pass
