"""A hostile client harms only its own connection, and leaves no traceback in the log."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
from pydantic_core import to_json

from tests.http_peer import Events, Raw, request
from tests.server.http.harness import Made, served
from tests.waiting import eventually
from trio_mcp.http.runner.wire import MAX_RECEIVED, DeadlineStream
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.types import meta

pytestmark = pytest.mark.legacy

MODERN = "2026-07-28"
BODY = to_json(request("ping", None, 1))
HEAD = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n"
    b"content-type: application/json\r\nmcp-session-id: %s\r\ncontent-length: %d\r\n"
)


@contextlib.asynccontextmanager
async def witness(
    caplog: pytest.LogCaptureFixture, options: HttpOptions | None = None
) -> AsyncIterator[tuple[Made, Raw, tuple[str, int]]]:
    """Serve, with a session whose stream is open throughout; check at the end that the session still works."""
    caplog.set_level(logging.INFO)
    async with served(options) as (made, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with raw.listen() as listening:
            url = http.base_url
            yield made, raw, (url.host, url.port or 0)
            made.server.remove_tool("fails")
            assert (await Events(listening).message())["method"] == "notifications/tools/list_changed"
        assert (await raw.post("ping", id=99)).json()["result"] == {}
    assert not [record for record in caplog.records if record.exc_info]


async def said(address: tuple[str, int], data: bytes) -> bytes:
    """Send some bytes and no more; return what comes back until the server closes."""
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(data)
        got = b""
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_eof()
            async for chunk in stream:
                got += chunk
        return got


@pytest.mark.parametrize(
    "data",
    [
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\n"
        b"http2-settings: %s\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"9" * 6000 + b"\r\n\r\n",
        b"POST /mcp HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /mcp HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"x" * 200_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000,
    ],
    ids=["h2c", "h2", "h2 garbage", "length", "chunks", "no host", "path", "tls", "no line", "many headers"],
)
async def test_bytes_that_are_not_a_request(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with witness(caplog) as (_, _, address):
        with contextlib.suppress(trio.BrokenResourceError):
            await said(address, data)


async def test_a_closed_connection_does_not_affect_the_next_one(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system gives its descriptor to the next connection at once."""
    close, next_one, peer = trio.SocketStream.aclose, *socket.socketpair()
    reused: set[int] = set()
    port = 0

    async def close_and_reuse(self: trio.SocketStream) -> None:
        descriptor = self.socket.fileno()
        is_of_server = descriptor >= 0 and self.socket.getsockname()[1] == port
        await close(self)
        if is_of_server:
            reused.add(os.dup2(next_one.fileno(), descriptor))

    with next_one, peer:
        peer.send(b"a secret")
        async with witness(caplog) as (_, _, address):
            with monkeypatch.context() as patched:
                port = address[1]
                patched.setattr(trio.SocketStream, "aclose", close_and_reuse)
                bad = b"GET /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: +1\r\n\r\n"
                assert (await said(address, bad)).startswith(b"HTTP/1.1 400")
                await trio.testing.wait_all_tasks_blocked()
            assert len(reused) == 1
            os.close(reused.pop())
        assert next_one.recv(100, socket.MSG_DONTWAIT) == b"a secret"


async def test_a_disconnect_at_any_byte(caplog: pytest.LogCaptureFixture) -> None:
    async with witness(caplog) as (_, raw, address):
        other = Raw(raw.http)
        await other.initialize()
        assert other.session is not None
        whole = HEAD % (other.session.encode(), len(BODY)) + b"\r\n" + BODY
        for end in range(1, len(whole) + 1):
            async with await trio.open_tcp_stream(*address) as stream:
                if end % 2:  # a reset, half of the time
                    linger = b"\x01\0\0\0\0\0\0\0"
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                await stream.send_all(whole[:end])
        assert (await other.post("ping", id=2)).status_code == 200


@pytest.mark.parametrize("upgrade", [b"websocket", b"h2c"])
async def test_an_upgrade_is_ignored(upgrade: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """RFC 9110, 7.8: the request is answered as if it did not ask for one."""
    async with witness(caplog) as (_, _, address):
        fields = b"connection: upgrade\r\nsec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        head = b"GET /health HTTP/1.1\r\nhost: localhost\r\nupgrade: %s\r\n%s\r\n" % (upgrade, fields)
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(head)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 200")


async def test_pipelined_requests_are_answered_in_order(caplog: pytest.LogCaptureFixture) -> None:
    """RFC 9112, 9.3.2. They are more than is read ahead."""
    async with witness(caplog) as (_, raw, address):
        assert raw.session is not None
        pings = [to_json(request("ping", None, number)) for number in range(100, 900)]
        data = b"".join(HEAD % (raw.session.encode(), len(ping)) + b"\r\n" + ping for ping in pings)
        assert len(data) > 2 * MAX_RECEIVED
        async with await trio.open_tcp_stream(*address) as stream, trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, data)
            got = b""
            while got.count(b"jsonrpc") < len(pings):
                got += await stream.receive_some()
        places = [got.index(b'"id":%d' % number) for number in range(100, 900)]
        assert places == sorted(places)


@pytest.mark.parametrize("more", [b"\r\n", b"x" * 200_000])
async def test_the_disconnect_of_a_client_that_has_sent_more_is_noticed(
    more: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if it keeps sending behind a request under way: the handler is cancelled."""
    async with witness(caplog, HttpOptions(write_timeout=0.2)) as (made, _, address):
        params = {
            "name": "wait",
            "arguments": {},
            "_meta": {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_CAPABILITIES: {}},
        }
        body = to_json(request("tools/call", params, 1))
        fields = b"mcp-protocol-version: %s\r\nmcp-method: tools/call\r\nmcp-name: wait\r\n" % MODERN.encode()
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(HEAD % (b"none", len(body)) + fields + b"\r\n" + body + more)
            await made.started.wait()
            if len(more) > 2:
                await made.cancelled.wait()
        await made.cancelled.wait()


async def test_an_early_413_does_not_read_on_and_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    async with witness(caplog, HttpOptions(max_message_size=1000)) as (_, raw, address):
        for length in (b"content-length: 100000000", b"transfer-encoding: chunked"):
            head = (HEAD % (b"x", 0)).replace(b"content-length: 0", length)
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(head + b"\r\n" + b"2000\r\n" + b"x" * 0x2000 + b"\r\n")
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 413")
        assert (await raw.post("ping", id=3)).status_code == 200


async def test_a_client_that_does_not_read_is_dropped_and_its_handler_goes_on_or_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It waits for the client to read until the timeout; then what it sends is dropped."""
    async with witness(caplog, HttpOptions(write_timeout=0.2)) as (made, raw, address):
        assert raw.session is not None
        params = {"name": "count", "arguments": {"to": 20_000}, "_meta": {"progressToken": "x" * 1000}}
        body = to_json(request("tools/call", params, 5))
        async with await trio.open_tcp_stream(*address) as stream:
            await stream.send_all(HEAD % (raw.session.encode(), len(body)) + b"\r\n" + body)
            for running in (1, 0):
                await eventually(lambda: made.server.statistics().running == running)  # noqa: B023
            assert made.server.statistics().http[0].streams == 0


async def test_a_fault_inside_the_http_server_ends_one_connection(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with witness(caplog) as (_, _, address):
        with monkeypatch.context() as patched:

            async def fail(self: DeadlineStream) -> None:
                raise RuntimeError("a bug")

            patched.setattr(DeadlineStream, "receive", fail)
            assert await said(address, b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n") == b""
    assert "an HTTP connection failed: RuntimeError: a bug" in caplog.text


async def test_connections_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async with witness(caplog, HttpOptions(max_connections=4)) as (_, _, address), contextlib.AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(await trio.open_tcp_stream(*address))
        async with await trio.open_tcp_stream(*address) as refused:
            assert (await refused.receive_some()).startswith(b"HTTP/1.1 503")
        await stack.aclose()
