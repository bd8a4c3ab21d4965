"""Our client over HTTP against servers on the TypeScript SDK, both of its versions and both eras."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from trio_mcp import Answers, Client, McpError, ResourceUpdated, ToolsListChanged, types
from trio_mcp.http.client.origins import ORIGINS

from . import node_peers
from .support import DEADLINE, NEGOTIATED, PEERS

pytestmark = pytest.mark.interop

SERVERS = {
    "v1, sessions": ("v1", "sessions", "auto"),
    "v1, JSON": ("v1", "json", "auto"),
    "v1, stateless": ("v1", "stateless", "legacy"),
    "v2, sessions": ("v2", "sessions", "auto"),
    "v2, JSON": ("v2", "json", "legacy"),
    "v2, both eras, legacy": ("v2", "both", "legacy"),
    "v2, both eras, modern": ("v2", "both", "auto"),
}
"""Which version of the SDK, how it serves (see peers/ts_http_server.mjs), and how our client begins."""

KEEPING = ["v1, sessions", "v2, sessions", "v2, both eras, modern"]
"""Those that a client can cancel a call of, ask to be told of changes, and be asked by."""


def revision(server: str) -> str:
    """Return the newest revision of the era that the two have in common."""
    return NEGOTIATED["auto" if server == "v2, both eras, modern" else "legacy"]


@contextlib.asynccontextmanager
async def connected(
    server: str, npm: node_peers.NodePeers, environment: dict[str, str], **options: Any
) -> AsyncIterator[Client]:
    version, kind, mode = SERVERS[server]
    ORIGINS.clear()
    command = [str(npm.node), str(PEERS / "ts_http_server.mjs"), str(npm.modules), version, kind]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        with trio.fail_after(DEADLINE):
            line = b""
            while not line.endswith(b"\n"):
                chunk = await process.stdout.receive_some()
                assert chunk, "the server has not started"
                line += chunk
            async with Client(line.decode().strip(), mode=mode, **options) as client:
                yield client
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stdout.aclose()


@pytest.mark.parametrize("server", SERVERS)
async def test_negotiation_results_and_errors(
    server: str, npm: node_peers.NodePeers, environment: dict[str, str]
) -> None:
    """However the server answers; many calls at once are told apart by their ids."""
    tricky = 'línea\u2028quote " newline \n tab \t \U0001f600 ' + "x" * 100_000
    sums: dict[int, Any] = {}
    async with connected(server, npm, environment) as client:
        assert client.protocol_version == revision(server)
        assert client.instructions == "Call any tool."
        assert {"add", "echo", "ask"} < {tool.name for tool in (await client.list_tools()).tools}
        assert (await client.call_tool("add", {"a": 2**40, "b": -1})).data == 2**40 - 1
        assert (await client.call_tool("echo", {"text": tricky})).text == tricky
        (content,) = (await client.read_resource("peer://a")).contents
        assert content == types.TextResourceContents(uri=content.uri, text="a")
        (message,) = (await client.get_prompt("greeting", {"name": "Ada"})).messages
        assert message.content == types.TextContent(text="Greet Ada.")
        failed = await client.call_tool("fail")
        assert (failed.is_error, failed.text) == (True, "this tool always fails")
        with pytest.raises(McpError) as caught:
            await client.request("no/such/method", {})
        assert caught.value.code == -32601

        async def add(number: int) -> None:
            sums[number] = (await client.call_tool("add", {"a": number, "b": 1})).data

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(add, number)
    assert sums == {number: number + 1 for number in range(50)}


@pytest.mark.parametrize("server", KEEPING)
async def test_progress_cancellation_and_questions(
    server: str, npm: node_peers.NodePeers, environment: dict[str, str]
) -> None:
    """A cancellation ends the handler alone; a question is a request of the server's, or an input round."""
    seen: list[float] = []
    begun = trio.Event()
    asked: list[str] = []

    async def answer(params: types.ElicitRequestFormParams) -> dict[str, str]:
        asked.append(params.message)
        return {"colour": "blue"}

    async with connected(server, npm, environment, answers=Answers(elicitation=answer)) as client:
        result = await client.call_tool("progress", {"n": 5}, on_progress=lambda note: seen.append(note.progress))
        assert (result.text, seen) == ("5 steps", [1, 2, 3, 4, 5])
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await client.call_tool("slow", on_progress=lambda _: begun.set())

            nursery.start_soon(call)
            await begun.wait()
            nursery.cancel_scope.cancel()
        assert (await client.call_tool("events", {"until": "slow cancelled"})).text == "slow cancelled"
        assert (await client.call_tool("ask")).text == "painted blue"
    assert asked == ["Which colour?"]


@pytest.mark.parametrize("server", KEEPING)
async def test_changes_are_heard(server: str, npm: node_peers.NodePeers, environment: dict[str, str]) -> None:
    """On the stream of a GET, or of `subscriptions/listen`."""
    async with (
        connected(server, npm, environment) as client,
        client.listen(tools_list_changed=True, resources=["test://x"]) as events,
    ):
        await client.call_tool("announce", {"uri": "test://x"})
        heard = [await anext(events), await anext(events)]
    assert ToolsListChanged() in heard
    assert ResourceUpdated("test://x") in heard


@pytest.mark.parametrize("server", ["v1, sessions", "v2, sessions"])
async def test_a_stream_that_the_server_has_closed_is_resumed(
    server: str, npm: node_peers.NodePeers, environment: dict[str, str]
) -> None:
    """2025-11-25 `basic/transports`, Sending Messages, 6: the answer comes on a GET with `Last-Event-ID`."""
    async with connected(server, npm, environment) as client:
        assert (await client.call_tool("poll")).text == "polled"
        assert (await client.call_tool("events", {"until": "replayed"})).text == "replayed"
