"""The end of a request is never in doubt: an ambiguous request is refused, and its connection is closed.

RFC 9112, sections 2.2, 5.1, 6 and 7.1; a proxy in front of the server may have read it the other way.
"""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from h2.errors import ErrorCodes

from tests.server.http.http2_client import over_http2
from tests.server.http.in_memory import App, everything, over_memory
from trio_mcp.http.headers import Headers
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.runner.wire import MAX_RECEIVED
from trio_mcp.http.server.asgi import HttpRequest, Ledger

LINE = b"POST / HTTP/1.1\r\nhost: localhost\r\n"
OLD = b"POST / HTTP/1.0\r\nhost: localhost\r\n"
LENGTH = b"content-length: 5\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"\r\n5\r\nhello\r\n0\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"


async def said(app: Any, data: bytes) -> bytes:
    """Send all the data, wait, and return what comes back up to the end of the connection."""
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        with contextlib.suppress(trio.BrokenResourceError):  # it may be refused before its end
            await stream.send_all(data)
        return await everything(stream)


HEADS = {
    "length and chunks": LINE + LENGTH + CHUNKED + CHUNKS,
    "chunks and length": LINE + CHUNKED + LENGTH + CHUNKS,
    "no length and chunks": LINE + b"Content-Length: 0\r\n" + CHUNKED + CHUNKS,
    "length and chunks, in other letters": LINE + b"CONTENT-LENGTH: 5\r\nTransfer-Encoding: Chunked\r\n" + CHUNKS,
    "length and chunks, by a line end of LF": LINE + b"content-length: 5\ntransfer-encoding: chunked\r\n" + CHUNKS,
    "length and chunks, folded": LINE + LENGTH + b"transfer-encoding:\r\n chunked\r\n" + CHUNKS,
    "length and chunks, of a GET": b"GET" + LINE[4:] + LENGTH + CHUNKED + CHUNKS,
    "chunks in 1.0": OLD + CHUNKED + CHUNKS,
    "chunks and length in 1.0": OLD + LENGTH + CHUNKED + CHUNKS,
    "chunks kept alive in 1.0": OLD + CHUNKED + b"connection: keep-alive\r\n" + CHUNKS,
    "two lengths": LINE + LENGTH + b"content-length: 6\r\n\r\nhello",
    "a list of lengths": LINE + b"content-length: 5, 6\r\n\r\nhello",
    "a sign": LINE + b"content-length: +5\r\n\r\nhello",
    "a minus": LINE + b"content-length: -5\r\n\r\nhello",
    "hexadecimal": LINE + b"content-length: 0x5\r\n\r\nhello",
    "a fraction": LINE + b"content-length: 5.0\r\n\r\nhello",
    "an empty length": LINE + b"content-length:\r\n\r\nhello",
    "a length of many digits": LINE + b"content-length: " + b"0" * 30 + b"5\r\n\r\nhello",
    "another coding": LINE + b"transfer-encoding: gzip\r\n" + CHUNKS,
    "another coding last": LINE + b"transfer-encoding: chunked, gzip\r\n" + CHUNKS,
    "another coding first": LINE + b"transfer-encoding: gzip, chunked\r\n" + CHUNKS,
    "identity": LINE + b"transfer-encoding: identity\r\n\r\nhello",
    "no coding": LINE + b"transfer-encoding:\r\n\r\nhello",
    "chunked twice": LINE + CHUNKED + CHUNKED + CHUNKS,
    "chunked twice in a list": LINE + b"transfer-encoding: chunked, chunked\r\n" + CHUNKS,
    "chunked with a parameter": LINE + b"transfer-encoding: chunked;q=1\r\n" + CHUNKS,
    "chunked after a control character": LINE + b"transfer-encoding: \x0bchunked\r\n" + CHUNKS,
    "a space before the colon": LINE + b"transfer-encoding : chunked\r\n" + CHUNKS,
    "a space before the colon of the length": LINE + b"content-length : 5\r\n\r\nhello",
    "a space before the first field": b"POST / HTTP/1.1\r\n host: localhost\r\n" + LENGTH + b"\r\nhello",
    "CR in a value": LINE + b"x: y\rcontent-length: 5\r\n\r\nhello",
    "CR before a colon": LINE + b"content-length\r: 5\r\n\r\nhello",
    "CR in the line": b"POST /\r HTTP/1.1\r\nhost: localhost\r\n" + LENGTH + b"\r\nhello",
    "NUL in a value": LINE + b"x: \0\r\n" + LENGTH + b"\r\nhello",
    "no colon": LINE + b"content-length 5\r\n\r\nhello",
}


@pytest.mark.parametrize("name", HEADS)
async def test_an_ambiguous_head_is_400_and_closes_the_connection(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    app = App(read=True)
    got = await said(app, HEADS[name] + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in got.lower()
    assert got.count(b"HTTP/1.1") == 1
    assert app.begun == 0


BODIES = {
    "hexadecimal with a prefix": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "a minus": b"-5\r\nhello\r\n0\r\n\r\n",
    "an underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "a space before": b" 5\r\nhello\r\n0\r\n\r\n",
    "no size": b";x\r\nhello\r\n0\r\n\r\n",
    "a size of many digits": b"0" * 30 + b"5\r\nhello\r\n0\r\n\r\n",
    "LF in an extension": b"5;x\nhello\r\n0\r\n\r\n",
    "more than its size": b"5\r\nhello!\r\n0\r\n\r\n",
    "LF after it": b"5\r\nhello\n0\r\n\r\n",
    "CR after it": b"5\r\nhello\r0\r\n\r\n",
}


@pytest.mark.parametrize("name", BODIES)
async def test_an_ambiguous_chunk_is_400_and_closes_the_connection(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    got = await said(App(read=True), LINE + CHUNKED + b"\r\n" + BODIES[name] + SMUGGLED)
    assert got.startswith(b"HTTP/1.1 400")
    assert got.count(b"HTTP/1.1") == 1


CLEAR = {
    "a length": LINE + LENGTH + b"\r\nhello",
    "chunks": LINE + CHUNKED + CHUNKS,
    "a field of the trailer": LINE + CHUNKED + b"\r\n5;x=y\r\nhello\r\n0\r\nx: y\r\n\r\n",
    "a length in the trailer": LINE + CHUNKED + b"\r\n5\r\nhello\r\n0\r\ncontent-length: 50\r\n\r\n",
}


@pytest.mark.parametrize("name", CLEAR)
async def test_an_unambiguous_request_is_answered_and_so_is_the_next(
    name: str, autojump_clock: trio.testing.MockClock
) -> None:
    app = App(read=True)
    got = await said(app, CLEAR[name] + SMUGGLED)
    assert got.count(b"HTTP/1.1 200") == app.begun == 2


async def test_the_same_length_twice_is_one_length_to_hypercorn_and_refused_by_the_other_runners(
    runner: str, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9112, 6.3, allows either."""
    got = await said(App(read=True), LINE + LENGTH + LENGTH + b"\r\nhello" + SMUGGLED)
    assert (got.count(b"HTTP/1.1 200"), got.count(b"HTTP/1.1 400")) == ((2, 0) if runner == "hypercorn" else (0, 1))


# --- many small pieces ----------------------------------------------------------------------------------------------


def chunked(size: int, count: int, extension: bytes = b"") -> bytes:
    """Return a request whose body is `count` chunks of `size` bytes."""
    chunk = b"%x%s\r\n%s\r\n" % (size, extension, b"x" * size)
    return LINE + CHUNKED + b"\r\n" + chunk * count + b"0\r\n\r\n"


async def test_a_body_in_small_chunks_costs_a_step_for_each_read_not_for_each_chunk(
    autojump_clock: trio.testing.MockClock,
) -> None:
    events: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            event = await receive()
            events.append(len(event["body"]))
            more = event["more_body"]
        await App()(scope, receive, send)

    data = chunked(2, 40_000)
    assert b" 200 " in await said(app, data + SMUGGLED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    events = events[: events.index(0)]
    assert sum(events) == 80_000
    assert len(events) <= len(data) // MAX_RECEIVED + 1


async def test_a_body_in_small_pieces_costs_its_size() -> None:
    pieces = [{"type": "http.request", "body": b"%02d" % (number % 100), "more_body": True} for number in range(50_000)]
    pieces.append({"type": "http.request", "body": b"", "more_body": False})
    waiting = iter(pieces)

    async def receive() -> Any:
        return next(waiting)

    request = HttpRequest({"type": "http", "method": "POST", "path": "/", "headers": []}, receive, Headers())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        body = await request.body(100_000, Ledger(10, 1_000_000), 30)
        assert tracemalloc.get_traced_memory()[1] - before < 3 * len(body)
    finally:
        tracemalloc.stop()
    assert body == b"".join(piece["body"] for piece in pieces)


@pytest.mark.parametrize(
    ("size", "extension", "status"), [(1, b"", b"400"), (100, b";x=" + b"y" * 1000, b"400"), (20, b"", b"200")]
)
async def test_chunks_that_are_mostly_framing_are_400(
    size: int, extension: bytes, status: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9112, 7.1.1: a server must limit chunk extensions. Chunks of twenty bytes are large enough."""
    data = chunked(size, 2_000_000 // (len(extension) + size + 6), extension)
    got = await said(App(read=True), data + SMUGGLED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
    assert got.startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize(("size", "reset"), [(0, True), (1, True), (40, False)])
async def test_frames_that_are_mostly_framing_reset_their_stream(
    size: int, reset: bool, tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """RFC 9113, 10.5. Another stream of the connection is served."""
    async with over_http2(App(read=True), tmp_path) as (client, _, _):
        first = await client.open(b"", end=False)
        frame = size.to_bytes(3, "big") + b"\0\0\0\0\0\1" + b"x" * size
        await client.stream.send_all(frame * min(40_000, 60_000 // max(size, 1)))
        if not reset:
            client.connection.end_stream(first)
        assert await client.status(await client.open(b"")) == "200"
        if reset:
            assert await client.reset(first) == ErrorCodes.ENHANCE_YOUR_CALM
        else:
            assert await client.status(first) == "200"
        assert set(client.resets) == ({first} if reset else set())


# --- an answer before the whole request has arrived ----------------------------------------------------------------

PIECES = 30
"""More than hypercorn queues for an application that does not read (``max_app_queue_size``)."""


class Hasty:
    """An ASGI application that answers when it is told to, and reads nothing of the request before that.

    Attributes:
        answer_now: Told by the test.
        done: It has answered, and has read the rest of what was there for it.
        events: What that was.
    """

    def __init__(self) -> None:
        self.answer_now, self.done = trio.Event(), trio.Event()
        self.events: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.answer_now.wait()
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})
        while "http.disconnect" not in self.events:
            self.events.append((await receive())["type"])
        self.done.set()


async def test_the_rest_of_an_answered_request_holds_up_neither_it_nor_its_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    app = Hasty()
    with trio.fail_after(60):
        async with over_memory(app, QuietConfig()) as (stream, _, _):
            await stream.send_all(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000000\r\n\r\n")
            for _ in range(PIECES):
                await stream.send_all(b"x" * 100)
                await trio.testing.wait_all_tasks_blocked()
            app.answer_now.set()
            assert (await everything(stream)).startswith(b"HTTP/1.1 413")
            await app.done.wait()
    assert app.events[-1] == "http.disconnect"
