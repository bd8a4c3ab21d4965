"""Notifications on an idle stream are written at once, without waking the stream's task (`Extras.send_nowait`)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from tests.http_peer import http_request as http, request
from tests.server.http.in_memory import over_memory
from trio_mcp import Server
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.sse import COMMENT

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
KEEP_ALIVE = 10.0
EVENT = re.compile(rb"event: message\ndata: ([^\n]*)\n\n")


def uri(number: int) -> str:
    return f"doc://{number}/{'x' * 4000}"


@asynccontextmanager
async def listener(server: Server, count: int) -> AsyncIterator[trio.SocketStream]:
    """Listen to the first resources, on a connection."""
    params = {"notifications": {"resourceSubscriptions": [uri(number) for number in range(count)]}, "_meta": META}
    fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "subscriptions/listen"}
    async with (
        server.asgi_app(keep_alive=KEEP_ALIVE) as app,
        over_memory(app, QuietConfig()) as (stream, _, _),
    ):
        await stream.send_all(http("POST", request("subscriptions/listen", params, 1), **fields))
        got = b""
        while not EVENT.search(got) or not got.endswith(b"\r\n"):
            got += await stream.receive_some()
        yield stream


def make() -> Server:
    server = Server("test")
    server.add_resource("doc://{number}/{rest}", lambda number, rest: number, name="doc")
    return server


def without_chunks(data: bytes) -> bytes:
    """Return the content of chunks (RFC 9112, section 7.1)."""
    content = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        assert data[length : length + 2] == b"\r\n"
        content, data = content + data[:length], data[length + 2 :]
    return content


async def test_what_the_system_does_not_take_at_once_follows_before_anything_else() -> None:
    """A client that reads late gets each event whole and once, and hears of the last change of each resource."""
    server, count = make(), 300
    async with listener(server, count) as stream:
        for _ in range(3):
            for number in range(count):
                server.notify_resource_updated(uri(number))
            await trio.testing.wait_all_tasks_blocked()
        got = b""
        with trio.move_on_after(5) as silence:
            while True:
                got += await stream.receive_some(10_000)
                silence.deadline = trio.current_time() + 0.5
    events = [json.loads(text) for text in EVENT.findall(without_chunks(got))]
    heard = [event["params"]["uri"] for event in events]
    assert set(heard) == {uri(number) for number in range(count)}
    # More than the system's buffers take had to wait, and what waits is said once.
    assert count < len(heard) < 3 * count
    # A comment follows each event of which the system took only a part.
    rest = EVENT.sub(b"", without_chunks(got))
    assert rest
    assert rest.replace(COMMENT, b"") == b""


async def test_a_comment_follows_silence_and_not_the_last_wait(autojump_clock: trio.testing.MockClock) -> None:
    """`keep_alive`: seconds of silence after which a stream gets a comment."""
    server = make()
    async with listener(server, 1) as stream:
        for _ in range(5):
            await trio.sleep(KEEP_ALIVE * 0.9)
            server.notify_resource_updated(uri(0))
            assert COMMENT not in await stream.receive_some()
        began = trio.current_time()
        assert COMMENT in await stream.receive_some()
        assert trio.current_time() - began == KEEP_ALIVE
