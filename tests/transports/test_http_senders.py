"""The default HTTP sender of a link: HTTP/1.1, connections kept and closed, cookies, credentials and proxies."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.http_peer import Asked, HttpPeer, event, peer, result
from tests.injection import cancel_everywhere
from tests.server.http.certificate import over_tls
from tests.tables import by_outcome
from tests.transports.http_calls import TEXT, discovered, modern, ok, streamed, works
from tests.transports.support import DEADLINE
from tests.waiting import eventually
from trio_mcp import Client, Disconnected, HttpError, HttpServerParameters, Server, TransportError
from trio_mcp._nursery import background_nursery
from trio_mcp.http.client.proxies import proxy_of
from trio_mcp.http.client.sending import cookies, http1
from trio_mcp.http.client.sending.sender import CONNECT_TIMEOUT, KEPT_ALIVE
from trio_mcp.http.client.wire import HttpWire, http_wire
from trio_mcp.low_level import streamable_http_client

# --- what servers may do ------------------------------------------------------------------------------------------


async def test_informational_responses_are_skipped() -> None:
    """RFC 9110, section 15.2: a client must be able to parse 1xx responses, even unasked."""

    async def hinted(asked: Asked) -> None:
        await asked.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await ok(asked)

    async with modern(hinted) as (server, client):
        for _ in range(3):
            await works(client)
        assert server.connections == 1


EVENTS = "200 OK\r\nContent-Type: text/event-stream\r\n"
SAID = [f"HTTP/1.0 {EVENTS}", f"HTTP/1.1 {EVENTS}", f"HTTP/1.1 {EVENTS}Connection: close\r\n"]


@pytest.mark.parametrize("head", SAID, ids=["1.0", "1.1", "close"])
async def test_a_body_may_end_with_its_connection(head: str) -> None:
    """RFC 9112, section 6.3, 8, and 9.6."""

    async def until_the_end(asked: Asked) -> None:
        await asked.raw(f"{head}\r\n".encode() + event(result(asked.id, TEXT)))
        await asked.stream.send_eof()
        await asked.gone()

    async with modern(until_the_end) as (server, client):
        await works(client)
        await works(client)
        assert server.connections == 2  # the first one was the handshake's, too


@pytest.mark.parametrize("status", [b"200", b"103"])
async def test_the_head_of_an_answer_is_bounded(status: bytes) -> None:
    async def endless(asked: Asked) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await asked.raw(b"HTTP/1.1 %b X\r\nX: " % status + b"x" * 200_000)
            await asked.gone()

    async with modern(endless) as (_, client):
        with pytest.raises(TransportError, match="failed: RemoteProtocolError"):
            await client.call_tool("t")


LENGTH = b"Content-Length: %d\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    "fields",
    [
        LENGTH + CHUNKED,
        CHUNKED + LENGTH,
        LENGTH + b"transfer-encoding:\r\n chunked\r\n",
        b"Content-Length: 1\r\n" + LENGTH,
        b"Content-Length: 1, %d\r\n",
        b"Content-Length: +%d\r\n",
        b"Content-Length : %d\r\n",
        CHUNKED + CHUNKED,
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Transfer-Encoding: chunked, gzip\r\n",
        b"Transfer-Encoding : chunked\r\n",
    ],
)
async def test_a_response_whose_end_is_in_doubt_fails_its_call_and_ends_its_connection(fields: bytes) -> None:
    """RFC 9112, section 6.3: a proxy on the way may have seen its end elsewhere."""

    async def doubtful(asked: Asked) -> None:
        if server.connections > 1:
            await ok(asked)
            return
        body = json.dumps(result(asked.id, TEXT)).encode()
        data = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if b"chunked" in fields else body
        given = fields % len(data) if b"%d" in fields else fields
        with contextlib.suppress(trio.BrokenResourceError):
            await asked.raw(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + given + b"\r\n" + data)

    async with modern(doubtful) as (server, client):
        with pytest.raises(TransportError, match=r"failed: RemoteProtocolError|unclear where"):
            await client.call_tool("t")
        await works(client)
        assert server.connections == 2


# --- connections --------------------------------------------------------------------------------------------------


async def test_a_connection_that_the_server_has_closed_costs_no_call() -> None:
    """It is closed while idle; the next request goes out on another."""

    async def then_close(asked: Asked) -> None:
        await ok(asked)
        await asked.stream.aclose()

    async with modern(then_close) as (server, client):
        for _ in range(5):
            await works(client)
            await server.until_live(0)
        assert server.connections >= 5


class Together:
    """A handler that answers its calls when a given number of them has arrived."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.everybody = trio.Event()

    async def __call__(self, asked: Asked) -> None:
        self.left -= 1
        if self.left == 0:
            self.everybody.set()
        await self.everybody.wait()
        await ok(asked)


async def call_together(server: HttpPeer, client: Client, number: int) -> None:
    """Make this many calls, which are under way at once."""
    server.handlers["tools/call"] = Together(number)
    async with trio.open_nursery() as nursery:
        for _ in range(number):
            nursery.start_soon(works, client)
    server.handlers["tools/call"] = ok


async def test_connections_that_have_been_idle_for_long_are_closed(autojump_clock: MockClock) -> None:
    """Extra connections from a busy moment are closed with the next request."""
    async with modern() as (server, client):
        await call_together(server, client, 10)
        assert server.live == 10
        await trio.sleep(KEPT_ALIVE + 0.1)
        await works(client)
        await server.until_live(1)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({}, 3.0),
        ({"Keep_Alive": "timeout=5"}, 3.5),
        ({"Keep_Alive": "max=100, Timeout = 10"}, 8.5),
        ({"Keep_Alive": "timeout=soon"}, 3.0),
        ({"Keep_Alive": "timeout=1"}, 0.0),
    ],
)
async def test_a_connection_is_not_used_when_the_server_may_be_closing_it(
    autojump_clock: MockClock, said: dict[str, str], kept: float
) -> None:
    """It is given up 1.5 s before the server's timeout, to leave time for the way there, or after 3 s without one."""

    async def says(asked: Asked) -> None:
        await asked.result(TEXT, **said)

    async with modern(says) as (server, client):
        await works(client)
        before = server.connections
        if kept:
            await trio.sleep(kept - 0.1)
            await works(client)
            assert server.connections == before
        await trio.sleep(kept + 0.1)
        await works(client)
        assert server.connections == before + 1


class Raw:
    """A server that reads a given part of each request, and then answers it or aborts the connection.

    Args:
        steps: What it does with one request after the other: ``answer``, or abort after the ``head`` or the ``whole``.
    """

    def __init__(self, *steps: str) -> None:
        self.steps = list(steps)
        self.connections = 0

    async def serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        data = bytearray()
        async with stream:
            while True:
                while b"\r\n\r\n" not in data:
                    if not (more := await stream.receive_some(65536)):
                        return
                    data += more
                step = self.steps.pop(0)
                head, _, data = data.partition(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                while step != "head" and len(data) < length:
                    data += await stream.receive_some(65536)
                if step != "answer":
                    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                del data[:length]
                await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


LARGE = b"x" * 30_000_000
"""More than the kernel buffers for a peer that does not read."""


@pytest.mark.parametrize(
    ("method", "content", "steps", "works", "connections"),
    [
        pytest.param("POST", LARGE, ["answer", "head", "answer"], True, 2, id="not all of it was taken"),
        pytest.param("POST", LARGE, ["answer", "head", "head"], False, 2, id="nor the second time"),
        pytest.param("POST", LARGE, ["head"], False, 1, id="a new connection"),
        pytest.param("POST", b"x", ["answer", "whole"], False, 1, id="it may have been carried out"),
        pytest.param("GET", b"", ["answer", "whole", "answer"], True, 2, id="idempotent"),
        pytest.param("DELETE", b"", ["answer", "whole", "answer"], True, 2, id="idempotent, too"),
    ],
)
async def test_a_request_that_was_surely_not_carried_out_is_sent_again(
    method: str, content: bytes, steps: list[str], works: bool, connections: int
) -> None:
    """RFC 9112, section 9.3.1, and RFC 9110, section 9.2.2: when a kept connection turns out to be closed."""
    server = Raw(*steps)
    with trio.fail_after(DEADLINE):
        async with background_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, server.serve, 0, host="127.0.0.1"))
            url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
            async with http_wire(url, None, None) as wire:

                async def exchange(content: bytes) -> None:
                    async with wire.exchange(method, {}, content) as response:
                        assert await response.body(0) == b""

                for _ in steps[:-1].count("answer") * [None]:
                    await exchange(b"")
                with contextlib.nullcontext() if works else pytest.raises(Disconnected):
                    await exchange(content)
    assert (server.connections, server.steps) == (connections, [])


@contextlib.asynccontextmanager
async def wire_to(serve: Callable[[trio.SocketStream], Awaitable[object]]) -> AsyncIterator[HttpWire]:
    """Serve every connection with a function, and open a wire to it."""

    async def until_reset(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await serve(stream)

    with trio.fail_after(2 * DEADLINE):
        async with background_nursery() as nursery:
            (listener,) = await nursery.start(partial(trio.serve_tcp, until_reset, 0, host="127.0.0.1"))
            async with http_wire(f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp", None, None) as wire:
                yield wire


async def status_of(wire: HttpWire, content: bytes = b"x") -> int:
    async with wire.exchange("POST", {}, content) as response:
        await response.body(100)
        return response.status


EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize("when", ["with the response", "later"])
async def test_a_connection_with_bytes_that_no_request_asked_for_is_not_used_again(when: str) -> None:
    """They would be read as the response to the next request (response smuggling)."""
    served = 0
    smuggle, smuggled = trio.Event(), trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal served
        served += 1
        await stream.receive_some(65536)
        extra = EMPTY.replace(b"200", b"500") if served == 1 else b""
        if when == "later":
            await stream.send_all(EMPTY)
            await smuggle.wait()
            await stream.send_all(extra)
            smuggled.set()
        else:
            await stream.send_all(EMPTY + extra)
        await stream.receive_some(65536)

    async with wire_to(serve) as wire:
        assert await status_of(wire) == 200
        if when == "later":
            smuggle.set()
            await smuggled.wait()
        assert await status_of(wire) == 200
        assert served == 2


async def test_a_refusal_that_comes_before_the_request_is_written_is_read() -> None:
    """RFC 9112, section 9.5: a server may respond to the head alone, and close."""

    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some(1000)
        await stream.send_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async with wire_to(serve) as wire:
        assert await status_of(wire, LARGE) == 413


async def test_a_server_that_reads_nothing_costs_a_write_timeout_and_gets_nothing_twice(
    autojump_clock: MockClock,
) -> None:
    served = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal served
        served += 1
        await stream.receive_some(65536)
        await stream.send_all(EMPTY)
        await trio.sleep_forever()

    async with wire_to(serve) as wire:
        assert await status_of(wire) == 200
        with pytest.raises(Disconnected, match="WriteTimeout") as caught:
            await status_of(wire, LARGE)
        assert caught.value.sent
        assert served == 1


async def test_what_is_cancelled_before_it_is_sent_is_not_sent() -> None:
    """It takes no wait to hand a small request to the system."""
    asked = 0

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal asked
        while await stream.receive_some(65536):
            asked += 1
            await stream.send_all(EMPTY)

    async with wire_to(serve) as wire:
        assert await status_of(wire) == 200
        with trio.CancelScope() as scope:
            scope.cancel()
            await status_of(wire)
        assert await status_of(wire) == 200
        assert asked == 2


async def test_without_system_calls_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a socket's number is not that of a file."""
    monkeypatch.setattr(http1, "SOCKETS_ARE_FILES", False)
    async with modern() as (server, client):
        for _ in range(3):
            await works(client)
        assert server.connections == 1


async def test_plain_http_needs_no_httpx() -> None:
    """Importing it takes longer than many calls."""
    program = """
        import sys, trio
        from trio_mcp import Client

        async def main():
            async with Client(sys.argv[1]) as client:
                await client.call_tool("fine")

        trio.run(main)
        assert "httpx" not in sys.modules
    """
    with trio.fail_after(DEADLINE):
        async with peer({"server/discover": discovered, "tools/call": ok}) as server:
            await trio.run_process([sys.executable, "-c", textwrap.dedent(program), server.url])


async def test_idle_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1, "MAX_KEPT_ALIVE", 3)
    async with modern() as (server, client):
        await call_together(server, client, 10)
        await server.until_live(3)
        await works(client)
        assert server.live == 3
    await server.until_live(0)


async def test_each_exchange_has_a_connection_of_its_own_and_leaves_it_to_the_next() -> None:
    """No more connections than exchanges at a time."""
    async with modern() as (server, client):
        for number in (1, 5, 3, 8, 8):
            await call_together(server, client, number)
        assert server.connections == 8


async def test_a_cancellation_anywhere_leaves_no_connection() -> None:
    async with peer({"server/discover": discovered, "tools/call": streamed}) as server:

        async def scenario() -> None:
            async with Client(server.url) as client:
                await works(client)
                await works(client)

        async def check() -> None:
            await server.until_live(0)

        with trio.fail_after(2 * DEADLINE):
            assert await cancel_everywhere(scenario, check) > 20


async def test_ctrl_c_in_a_cancelled_exchange_is_not_lost_as_it_closes() -> None:
    async def half(asked: Asked) -> None:
        await asked.events(then="gone")

    async with peer({"GET": half}) as server, http_wire(server.url, None, None) as wire:
        with pytest.raises(KeyboardInterrupt), trio.CancelScope() as scope:
            async with wire.exchange("GET", {}):
                scope.cancel()
                raise KeyboardInterrupt
        await server.until_live(0)


# --- TLS ----------------------------------------------------------------------------------------------------------


async def test_a_server_that_does_not_shake_hands_costs_a_connect_timeout(autojump_clock: MockClock) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    url = f"https://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
    async with listener, http_wire(url, None, None) as wire:
        began = trio.current_time()
        with pytest.raises(Disconnected, match="ConnectTimeout") as caught:
            async with wire.exchange("GET", {}):
                pass
        assert not caught.value.sent
        assert trio.current_time() - began == pytest.approx(CONNECT_TIMEOUT, abs=1)


async def test_over_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate has to be trusted, and the error says so if it is not."""
    server = Server("secure", version="1")

    @server.tool
    async def echo(text: str) -> str:
        return text

    config, _ = over_tls(tmp_path)
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(lambda task_status: server.serve_http(config=config, task_status=task_status))
            with pytest.raises(TransportError, match="certificate verify failed"):
                async with Client(url):
                    pass
            monkeypatch.setenv("SSL_CERT_FILE", str(config.certfile))
            async with Client(url) as client:
                for text in ("a", "b" * 1_000_000):
                    assert (await client.call_tool("echo", {"text": text})).data == text
            nursery.cancel_scope.cancel()


async def test_a_cancellation_anywhere_over_tls_leaves_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake, kept connections, and large requests included."""
    config, _ = over_tls(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(config.certfile))
    tls = config.create_ssl_context()
    assert tls is not None
    live = 0

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        nonlocal live
        live += 1
        with contextlib.suppress(trio.BrokenResourceError):
            while data := await stream.receive_some(65536):
                if data.endswith(b"."):
                    await stream.send_all(EMPTY)
        live -= 1

    async with background_nursery() as nursery:
        start = partial(trio.serve_ssl_over_tcp, serve, 0, tls, host="127.0.0.1", https_compatible=True)
        (listener,) = await nursery.start(start)
        port = listener.transport_listener.socket.getsockname()[1]

        async def scenario() -> None:
            async with http_wire(f"https://127.0.0.1:{port}/mcp", None, None) as wire:
                for content in (b".", b"x" * 100_000 + b"."):
                    assert await status_of(wire, content) == 200

        async def check() -> None:
            await eventually(lambda: live == 0)

        with trio.fail_after(2 * DEADLINE):
            assert await cancel_everywhere(scenario, check) > 10


# --- what goes along ----------------------------------------------------------------------------------------------


async def test_cookies_are_sent_back_for_as_long_as_they_last() -> None:
    """A load balancer may set one to find the server that holds the session."""
    given = iter(["node=a; Path=/mcp; HttpOnly", "other=b; Path=/elsewhere", "node=; Max-Age=0; Path=/mcp", "", ""])

    async def set_cookie(asked: Asked) -> None:
        await asked.result(TEXT, Set_Cookie=next(given))

    async with modern(set_cookie) as (server, client):
        for _ in range(5):
            await works(client)
    sent = [asked.headers.get("cookie") for asked in server.asked if asked.rpc == "tools/call"]
    assert sent == [None, "node=a", "node=a", None, None]


async def test_cookies_are_sent_back_and_bounded_in_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A load balancer may tell by a cookie which server holds the session."""
    monkeypatch.setattr(cookies, "MAX_COOKIES", 5)
    calls = 0

    async def baker(asked: Asked) -> None:
        nonlocal calls
        calls += 1
        body = json.dumps(result(asked.id, TEXT)).encode()
        cookies = f"Set-Cookie: c{calls}=1\r\nSet-Cookie: big={'x' * 5000}\r\n"
        head = f"HTTP/1.1 200 OK\r\n{cookies}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await asked.raw(head.encode() + body)

    async with modern(t=baker) as (server, client):
        for _ in range(20):
            await client.call_tool("t")
        sent = [asked.headers.get("cookie", "") for asked in server.asked if asked.rpc == "tools/call"]
    assert sent[1] == "c1=1"
    assert {"c19=1"} <= set(sent[-1].split("; "))
    assert max(len(cookies.split("; ")) for cookies in sent) == 5


@pytest.mark.parametrize("cookie", ["a=b\x01c", "\x7fa=b"])
async def test_a_cookie_that_cannot_be_sent_back_costs_no_request(cookie: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        while await stream.receive_some(65536):
            await stream.send_all(EMPTY.replace(b"\r\n", b"\r\nSet-Cookie: %b\r\n" % cookie.encode(), 1))

    async with wire_to(serve) as wire:
        assert [await status_of(wire) for _ in range(2)] == [200, 200]


async def test_a_redirection_with_control_characters_is_not_followed() -> None:
    """They would get into messages and logs, with the URL that failed."""

    async def serve(stream: trio.SocketStream) -> None:
        while await stream.receive_some(65536):
            await stream.send_all(b"HTTP/1.1 307 Moved\r\nLocation: /\x1b[31m\r\nContent-Length: 0\r\n\r\n")

    async with wire_to(serve) as wire:
        assert await status_of(wire) == 307


async def test_credentials_in_the_url_are_sent_and_not_shown() -> None:
    async with peer({"tools/call": ok, "server/discover": discovered}) as server:
        async with Client(server.url.replace("http://", "http://me:s%40crets@")) as client:
            await works(client)
        assert server.asked[-1].headers["authorization"] == "Basic " + base64.b64encode(b"me:s@crets").decode()
        assert "crets" not in server.asked[-1].headers["host"]


async def test_headers_of_the_callers_own_replace_the_defaults_and_never_the_protocols() -> None:
    """Names of fields are the same in any case (RFC 9110, section 5.1)."""
    heads: list[bytes] = []

    async def serve(stream: trio.SocketStream) -> None:
        heads.append(bytes(await stream.receive_some(65536)))
        await stream.send_all(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n")

    headers = {"user-agent": "mine", "accept": "text/html", "ACCEPT-ENCODING": "gzip", "X-Own": "1"}
    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
        with pytest.raises(HttpError):
            async with Client(HttpServerParameters(url, headers=headers)):
                pass
        nursery.cancel_scope.cancel()
    fields = [line.partition(b": ") for line in heads[0].partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]]
    values = {name.lower(): value for name, _, value in fields}
    assert len(values) == len(fields)
    assert values[b"user-agent"] == b"mine"
    assert values[b"accept"] == b"application/json, text/event-stream"
    assert values[b"accept-encoding"] == b"identity"
    assert values[b"x-own"] == b"1"


# --- proxies ------------------------------------------------------------------------------------------------------


async def test_a_proxy_that_the_environment_names_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer({"server/discover": discovered, "tools/call": ok}) as server:
        monkeypatch.setenv("http_proxy", server.url.removesuffix("/mcp"))
        monkeypatch.setenv("no_proxy", "")
        async with Client("http://mcp.example/mcp") as client:
            await works(client)
        assert server.asked[-1].path == "http://mcp.example/mcp"


VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what the machine says of proxies out of the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
async def test_a_server_of_this_machine_is_reached_without_the_proxy(
    variable: str, no_proxies: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy would send the request to itself, and learn the token."""
    async with peer() as proxy, peer({"server/discover": discovered, "tools/call": ok}) as server:
        monkeypatch.setenv(variable, proxy.url.removesuffix("/mcp"))
        async with Client(HttpServerParameters(server.url, headers={"Authorization": "Bearer s3cret"})) as client:
            await works(client)
        assert server.asked[-1].headers["authorization"] == "Bearer s3cret"
        assert proxy.connections == 0


async def test_a_proxy_of_the_callers_own_client_is_used_for_any_server(
    no_proxies: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with peer({"server/discover": discovered, "tools/call": ok}) as proxy:
        async with (
            httpx.AsyncClient(proxy=proxy.url.removesuffix("/mcp")) as http_client,
            Client(lambda: streamable_http_client("http://127.0.0.1:9/mcp", http_client=http_client)) as client,
        ):
            await works(client)
        assert proxy.asked[-1].path == "http://127.0.0.1:9/mcp"


@pytest.mark.parametrize("proxy", ["gopher://127.0.0.1:9", "http://proxy.example:port"])
async def test_a_proxy_that_is_of_no_use_is_named_as_the_reason(
    proxy: str, no_proxies: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", proxy)
    with pytest.raises(TransportError, match="the proxy that the environment or the system names can't be used"):
        async with Client("http://mcp.example/mcp"):
            pass


PROXY = "http://proxy.example:3128"


@by_outcome(
    "url",
    "expected",
    {
        None: "http://127.0.0.1:8000/mcp | https://127.255.0.9/ | http://localhost/mcp | http://LOCALHOST.:80/mcp | "
        "http://files.localhost:8000/mcp | http://[::1]:8000/mcp | http://[::ffff:127.0.0.1]/ | http://127.1/ | "
        "http://2130706433/ | http://0x7f.1/ | http://0.0.0.0:8000/mcp | http://[::]/ | http://u:p@localhost/ | "
        "http://other.example.com/mcp | http://below.other.example.com/mcp | http://port.example:8080/",
        PROXY: "http://mcp.example/mcp | https://mcp.example/mcp | http://10.0.0.1/ | http://128.0.0.1/ | "
        "http://[::2]/ | http://localhost.example/ | http://notlocalhost/ | http://127.0.0.1.example/ | "
        "http://localhost@mcp.example/ | http://port.example/ | http://another.example.com/",
    },
)
def test_which_proxy(url: str, expected: str | None, no_proxies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """None for this machine, by any of its names, and for what `NO_PROXY` names."""
    assert proxy_of(url) is None
    monkeypatch.setenv("all_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", ".other.example.com, port.example:8080")
    assert proxy_of(url) == expected


def test_the_proxy_of_a_scheme_comes_first(no_proxies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://all.example")
    monkeypatch.setenv("https_proxy", PROXY)
    assert [proxy_of(f"{scheme}://mcp.example/") for scheme in ("http", "https")] == ["socks5://all.example", PROXY]
