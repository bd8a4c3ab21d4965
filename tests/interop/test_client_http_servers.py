"""Our client over HTTP against third-party servers, in both eras."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from trio_mcp import (
    Client,
    HttpServerParameters,
    McpError,
    RequestTimeout,
    ResourceUpdated,
    ToolsListChanged,
    TransportError,
    types,
)
from trio_mcp.http.client.origins import ORIGINS

from . import node_peers
from .support import DEADLINE, LOG_OPT_IN, NEGOTIATED, TOOLS, python_peer

pytestmark = pytest.mark.interop

MODES = ["legacy", "auto"]
KINDS = ["events", "json", "stateless", "resumable"]


@contextlib.asynccontextmanager
async def started(kind: str, environment: dict[str, str]) -> AsyncIterator[tuple[str, trio.Process]]:
    """Yield the official server over HTTP: its URL and its process."""
    ORIGINS.clear()
    launch = python_peer("official_http_server", environment)
    command = [launch.command, *launch.args, kind]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=launch.env)
    assert process.stdout is not None
    try:
        line = b""
        while not line.endswith(b"\n"):
            line += await process.stdout.receive_some()
        yield line.decode().strip(), process
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


@contextlib.asynccontextmanager
async def official(kind: str, environment: dict[str, str]) -> AsyncIterator[str]:
    """Yield the URL of the official server over HTTP."""
    with trio.fail_after(DEADLINE):
        async with started(kind, environment) as (url, _):
            yield url


def text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
async def test_results_arrive_whole(kind: str, mode: str, environment: dict[str, str]) -> None:
    """Negotiation, tools, structured content and any text, whatever form the server's answers have."""
    tricky = 'línea\u2028quote " newline \n tab \t \U0001f600 ' + "x" * 100_000
    async with official(kind, environment) as url, Client(url, mode=mode) as client:
        assert client.protocol_version == NEGOTIATED[mode]
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS["control"]
        assert (await client.call_tool("add", {"a": 2**40, "b": -1})).data == 2**40 - 1
        assert text(await client.call_tool("echo", {"text": tricky})) == tricky
        assert (await client.call_tool("weather", {"city": "Tromsø"})).data == {"city": "Tromsø", "celsius": 21.5}
        assert (await client.call_tool("fail")).is_error
        with pytest.raises(McpError):
            await client.request("no/such/method", {})


@pytest.mark.parametrize("kind", ["events", "resumable"])
@pytest.mark.parametrize("mode", MODES)
async def test_progress_and_log_messages_come_before_the_answer(
    kind: str, mode: str, environment: dict[str, str]
) -> None:
    seen: list[float] = []
    logged: list[Any] = []
    async with (
        official(kind, environment) as url,
        Client(url, mode=mode, on_log=lambda message: logged.append(message.data)) as client,
    ):
        result = await client.call_tool("progress", {"n": 5}, on_progress=lambda note: seen.append(note.progress))
        assert text(result) == "5 steps"
        meta = LOG_OPT_IN if mode == "auto" else {}
        arguments = {"words": ["a", "b"]}
        await client.request("tools/call", {"name": "chatty", "arguments": arguments, "_meta": meta})
        while len(logged) < 2:
            await trio.lowlevel.checkpoint()
    assert seen == [1, 2, 3, 4, 5]
    assert logged == ["a", "b"]


@pytest.mark.parametrize("kind", ["events", "resumable"])
@pytest.mark.parametrize("mode", MODES)
async def test_a_cancellation_reaches_the_tool(kind: str, mode: str, environment: dict[str, str]) -> None:
    """Modern: the stream is closed; legacy: the notice is sent. The next call does not wait for either."""
    started = trio.Event()

    async with official(kind, environment) as url, Client(url, mode=mode) as client, trio.open_nursery() as nursery:

        async def call() -> None:
            await client.call_tool("slow", {"seconds": 60}, on_progress=lambda _: started.set())

        nursery.start_soon(call)
        await started.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(DEADLINE):
            assert (await client.call_tool("events", {"until": "slow cancelled"})).data == ["slow cancelled"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_timeout_is_one(mode: str, environment: dict[str, str]) -> None:
    async with official("events", environment) as url, Client(url, mode=mode) as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("slow", {"seconds": 60}, timeout=0.2)
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


@pytest.mark.parametrize("mode", MODES)
async def test_many_calls_at_once(mode: str, environment: dict[str, str]) -> None:
    sums: dict[int, Any] = {}

    async def add(client: Client, number: int) -> None:
        sums[number] = (await client.call_tool("add", {"a": number, "b": 1})).data

    async with (
        official("events", environment) as url,
        Client(url, mode=mode) as client,
        trio.open_nursery() as nursery,
    ):
        for number in range(150):
            nursery.start_soon(add, client, number)
    assert sums == {number: number + 1 for number in range(150)}


async def test_changes_are_heard_on_the_stream_of_a_subscription(environment: dict[str, str]) -> None:
    async with (
        official("events", environment) as url,
        Client(url) as client,
        client.listen(tools_list_changed=True, resources=["test://x"]) as events,
    ):
        await client.call_tool("announce", {"uri": "test://x"})
        heard = [await anext(events), await anext(events)]
    assert ToolsListChanged() in heard
    assert ResourceUpdated("test://x") in heard


async def test_the_transport_of_2024(environment: dict[str, str]) -> None:
    """HTTP+SSE, asked for and found out."""
    async with official("sse", environment) as url:
        for target in (HttpServerParameters(url, kind="sse"), url):
            async with Client(target) as client:
                assert client.protocol_version == "2025-11-25"
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
                with pytest.raises(RequestTimeout):
                    await client.call_tool("slow", {"seconds": 60}, timeout=0.2)
                assert text(await client.call_tool("echo", {"text": "é\u2028"})) == "é\u2028"


async def test_a_server_that_is_killed_fails_what_is_under_way(environment: dict[str, str]) -> None:
    begun = trio.Event()

    async def call(client: Client) -> None:
        with pytest.raises(TransportError):
            await client.call_tool("slow", {"seconds": 60}, on_progress=lambda _: begun.set())

    with trio.fail_after(DEADLINE):
        async with started("events", environment) as (url, process), Client(url) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, client)
                await begun.wait()
                process.kill()
            with pytest.raises(TransportError, match="failed: "):
                await client.call_tool("add", {"a": 1, "b": 2})


@contextlib.asynccontextmanager
async def everything(npm: node_peers.NodePeers, environment: dict[str, str], kind: str) -> AsyncIterator[str]:
    """server-everything over HTTP, when it takes connections."""
    ORIGINS.clear()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await trio.lowlevel.open_process(
        [str(npm.node), str(npm.server("everything")), kind],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**environment, "PORT": str(port)},
    )
    try:
        with trio.fail_after(DEADLINE):
            while True:
                try:
                    await (await trio.open_tcp_stream("localhost", port)).aclose()
                    break
                except OSError:
                    await trio.sleep(0.05)
            yield f"http://localhost:{port}/{'sse' if kind == 'sse' else 'mcp'}"
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


@pytest.mark.parametrize("kind", ["streamableHttp", "sse"])
async def test_server_everything(kind: str, npm: node_peers.NodePeers, environment: dict[str, str]) -> None:
    """The TypeScript SDK as a server: sessions, resumable streams, and HTTP+SSE."""
    progress: list[float] = []
    async with everything(npm, environment, kind) as url, Client(url) as client:
        assert client.protocol_version == "2025-11-25"
        assert text(await client.call_tool("echo", {"message": "grüße"})) == "Echo: grüße"
        assert len([tool async for tool in client.iter_tools()]) > 5
        arguments = {"duration": 0.4, "steps": 2}
        await client.call_tool(
            "trigger-long-running-operation", arguments, on_progress=lambda note: progress.append(note.progress)
        )
        with pytest.raises(RequestTimeout):
            await client.call_tool("trigger-long-running-operation", {"duration": 60, "steps": 2}, timeout=0.3)
        assert text(await client.call_tool("echo", {"message": "again"})) == "Echo: again"
    assert progress == [1, 2]


@pytest.mark.parametrize("kind", ["streamableHttp", "sse"])
async def test_updates_of_server_everything(kind: str, npm: node_peers.NodePeers, environment: dict[str, str]) -> None:
    """Messages that belong to no call come on the server's own stream."""
    uri = "demo://resource/dynamic/text/2"
    async with (
        everything(npm, environment, kind) as url,
        Client(url) as client,
        client.listen(tools_list_changed=True, resources=[uri]) as events,
    ):
        await client.call_tool("toggle-subscriber-updates", {})
        while (event := await anext(events)) != ResourceUpdated(uri):
            assert event == ToolsListChanged()
