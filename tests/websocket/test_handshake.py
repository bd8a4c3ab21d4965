"""The opening of a WebSocket: what is refused, by whom, and what the client makes of it."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.server.http.certificate import over_tls
from tests.websocket.ways import Raw, Tools, every_way, on_our_runners, serving
from trio_mcp import HttpError, TransportError
from trio_mcp.low_level import websocket_client

OTHERS = "http://evil.example"


@every_way
@pytest.mark.parametrize(
    ("settings", "fields", "admitted"),
    [
        ({}, {}, True),
        ({}, {"Origin": "http://localhost:5000"}, True),
        ({}, {"Origin": OTHERS}, False),
        ({}, {"Origin": "null"}, False),
        ({}, {"Host": "evil.example"}, False),
        ({}, {"Host": "evil.example", "Origin": OTHERS}, False),
        ({"allowed_origins": [OTHERS]}, {"Origin": OTHERS}, True),
        ({"allowed_hosts": ["evil.example"]}, {"Host": "evil.example"}, True),
    ],
)
async def test_hosts_and_origins_are_admitted_as_over_http(
    way: str, settings: dict[str, Any], fields: dict[str, str], admitted: bool
) -> None:
    async with serving(Tools().server, way, **settings) as url:
        stream, head = await Raw.connect(url, **fields)
        await stream.aclose()
    assert head.split()[1] == (b"101" if admitted else b"403")


@on_our_runners
@pytest.mark.parametrize(
    ("status", "fields", "said"),
    [
        (400, {"Sec-WebSocket-Protocol": ""}, b"subprotocol 'mcp'"),
        (400, {"Sec-WebSocket-Protocol": "MCP, mcp2"}, b"subprotocol 'mcp'"),
        (400, {"Sec-WebSocket-Key": ""}, b"16 bytes"),
        (400, {"Sec-WebSocket-Key": "AAAA"}, b"16 bytes"),
        (400, {"Sec-WebSocket-Key": "é"}, b"16 bytes"),
        (400, {"Content-Length": "3"}, b"not have a body"),
        (426, {"Sec-WebSocket-Version": "8"}, b"sec-websocket-version: 13"),
        (426, {"Sec-WebSocket-Version": ""}, b"sec-websocket-version: 13"),
        (426, {"Upgrade": "", "Connection": "close"}, b"which any proxy must pass on"),
    ],
)
async def test_a_handshake_that_is_not_of_mcp_is_refused(
    way: str, status: int, fields: dict[str, str], said: bytes
) -> None:
    async with serving(Tools().server, way) as url:
        stream, got = await Raw.connect(url, **fields)
        with trio.move_on_after(1):
            while b'"error"' not in got and (data := await stream.receive_some()):
                got += data
        await stream.aclose()
    assert (int(got.split()[1]), said in got.lower().replace(b"mcp", b"mcp")) == (status, True)


@every_way
async def test_a_path_without_a_websocket_is_refused(way: str) -> None:
    async with serving(Tools().server, way) as url:
        with pytest.raises(HttpError) as raised:
            async with websocket_client(url + "/other"):
                pass
    assert raised.value.status in (404, 403)


async def test_an_application_without_a_websocket_refuses_every_one() -> None:
    async with serving(Tools().server, "mounted", websocket_path=None) as url:
        with pytest.raises(HttpError, match="403"):
            async with websocket_client(url):
                pass


@on_our_runners
async def test_connections_beyond_the_limit_are_refused_before_anything_is_read(way: str) -> None:
    async with serving(Tools().server, way, max_connections=1) as url, websocket_client(url):
        with pytest.raises(HttpError) as raised:
            async with websocket_client(url):
                pass
    assert (raised.value.status, raised.value.trouble) == (503, "busy")


@every_way
async def test_websockets_beyond_the_limit_are_told_to_try_again_later(way: str) -> None:
    async with serving(Tools().server, way, max_sessions=1) as url, Raw.open(url) as first:
        assert await first.add(1) == 2
        async with Raw.open(url) as second:
            assert await second.closed() == (1013, "too many WebSockets; try again later")
        assert await first.add(2) == 3


@on_our_runners
@pytest.mark.parametrize("sent", [b"", b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"])
async def test_a_handshake_that_takes_too_long_ends_the_connection(way: str, sent: bytes) -> None:
    async with serving(Tools().server, way, head_timeout=0.1) as url:
        stream = await trio.open_tcp_stream("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        async with stream:
            if sent:
                await stream.send_all(sent)
            with trio.fail_after(5):
                assert b"101" not in await stream.receive_some()


# --- what the client makes of it ---------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def answering(answer: Callable[[trio.SocketStream], Awaitable[object]]) -> AsyncIterator[str]:
    """Serve connections with a function, which gets each after the head of the handshake."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):
                got = b""
                while b"\r\n\r\n" not in got and (data := await stream.receive_some()):
                    got += data
                await answer(stream)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, serve, 0)
        yield f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp?key=secret"
        nursery.cancel_scope.cancel()


def saying(data: bytes, *, then_wait: bool = False) -> Callable[[trio.SocketStream], Awaitable[None]]:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.send_all(data)
        if then_wait:
            await trio.sleep_forever()

    return answer


OPEN = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "respond to the WebSocket handshake: it closed the connection; does its URL begin with wss://"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "is not a WebSocket of an MCP server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "wss://"),
        (OPEN + b"Sec-WebSocket-Accept: wrong\r\n\r\n", "Bad accept token"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "Upgrade: websocket"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "got status 200 OK: ok"),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "the server wants credentials"),
        (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "status 302 Found"),
        (b"HTTP/1.1 799 \r\nContent-Length: 0\r\n\r\n", "status 799"),
        (b"HTTP/1.1 500 No\r\n\r\n" + b"x" * 200_000, "status 500 Internal Server Error: xxx"),
        (b"HTTP/1.0 502 Bad Gateway\r\n\r\nno", "status 502 Bad Gateway: no"),
        (b"x" * 200_000, "is not a WebSocket"),
    ],
)
async def test_a_server_of_another_kind_is_one_clear_error(answer: bytes, said: str) -> None:
    async with answering(saying(answer)) as url:
        with trio.fail_after(20), pytest.raises(TransportError) as raised:
            async with websocket_client(url):
                pass
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("protocol", ["", "Sec-WebSocket-Protocol: other\r\n"])
async def test_a_server_without_the_subprotocol_is_one_clear_error(protocol: str) -> None:
    async with trio.open_nursery() as nursery:

        async def handler(request: Any) -> None:
            await request.accept(extra_headers=[(b"Sec-WebSocket-Protocol", b"other")] if protocol else [])

        from trio_websocket import serve_websocket

        server = await nursery.start(
            lambda task_status: serve_websocket(handler, "127.0.0.1", 0, None, task_status=task_status)
        )
        with pytest.raises(TransportError, match="subprotocol"):
            async with websocket_client(f"ws://127.0.0.1:{server.port}"):
                pass
        nursery.cancel_scope.cancel()


async def test_a_server_that_does_not_answer_is_given_up(autojump_clock: MockClock) -> None:
    async with answering(saying(b"HTTP/1.1 101", then_wait=True)) as url:
        with pytest.raises(TransportError, match="did not respond within 10 seconds"):
            async with websocket_client(url):
                pass
    assert 10 <= trio.current_time() < 11


async def test_a_host_that_does_not_answer_is_given_up(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(host: str, port: int) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", never)
    with pytest.raises(TransportError, match="did not respond within 10 seconds"):
        async with websocket_client("ws://127.0.0.1:1/mcp"):
            pass


async def test_where_there_is_no_server(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=r"can't connect to ws://127\.0\.0\.1:1/mcp: Connection refused"):
        async with websocket_client("ws://127.0.0.1:1/mcp"):
            pass
    (tmp_path / "file").write_text("")
    for name in ("file", "nothing"):
        with pytest.raises(TransportError, match=name):
            async with websocket_client("ws://localhost/mcp", unix_socket=tmp_path / name):
                pass


async def test_tls_on_one_side_alone_is_one_clear_error(tmp_path: Path) -> None:
    config, trusted = over_tls(tmp_path)
    async with serving(Tools().server, config=config) as url:
        with pytest.raises(TransportError, match=r"TLS handshake .* failed"):  # whose certificate is not trusted
            async with websocket_client(url):
                pass
        with pytest.raises(TransportError, match="does its URL begin with wss://"):
            async with websocket_client(url.replace("wss", "ws")):
                pass
    async with serving(Tools().server) as url:
        with pytest.raises(TransportError, match=r"TLS handshake .* failed"):
            async with websocket_client(url.replace("ws", "wss"), ssl_context=trusted):
                pass


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (TypeError, {"url": 1}),
        (ValueError, {"url": "http://localhost"}),
        (ValueError, {"url": "ws://"}),
        (ValueError, {"url": "ws://user@localhost"}),
        (ValueError, {"url": f"ws://{'ä' * 70}.example"}),
        (TypeError, {"headers": "x"}),
        (ValueError, {"headers": {"a": "b\r\nc: d"}}),
        (ValueError, {"headers": {"Sec-WebSocket-Key": "x"}}),
        (ValueError, {"headers": {"upgrade": "h2c"}}),
        (TypeError, {"ssl_context": True}),
        (ValueError, {"ssl_context": ssl.create_default_context()}),
        (TypeError, {"unix_socket": 1}),
        (ValueError, {"max_message_size": 0}),
        (ValueError, {"ping_interval": 0}),
        (ValueError, {"ping_timeout": -1}),
    ],
)
async def test_arguments_are_checked(error: type[Exception], arguments: dict[str, Any]) -> None:
    with pytest.raises(error):
        async with websocket_client(**{"url": "ws://127.0.0.1:1", **arguments}):
            pass
