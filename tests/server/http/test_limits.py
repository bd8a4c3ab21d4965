"""What a client may ask of a server: time to send a request, bytes of it, requests of a session at once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from pydantic_core import to_json

from tests.http_peer import Events, Raw, http_request, request
from tests.listening import local_config
from tests.server.http.harness import Made, served, session
from tests.waiting import eventually
from trio_mcp import SessionOptions, types
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.low_level import HandlerOptions

MIB = 1024 * 1024
SSE = pytest.param("/sse", marks=pytest.mark.legacy)


@contextlib.asynccontextmanager
async def connected(options: HttpOptions | None = None) -> AsyncIterator[trio.SocketStream]:
    """Open a raw connection to a server."""
    async with served(options) as (_, http, _):
        url = http.base_url
        async with await trio.open_tcp_stream(url.host, url.port or 0) as stream:
            yield stream


def beside(path: str) -> HttpOptions:
    """Serve HTTP+SSE too if the path is one of its own."""
    return HttpOptions(sse_path="/sse" if path in ("/sse", "/messages") else None)


def post(length: int, **fields: str) -> bytes:
    return http_request("POST", length=length, **fields)


async def dripped(stream: trio.SocketStream, head: bytes, piece: bytes) -> bytes:
    """Send something, then a piece again and again; return what comes back up to the end of the connection."""
    got = b""
    async with trio.open_nursery() as nursery:

        async def drip() -> None:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(head)
                while True:
                    await trio.sleep(0.02)
                    await stream.send_all(piece)

        nursery.start_soon(drip)
        with contextlib.suppress(trio.BrokenResourceError):
            while chunk := await stream.receive_some():
                got += chunk
        nursery.cancel_scope.cancel()
    return got


# --- time: each of these would last forever, if every byte gave it more time -------------------------------------


async def test_a_body_that_comes_byte_by_byte_is_408() -> None:
    async with connected(HttpOptions(body_timeout=0.3)) as stream:
        got = await dripped(stream, post(100_000), b"{")
        assert got.startswith(b"HTTP/1.1 408")
        assert b"body_timeout=0.3" in got


@pytest.mark.parametrize("path", ["/nothing", "/health", SSE])
async def test_an_unwanted_body_is_not_awaited(path: str) -> None:
    """The answer comes before it, within a moment, and the connection is closed."""
    async with connected(beside(path)) as stream:
        got = await dripped(stream, post(100_000).replace(b"/mcp", path.encode()), b"{")
        assert got.startswith(b"HTTP/1.1 40")


@pytest.mark.legacy
async def test_a_connection_with_a_request_under_way_is_not_idle() -> None:
    """However long it takes: the deadline for the head ends when the head has arrived."""
    config = local_config()
    config.keep_alive_timeout = 0.1
    async with served(HttpOptions(head_timeout=0.1), config=config) as (made, http, _):
        raw = Raw(http)
        await raw.initialize()
        async with trio.open_nursery() as nursery:

            async def answered() -> None:
                async with raw.call("wait", {"progress": 1}) as r:
                    assert (await Events(r).messages())[-1]["result"]["structuredContent"] == {"result": "done"}

            nursery.start_soon(answered)
            await made.started.wait()
            await trio.sleep(0.3)
            made.go.set()


# --- bytes --------------------------------------------------------------------------------------------------------


@pytest.mark.legacy
async def test_a_body_of_four_mib_is_taken_and_one_byte_more_is_413() -> None:
    async with session() as (_, raw):
        whole = to_json(request("ping", {"_meta": {"fill": ""}}, 1))
        for size, status in ((4 * MIB, 200), (4 * MIB + 1, 413)):
            body = whole.replace(b'"fill":""', b'"fill":"' + b"x" * (size - len(whole)) + b'"')
            assert len(body) == size
            headers = raw.headers(content_type="application/json")
            r = await raw.http.post("/mcp", content=body, headers=headers)
            assert r.status_code == status, r.text[:200]


@pytest.mark.parametrize(("size", "status"), [(100, b"400"), (101, b"413")])
async def test_a_body_without_a_length_is_limited_even_if_it_comes_with_its_head(size: int, status: bytes) -> None:
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (size, b"x" * size)
    whole = post(0).replace(b"content-length: 0", b"transfer-encoding: chunked") + chunks
    async with connected(HttpOptions(max_message_size=100)) as stream:
        await stream.send_all(whole)
        assert (await stream.receive_some()).split()[1] == status


# --- requests of one session --------------------------------------------------------------------------------------


@pytest.mark.legacy
async def test_requests_of_a_session_are_bounded_and_other_sessions_are_served() -> None:
    """Some run, some wait, the next is refused at once; a question is answered, and a ping, whatever is full."""
    made = Made(options=SessionOptions(handlers=HandlerOptions(max_running_requests=2, max_queued_requests=1)))
    async with served(made=made) as (_, http, _):
        raw, other = Raw(http), Raw(http)
        await raw.initialize()
        await other.initialize()
        answers: list[Any] = []

        async def wait(number: int) -> None:
            r = await raw.post("tools/call", {"name": "wait", "arguments": {}}, id=number)
            answers.append((r.status_code, r.json()))

        async with trio.open_nursery() as nursery:
            for number in range(4):
                nursery.start_soon(wait, number)
            await eventually(lambda: answers)
            ((status, refused),) = answers
            assert (status, refused["error"]["code"]) == (200, types.OVERLOADED)
            assert (await raw.post("ping", id=9)).json()["result"] == {}
            r = await other.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            assert r.json()["result"]["structuredContent"] == {"result": 3}
            made.go.set()
        assert [answer["result"]["structuredContent"] for _, answer in answers[1:]] == [{"result": "done"}] * 3


@pytest.mark.legacy
async def test_clients_that_only_send_initialize_leave_room_for_others() -> None:
    async with served(HttpOptions(max_sessions=2)) as (_, http, _):
        whole = Raw(http)
        await whole.initialize()
        for _ in range(5):
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
            assert (await Raw(http).post("initialize", params)).status_code == 200
        other = Raw(http)
        await other.initialize()
        assert (await whole.post("ping")).status_code == 200
        assert (await other.post("ping")).status_code == 200
        assert (await Raw(http).post("initialize", params)).status_code == 503


@pytest.mark.legacy
async def test_an_answer_takes_as_long_as_it_takes_while_it_is_read() -> None:
    """The deadline is for one piece, so a slow connection gets a large response, too."""
    made = Made()

    @made.server.tool
    async def much() -> str:
        return "x" * 12 * MIB

    async with served(HttpOptions(write_timeout=1), made) as (_, http, _):
        body = to_json(request("tools/call", {"name": "much", "arguments": {}}, 1))
        raw = Raw(http)
        await raw.initialize()
        fields = {"mcp-session-id": raw.session or "", "mcp-protocol-version": "2025-11-25"}
        async with await trio.open_tcp_stream(http.base_url.host, http.base_url.port or 0) as stream:
            await stream.send_all(post(len(body), **fields) + body)
            size, read = 0, 0
            while size < 20 * MIB:  # it is there twice, as content and as structured content
                chunk = await stream.receive_some(65536)
                assert chunk, f"cut off after {size} bytes"
                size += len(chunk)
                if size // MIB > read:
                    read = size // MIB
                    await trio.sleep(0.1)


# --- whose requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", SSE, pytest.param("/messages", marks=pytest.mark.legacy)])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_every_entrance_is_guarded_and_the_error_names_the_refused_host_and_the_setting(
    path: str, method: str
) -> None:
    """2025-11-25 `basic/transports`, Security Warning, 1: Origin on all incoming connections."""
    async with served(beside(path)) as (_, http, _):
        for name, value, setting in (
            ("host", "evil.example", "allowed_hosts"),
            ("origin", "https://evil.example", "allowed_origins"),
        ):
            r = await http.request(method, path, headers={name: value, "content-type": "application/json"})
            if r.status_code == 405:  # nothing is there to be guarded
                assert path != "/mcp"
                continue
            assert r.status_code == 403
            assert value in r.text
            assert setting in r.text


@pytest.mark.parametrize(
    ("address", "local"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("::ffff:127.0.0.1", True), ("::ffff:10.0.0.1", False)],
)
async def test_what_comes_in_on_a_loopback_address_is_local(address: str, local: bool) -> None:
    """Over a socket that takes both families an address of IPv4 has another form, which opens no door."""
    answer: list[Any] = []

    async def send(message: Any) -> None:
        answer.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    headers = [(b"host", b"evil.example")]
    scope = {"type": "http", "method": "GET", "path": "/mcp", "server": (address, 80), "headers": headers}
    async with Made().server.asgi_app() as app:
        with trio.move_on_after(5):
            await app(scope, receive, send)
    assert (answer[0]["status"] == 403) == local


@pytest.mark.parametrize("path", ["/mcp", SSE, pytest.param("/messages", marks=pytest.mark.legacy), "/health"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
async def test_dns_rebinding_is_refused_even_if_any_host_is_allowed(path: str, method: str) -> None:
    """On 0.0.0.0, in a container: a browser lets the page read what comes from its own name, so it needs no CORS."""
    answer: list[Any] = []

    async def send(message: Any) -> None:
        answer.append(message)

    async def receive() -> Any:
        await trio.lowlevel.checkpoint()
        return {"type": "http.request"}

    headers = [
        (b"host", b"evil.example:8000"),
        (b"origin", b"http://evil.example:8000"),
        (b"access-control-request-method", b"POST"),
        (b"content-type", b"application/json"),
    ]
    scope = {"type": "http", "method": method, "path": path, "server": ("10.0.0.1", 8000), "headers": headers}
    options = HttpOptions(beside(path), cors=True)
    async with Made().server.asgi_app(options) as app:
        with trio.move_on_after(5):
            await app(scope, receive, send)
    assert not [name for name, _ in answer[0]["headers"] if name.startswith(b"access-control")]
    if answer[0]["status"] != 405:
        assert answer[0]["status"] == 403
        assert b"allowed_hosts" in answer[1]["body"]
        assert b"allowed_origins" in answer[1]["body"]


@pytest.mark.parametrize(
    ("fields", "version", "most", "says"),
    [
        ({}, b"1.1", 100, True),
        ({"connection": "close"}, b"1.1", 100, False),
        ({}, b"1.0", 100, False),
        ({}, b"1.1", 1, False),
    ],
)
async def test_a_response_says_how_long_the_connection_is_kept_if_it_is(
    fields: dict[str, str], version: bytes, most: int, says: bool
) -> None:
    config = local_config()
    config.keep_alive_timeout = 7.5
    config.keep_alive_max_requests = most
    async with served(None, config=config) as (_, http, _):
        stream = await trio.open_tcp_stream(http.base_url.host, http.base_url.port or 0)
        async with stream:
            body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
            await stream.send_all(http_request("POST", body, **fields).replace(b"HTTP/1.1", b"HTTP/" + version))
            got = b""
            while b"\r\n\r\n" not in got:
                got += await stream.receive_some()
            assert (b"keep-alive: timeout=7\r\n" in got) is says
            while not says and await stream.receive_some():
                pass  # to its end


async def test_an_answer_before_the_end_of_the_request_says_nothing_of_the_connection() -> None:
    """That depends on what the client still has to send."""
    async with connected() as stream:
        await stream.send_all(post(10_000_000))
        got = b""
        while b"\r\n\r\n" not in got:
            got += await stream.receive_some()
        assert got.startswith(b"HTTP/1.1 413")
        assert b"keep-alive" not in got
