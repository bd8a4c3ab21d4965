"""Our client against servers on the official SDKs: Python over stdio, HTTP and WebSocket, TypeScript over HTTP."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.forks import children
from trio_mcp import (
    Answers,
    Client,
    HttpServerParameters,
    McpError,
    RequestTimeout,
    ResourceUpdated,
    StdioServerParameters,
    ToolsListChanged,
    TransportError,
    UnknownTool,
    types,
)
from trio_mcp.http.client.origins import ORIGINS

from .support import DEADLINE, LOG_OPT_IN, MODES, NEGOTIATED, PEERS, TOOLS, TRICKY, marked_environment, python_peer

pytestmark = pytest.mark.interop

Connect = Callable[..., contextlib.AbstractAsyncContextManager[Client]]

STDIO = {f"official over stdio, {mode}": ("stdio", "", mode) for mode in MODES}
HTTP = {
    f"official over HTTP, {kind}, {mode}": ("http", kind, mode)
    for kind in ("events", "json", "stateless", "resumable")
    for mode in ("legacy", "auto")
}
TYPESCRIPT = {
    f"TypeScript {kind}, {mode}": ("node", kind, mode)
    for kind, mode in (
        ("v1 sessions", "auto"),
        ("v1 json", "auto"),
        ("v1 stateless", "legacy"),
        ("v2 sessions", "auto"),
        ("v2 json", "legacy"),
        ("v2 both", "legacy"),
        ("v2 both", "auto"),
    )
}
WEBSOCKET = {f"official v1 over WebSocket, {mode}": ("websocket", "", mode) for mode in ("legacy", "auto")}
SERVERS = {**STDIO, **HTTP, **TYPESCRIPT, **WEBSOCKET}
"""How a server is started, how it serves (see peers/), and how our client begins."""

KEEPING = [
    *STDIO,
    *(name for name, (_, kind, _) in HTTP.items() if kind in ("events", "resumable")),
    *(f"TypeScript {each}, auto" for each in ("v1 sessions", "v2 sessions", "v2 both")),
    "official v1 over WebSocket, auto",
]
"""Those that a client can cancel a call of, and that report progress."""
LISTENED_TO = [
    *(name for name in KEEPING if name in TYPESCRIPT),
    *("official over stdio, auto", "official over HTTP, events, auto"),
]
ASKING = [name for name in KEEPING if name not in HTTP]


def revision(server: str) -> str:
    """Return the newest revision of the era that the two have in common."""
    start, kind, mode = SERVERS[server]
    return NEGOTIATED["legacy" if start == "websocket" or (start == "node" and kind != "v2 both") else mode]


@contextlib.asynccontextmanager
async def listening(command: list[str], environment: dict[str, str]) -> AsyncIterator[tuple[str, trio.Process]]:
    """Yield the URL that a server prints when it has started, and its process."""
    ORIGINS.clear()
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        with trio.fail_after(DEADLINE):
            line = b""
            while not line.endswith(b"\n"):
                chunk = await process.stdout.receive_some()
                assert chunk, "the server has not started"
                line += chunk
            yield line.decode().strip(), process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


def official(
    kind: str, environment: dict[str, str]
) -> contextlib.AbstractAsyncContextManager[tuple[str, trio.Process]]:
    """Run the official Python server over HTTP."""
    launch = python_peer("official_http_server", environment)
    return listening([launch.command, *launch.args, kind], launch.env)


def official_v1(python: Path) -> list[str]:
    return [str(python), str(PEERS / "python_v1_server.py")]


@pytest.fixture(scope="module")
def v1_url(python_v1: Path) -> Iterator[str]:
    """Run the official Python server below 2 over WebSocket, for all tests that do not end it."""
    with (
        marked_environment() as environment,
        subprocess.Popen(official_v1(python_v1), env=environment, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture
def connect(server: str, request: pytest.FixtureRequest) -> Connect:
    """Return a target that starts the server and connects to it."""
    start, kind, mode = SERVERS[server]
    npm = request.getfixturevalue("npm") if start == "node" else None
    # It outlives the test, so it comes before what would miss that.
    running_url = request.getfixturevalue("v1_url") if start == "websocket" else None
    environment = request.getfixturevalue("environment")

    @contextlib.asynccontextmanager
    async def connected(**options: Any) -> AsyncIterator[Client]:
        with trio.fail_after(DEADLINE):
            if start in ("stdio", "websocket"):
                target = running_url or python_peer("official_server", environment).for_us()
                async with Client(target, mode=mode, **options) as client:
                    yield client
                return
            if npm is not None:
                script = str(PEERS / "ts_http_server.mjs")
                running = listening([str(npm.node), script, str(npm.modules), *kind.split()], environment)
            else:
                running = official(kind, environment)
            async with running as (url, _), Client(url, mode=mode, **options) as client:
                yield client

    return connected


def against(*servers: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("server", servers)


# --- every server -----------------------------------------------------------------------------------------------


@against(*SERVERS)
async def test_negotiation_results_and_errors(connect: Connect, server: str) -> None:
    """However the server answers: the newest revision of the era, whole results, and calls that are told apart."""
    sums: dict[int, Any] = {}
    python = server not in TYPESCRIPT
    async with connect() as client:
        assert client.protocol_version == revision(server)
        assert client.instructions == "Call any tool."
        assert client.server_info is not None
        assert client.capabilities.tools is not None
        listed = await client.list_tools()
        tools = {tool.name: tool for tool in listed.tools}
        assert listed.next_cursor is None
        added = await client.call_tool("add", {"a": 2**40, "b": -1})
        assert (added.data, added.text, added.is_error) == (2**40 - 1, str(2**40 - 1), False)
        assert (await client.call_tool("echo", {"text": TRICKY})).text == TRICKY
        failed = await client.call_tool("fail")
        assert failed.is_error is True
        assert "this tool always fails" in failed.text
        with pytest.raises(McpError) as caught:
            await client.request("no/such/method", {})
        assert python or caught.value.code == -32601
        # Some answer with an error, most with a result.
        with pytest.raises(UnknownTool, match="did you mean 'add'"):
            await client.call_tool("adds")
        await client.ping()
        if python:
            await results_of_the_python_server(client, tools, "official v1" if server in WEBSOCKET else "official")
        else:
            assert {"add", "echo", "ask"} < tools.keys()
            (content,) = (await client.read_resource("peer://a")).contents
            assert content == types.TextResourceContents(uri=content.uri, text="a")
            (message,) = (await client.get_prompt("greeting", {"name": "Ada"})).messages
            assert message.content == types.TextContent(text="Greet Ada.")

        async def add(number: int) -> None:
            sums[number] = (await client.call_tool("add", {"a": number, "b": 1})).data

        async with trio.open_nursery() as nursery:
            for number in range(150):
                nursery.start_soon(add, number)
    assert sums == {number: number + 1 for number in range(150)}


async def results_of_the_python_server(client: Client, tools: dict[str, types.Tool], peer: str) -> None:
    """Wrapped scalars are unwrapped in `data`, objects stay, images are base64; any failure of a tool is a result."""
    assert client.server_info is not None
    version = {"official": "2.3-peer", "official v1": "1-peer"}[peer]
    assert (client.server_info.name, client.server_info.version) == ("official-peer", version)
    assert tools.keys() == TOOLS[peer]
    add = tools["add"]
    assert (add.description, add.input_schema["required"]) == ("Add two integers.", ["a", "b"])
    assert add.annotations is not None
    assert add.annotations.read_only_hint is True
    assert tools["picture"].output_schema is None
    weather = await client.call_tool("weather", {"city": "Tromsø"})
    assert weather.structured_content == weather.data == {"city": "Tromsø", "celsius": 21.5}
    picture = await client.call_tool("picture", {})
    (image,) = picture.content
    assert isinstance(image, types.ImageContent)
    assert image.mime_type == "image/png"
    assert image.data.startswith("iVBORw0KGgo")
    assert picture.structured_content is None
    for name, arguments, said in (
        ("crash", {}, ""),
        ("add", {"a": "not a number"}, "valid integer"),
    ):
        result = await client.call_tool(name, arguments)
        assert result.is_error is True
        assert said in result.text


@against(*KEEPING)
async def test_progress_cancellation_and_timeouts(connect: Connect, server: str) -> None:
    """Each report comes in order before the result; what ends a call ends its handler, and the session goes on."""
    seen: list[tuple[float, float | None, str | None]] = []
    begun = trio.Event()
    async with connect() as client:
        result = await client.call_tool(
            "progress",
            {"n": 5},
            on_progress=lambda update: seen.append((update.progress, update.total, update.message)),
        )
        assert result.text == "5 steps"
        assert seen == [(step, 5, None if server in TYPESCRIPT else f"step {step}") for step in range(1, 6)]
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: begun.set())

            nursery.start_soon(call)
            await begun.wait()
            nursery.cancel_scope.cancel()
        assert "slow cancelled" in (await client.call_tool("events", {"until": "slow cancelled"})).text
        with pytest.raises(RequestTimeout):
            await client.call_tool("slow", {"seconds": 3600}, timeout=0.1)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@against(*(name for name in KEEPING if name not in TYPESCRIPT))
async def test_log_messages_reach_the_client(connect: Connect) -> None:
    """What the tool logs reaches `on_log`; the stateless era needs the request to ask for it."""
    logs: list[tuple[str, str | None, object]] = []
    both = trio.Event()

    def log(params: types.LoggingMessageNotificationParams) -> None:
        logs.append((params.level, params.logger, params.data))
        if len(logs) == 2:
            both.set()

    async with connect(on_log=log) as client:
        await client.call_tool("chatty", {"words": ["one", "two"]}, meta=LOG_OPT_IN)
        await both.wait()
    assert logs == [("info", "chatty", "one"), ("info", "chatty", "two")]


@against(*ASKING)
async def test_its_questions_reach_the_callbacks(connect: Connect, server: str) -> None:
    """Forms, the model and the roots: requests in the legacy era, rounds of input in the stateless one."""
    asked: list[str] = []

    async def elicit(params: types.ElicitRequestFormParams) -> dict[str, str]:
        asked.append(params.message)
        return {"colour": "blue"}

    async def sample(params: types.CreateMessageRequestParams) -> str:
        asked.append("sampling")
        return "hello"

    async with connect(answers=Answers(elicitation=elicit, sampling=sample, roots=["file:///srv"])) as client:
        assert (await client.call_tool("ask")).text == "painted blue"
        assert asked == ["Which colour?"]
        if server in STDIO:
            assert (await client.call_tool("ask_everything")).text == "blue, hello, file:///srv"
            assert sorted(asked[1:]) == ["Which colour?", "sampling"]
    if server in STDIO:
        async with connect(answers=Answers(elicitation=lambda params: None)) as client:
            assert (await client.call_tool("ask")).is_error, "a declined question is the tool's to deal with"


@against(*LISTENED_TO)
async def test_changes_are_heard(connect: Connect) -> None:
    """On the stream of a GET, or of `subscriptions/listen`."""
    async with connect() as client, client.listen(tools_list_changed=True, resources=["test://x"]) as events:
        await client.call_tool("announce", {"uri": "test://x"})
        heard = [await anext(events), await anext(events)]
    assert ToolsListChanged() in heard
    assert ResourceUpdated("test://x") in heard


@against("TypeScript v1 sessions, auto", "TypeScript v2 sessions, auto")
async def test_a_stream_that_the_server_has_closed_is_resumed(connect: Connect) -> None:
    """2025-11-25 `basic/transports`, Sending Messages, 6: the answer comes on a GET with `Last-Event-ID`."""
    async with connect() as client:
        assert (await client.call_tool("poll")).text == "polled"
        assert (await client.call_tool("events", {"until": "replayed"})).text == "replayed"


# --- the official Python server over stdio ----------------------------------------------------------------------


@against(*STDIO)
async def test_an_extension_and_its_method(connect: Connect) -> None:
    async with connect(capabilities={"extensions": {"com.example/doubling": {}}}) as client:
        # That server declares its extensions in the modern era only, but takes a client's in both.
        modern = client.protocol_version == NEGOTIATED["auto"]
        assert client.extensions == ({"com.example/doubling": {"limit": 100}} if modern else {})
        assert (await client.request("com.example/double", {"number": 21}))["doubled"] == 42
    async with connect() as client:
        with pytest.raises(McpError):
            await client.request("com.example/double", {"number": 21})


@against(*STDIO)
async def test_the_death_of_the_server_ends_the_call_not_the_block(connect: Connect) -> None:
    """A server that is killed settles the call in flight with a `TransportError`; the block goes on to its end."""
    before = set(children())
    reached_the_end = False
    async with connect() as client:
        (process,) = set(children()) - before
        with pytest.raises(TransportError):
            await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: process.kill())
        reached_the_end = True
    assert reached_the_end


# --- the official Python server below 2, over WebSocket ---------------------------------------------------------


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
async def test_a_server_that_ends_or_is_killed_ends_the_call_not_the_block(
    python_v1: Path, environment: dict[str, str], end: signal.Signals
) -> None:
    async with listening(official_v1(python_v1), environment) as (url, process):
        async with Client(url) as client:
            with pytest.raises(TransportError):
                await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: process.send_signal(end))
            with pytest.raises(TransportError):
                await client.call_tool("add", {"a": 1, "b": 2})
        await process.wait()


async def test_a_client_that_leaves_ends_its_call(v1_url: str) -> None:
    begun = trio.Event()
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                async with Client(v1_url) as client:
                    await client.call_tool("slow", {"seconds": 3600}, on_progress=lambda _: begun.set())

            nursery.start_soon(call)
            await begun.wait()
            nursery.cancel_scope.cancel()
        async with Client(v1_url) as client:
            assert "slow cancelled" in (await client.call_tool("events", {"until": "slow cancelled"})).text


@pytest.mark.parametrize("size", [400_000, 1_500_000])
async def test_large_messages_go_through(v1_url: str, size: int) -> None:
    """The answer has the text twice."""
    async with Client(v1_url) as client:
        assert len((await client.call_tool("echo", {"text": "x" * size})).text) == size


# --- the official Python server over HTTP -----------------------------------------------------------------------


async def test_the_transport_of_2024(environment: dict[str, str]) -> None:
    async with official("sse", environment) as (url, _):
        for target in (HttpServerParameters(url, kind="sse"), url):
            async with Client(target) as client:
                assert client.protocol_version == NEGOTIATED["legacy"]
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
                with pytest.raises(RequestTimeout):
                    await client.call_tool("slow", {"seconds": 60}, timeout=0.2)
                assert (await client.call_tool("echo", {"text": "é\u2028"})).text == "é\u2028"


async def test_what_the_official_server_below_2_prints_about_the_probe_is_not_shown(
    python_v1: Path, environment: dict[str, str]
) -> None:
    """Version 1.30 prints a hundred lines about a method that it does not know. In a fixed mode there is no probe, so
    they are the server's answer to what was asked, and are shown."""
    program = 'from mcp.server.fastmcp import FastMCP; FastMCP("old").run()'
    lines: list[str] = []
    target = StdioServerParameters(str(python_v1), ["-c", program], env=environment, stderr=lines.append)
    with trio.fail_after(DEADLINE):
        async with Client(target) as client:
            assert client.protocol_version == "2025-11-25"
        assert lines == []
        with pytest.raises(McpError):
            async with Client(target, mode="2026-07-28"):
                pass
        assert any("server/discover" in line for line in lines)
