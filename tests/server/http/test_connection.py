"""What becomes of requests and responses on one HTTP/1.1 connection: their order, their framing, their ends."""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.server.http.certificate import over_tls
from tests.server.http.harness import Made, served
from tests.server.http.in_memory import App, everything, over_memory, tls_client, writes
from tests.server.http.test_framing import said
from tests.waiting import eventually
from trio_mcp.http.runner.hypercorn.settings import QuietConfig
from trio_mcp.http.runner.wire import PIECE
from trio_mcp.http.server.asgi import EXTRAS
from trio_mcp.http.server.options import HttpOptions

GET = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
LAST = GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
OLD = GET.replace(b"1.1", b"1.0")
HEAD = LAST.replace(b"GET", b"HEAD")
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"


Clock = trio.testing.MockClock


class Answer:
    """An ASGI application that answers every request alike, in pieces.

    Attributes:
        begun: How many requests it got.
        bodies: What it read, if it reads.
    """

    def __init__(self, *pieces: bytes, status: int = 200, read: bool = False, **fields: str) -> None:
        self.pieces, self.status, self.read = pieces, status, read
        self.fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
        self.begun = 0
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        body, more = b"", self.read
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body, more = body + event["body"], event["more_body"]
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": self.status, "headers": self.fields})
        last = len(self.pieces) - 1
        for number, piece in enumerate(self.pieces):
            await send({"type": "http.response.body", "body": piece, "more_body": number < last})


# --- responses ------------------------------------------------------------------------------------------------------

CHUNKED = b"transfer-encoding: chunked\r\n"
LENGTH = b"content-length: 4\r\n"

RESPONSES = {
    "pieces are chunked": (LAST, partial(Answer, b"bo", b"dy"), CHUNKED, b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"),
    "pieces of nothing are chunked": (LAST, partial(Answer, b"", b""), CHUNKED, b"0\r\n\r\n"),
    "pieces with a length": (LAST, partial(Answer, b"bo", b"dy", content_length="4"), LENGTH, b"body"),
    "pieces end with the connection in 1.0": (OLD, partial(Answer, b"bo", b"dy"), b"connection: close\r\n", b"body"),
    "one piece in 1.0": (OLD, partial(Answer, b"body", content_length="4"), LENGTH, b"body"),
    "HEAD": (HEAD, partial(Answer, b"body", content_length="4"), LENGTH, b""),
    "204": (LAST, partial(Answer, b"", status=204), b"HTTP/1.1 204", b""),
    "304": (LAST, partial(Answer, b"", status=304), b"HTTP/1.1 304", b""),
    "an unknown status": (LAST, partial(Answer, b"body", status=299, content_length="4"), b"HTTP/1.1 299", b"body"),
}


@pytest.mark.parametrize("name", RESPONSES)
async def test_the_end_of_a_response_is_told(name: str, autojump_clock: Clock) -> None:
    """RFC 9112, 6.3. The connection is closed after the last one."""
    data, make, told, body = RESPONSES[name]
    head, _, rest = (await said(make(), data)).partition(b"\r\n\r\n")
    assert told.lower() in head.lower() + b"\r\n"
    assert rest == body
    assert head.lower().count(b"content-length") + head.lower().count(b"transfer-encoding") <= 1


async def test_the_head_leaves_with_the_first_piece_and_the_end_with_the_last(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """A client that has read the last piece can use the connection again at once, without another wait for its end."""
    written = writes(monkeypatch)
    await said(Answer(b"bo", b"d", b"y"), LAST)
    first, *rest = written
    assert first.endswith(b"\r\n\r\n2\r\nbo\r\n")
    assert rest == [b"1\r\nd\r\n", b"1\r\ny\r\n0\r\n\r\n"]


async def test_a_large_last_piece_is_not_copied_for_its_end(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Clock
) -> None:
    """A client that doesn't read costs no second copy."""
    written, large = writes(monkeypatch), b"x" * (PIECE + 1)
    assert large in await said(Answer(b"bo", large), LAST)
    assert large in written


WRONG = {
    "a line end in a value": (partial(Answer, b"body", x="a\r\ny: b"), b"HTTP/1.1 500"),
    "a line feed in a value": (partial(Answer, b"body", x="a\ny: b"), b"HTTP/1.1 500"),
    "NUL in a value": (partial(Answer, b"body", x="a\0"), b"HTTP/1.1 500"),
    "a line end in a name": (partial(Answer, b"body", **{"x: y\r\nz": "a"}), b"HTTP/1.1 500"),
    "an empty name": (partial(Answer, b"body", **{"": "a"}), b"HTTP/1.1 500"),
    "a malformed length": (partial(Answer, b"body", content_length="+4"), b"HTTP/1.1 500"),
    "less than its length": (partial(Answer, b"body", content_length="5"), b"HTTP/1.1 500"),
    "more than its length": (partial(Answer, b"body", content_length="3"), b"HTTP/1.1 500"),
    "less than its length, in pieces": (partial(Answer, b"b", b"ody", content_length="5"), b"HTTP/1.1 200"),
    "more than its length, in pieces": (partial(Answer, b"b", b"ody", content_length="3"), b"HTTP/1.1 200"),
    "an interim status": (partial(Answer, b"body", status=101), b"HTTP/1.1 500"),
    "nothing": (Answer, b"HTTP/1.1 500"),
}


async def test_a_response_in_one_piece_gets_a_length(autojump_clock: Clock) -> None:
    got = await said(Answer(b"body"), GET + LAST)
    assert got.count(LENGTH) == got.count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_response_is_500_or_cut_off_and_its_connection_closed(name: str, autojump_clock: Clock) -> None:
    """No client takes it for something else."""
    make, status = WRONG[name]
    app = make()
    got = await said(app, GET + GET)
    assert got.startswith(status)
    assert b"y: b" not in got
    assert len(got.partition(b"\r\n\r\n")[2]) < 5
    assert got.count(b"HTTP/1.1") == app.begun == 1


# --- requests -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expect", [b"100-continue", b"100-Continue"])
async def test_the_body_is_asked_for_where_it_is_read(expect: bytes, autojump_clock: Clock) -> None:
    """RFC 9110, 10.1.1."""
    app = Answer(b"ok", read=True)
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        await stream.send_all(POST + b"expect: %s\r\n\r\n" % expect)
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 100")
        await stream.send_all(b"hello" + LAST)
        assert (await everything(stream)).count(b"HTTP/1.1 200") == 2
    assert app.bodies == [b"hello", b""]


@pytest.mark.parametrize("status", [401, 404, 413])
async def test_a_body_that_is_not_wanted_is_not_asked_for(status: int, runner: str, autojump_clock: Clock) -> None:
    """Hypercorn asks for every body. The connection ends, as the client may send it nevertheless."""
    app = Answer(b"no", status=status)
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        await stream.send_all(POST + b"expect: 100-continue\r\n\r\n")
        got = await everything(stream)
    assert got.count(b"HTTP/1.1 100") == (runner == "hypercorn")
    assert b"HTTP/1.1 %d" % status in got
    assert b"keep-alive" not in got


@pytest.mark.parametrize(
    "data",
    [POST + b"expect: 100-continue\r\n\r\nhello", POST.replace(b"1.1", b"1.0") + b"expect: 100-continue\r\n\r\nhello"],
)
async def test_a_body_that_is_there_need_not_be_asked_for(data: bytes, autojump_clock: Clock) -> None:
    app = Answer(b"ok", read=True)
    got = await said(app, data + LAST)
    assert got.count(b"HTTP/1.1 100") <= (b"1.1" in data)
    assert b"HTTP/1.1 200" in got
    assert app.bodies[0] == b"hello"


async def test_a_connection_serves_as_many_requests_as_the_configuration_says(autojump_clock: Clock) -> None:
    config, app = QuietConfig(), Answer(b"ok")
    config.keep_alive_max_requests = 3
    async with over_memory(app, config) as (stream, _, _):
        await stream.send_all(GET * 5)
        got = await everything(stream)
    assert got.count(b"HTTP/1.1 200") == app.begun == 3
    assert got.count(b"keep-alive: timeout=") == 2


async def test_names_that_are_not_the_servers_are_404(autojump_clock: Clock) -> None:
    config, app = QuietConfig(), Answer(b"ok")
    config.server_names = ["localhost"]
    for name, status in ((b"localhost", b"200"), (b"evil.example", b"404")):
        async with over_memory(app, config) as (stream, _, _):
            await stream.send_all(LAST.replace(b"localhost", name))
            assert (await everything(stream)).startswith(b"HTTP/1.1 " + status)
    assert app.begun == 1


async def test_a_body_sent_before_its_client_left_is_read(autojump_clock: Clock) -> None:
    """As of a notification whose client does not wait."""
    app, body = Answer(b"ok", read=True), b"x" * 150_000
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        await stream.send_all(POST.replace(b" 5", b" 150000") + b"\r\n")
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_all(body)
        stream.socket.close()
        await eventually(lambda: app.bodies)
    assert app.bodies == [body]


@pytest.mark.parametrize("sent", [POST + b"\r\nhel", POST[:-5], b""])
async def test_half_a_request_is_not_answered_once_its_client_has_ended_it(sent: bytes, autojump_clock: Clock) -> None:
    app = Answer(b"ok", read=True)
    async with over_memory(app, QuietConfig()) as (stream, _, _):
        await stream.send_all(sent or GET[:0] + b"G")
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_eof()
        assert (await everything(stream))[:10] in (b"", b"HTTP/1.1 4")
    assert app.bodies == []


# --- the client leaves ----------------------------------------------------------------------------------------------


class Waiting:
    """An ASGI application that waits for the end of its client."""

    def __init__(self) -> None:
        self.begun, self.over = trio.Event(), trio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.set()
        while (await receive())["type"] != "http.disconnect":
            pass
        self.over.set()


@pytest.mark.parametrize("more", [b"", GET, GET * 1000], ids=["alone", "one more", "many more"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_the_end_of_a_client_is_noticed_also_behind_pipelined_requests(
    more: bytes, tls: bool, tmp_path: Path, autojump_clock: Clock
) -> None:
    app = Waiting()
    config, trusted = over_tls(tmp_path)
    async with over_memory(app, config, tls=config.create_ssl_context() if tls else None) as (stream, _, _):
        client: Any = await tls_client(stream, trusted) if tls else stream
        await client.send_all(GET + more)
        await app.begun.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert not app.over.is_set()
        await stream.send_eof()  # half, of the client's own
        await app.over.wait()


async def test_the_number_of_a_closed_socket_tells_nothing_of_the_one_that_has_it_now(autojump_clock: Clock) -> None:
    """A process being started inherits it for a moment, which keeps the events of the old one coming."""
    old, new = Waiting(), Waiting()
    config = QuietConfig()
    async with over_memory(old, config) as (stream, connection, http), trio.open_nursery() as nursery:
        await stream.send_all(GET)
        await old.begun.wait()
        theirs = connection.wire.socket
        number = theirs.fileno()
        inherited = os.dup(number)
        ours, half = socket.socketpair()
        http.app = new  # type: ignore[attr-defined]
        theirs.close()
        os.dup2(half.fileno(), number)
        half.close()
        fresh = trio.SocketStream(trio.socket.from_stdlib_socket(socket.socket(fileno=number)))
        nursery.start_soon(http.connect(fresh).run)
        ours.send(GET)
        await new.begun.wait()
        await stream.send_eof()  # noted under a number that is another's now
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not new.over.is_set()
        ours.close()
        await new.over.wait()
        os.close(inherited)
        nursery.cancel_scope.cancel()


# --- the application takes the connection over ----------------------------------------------------------------------


class Echo:
    """An ASGI application that speaks another protocol: it sends back whatever comes.

    Attributes:
        head: What had been read when it took over.
        told: What it was told of its client meanwhile.
    """

    def __init__(self) -> None:
        self.head = b""
        self.told: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        extras = scope["extensions"][EXTRAS]
        extras.call(lambda: self.told.append("left"))
        stream, self.head = await extras.take_over()
        with pytest.raises(RuntimeError, match="the response has begun"):
            await extras.take_over()
        with pytest.raises(RuntimeError, match="not allowed at this point"):
            await send({"type": "http.response.start", "status": 200})
        await stream.send_all(b"taken:" + self.head.partition(b"\r\n\r\n")[2])
        while data := await stream.receive_some():
            await stream.send_all(bytes(data))
        await trio.testing.wait_all_tasks_blocked()  # whatever there is to tell of the end


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_an_application_takes_the_connection_over(tls: bool, tmp_path: Path, autojump_clock: Clock) -> None:
    app, head = Echo(), LAST.replace(b"\r\n\r\n", b"\r\nUpgrade:  Echo\r\n\r\n")
    config, trusted = over_tls(tmp_path)
    async with over_memory(app, config, tls=config.create_ssl_context() if tls else None) as (stream, connection, _):
        client: Any = await tls_client(stream, trusted) if tls else stream
        await client.send_all(head + b"more")
        got = await client.receive_some()
        for number in range(10):
            await client.send_all(b"%d" % number * 100_000)
            size = 0
            while size < 100_000:
                data = await client.receive_some()
                assert set(data) <= {48 + number}
                size += len(data)
        await trio.sleep(50)  # none of HTTP's deadlines is there any more
        connection.shut_if_idle()  # nor is it idle
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_eof()
        assert await everything(client) == b""
    assert (bytes(got), app.head, app.told) == (b"taken:more", head + b"more", [])


@pytest.mark.parametrize("after", ["read", "begun"])
async def test_an_application_takes_nothing_over_too_late(after: str, autojump_clock: Clock) -> None:
    said_so: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if after == "read":
            await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        try:
            await scope["extensions"][EXTRAS].take_over()
        except RuntimeError as exc:
            said_so.append(str(exc))
        await send({"type": "http.response.body", "body": b"ok"})

    assert (await said(app, LAST)).endswith(b"ok")
    assert "can't be taken over" in said_so[0]


# --- many at once, and the end of the server ------------------------------------------------------------------------


async def test_a_client_with_a_thousand_pipelined_requests_does_not_delay_another(autojump_clock: Clock) -> None:
    app = Answer(b"ok")
    config = QuietConfig()
    config.keep_alive_max_requests = 2000
    async with over_memory(app, config) as (greedy, _, http), trio.open_nursery() as nursery:
        ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
        nursery.start_soon(http.connect(theirs).run)
        await trio.testing.wait_all_tasks_blocked()
        os.write(greedy.socket.fileno(), GET * 1000)
        os.write(ours.socket.fileno(), GET)
        while b"ok" not in await ours.receive_some():
            pass
        assert app.begun < 20
        got = 0
        while got < 1000:
            got += bytes(await greedy.receive_some()).count(b"ok")
        ours.socket.close()


async def test_the_end_answers_what_is_under_way_and_drops_what_is_pipelined(autojump_clock: Clock) -> None:
    """A reset does not destroy the response."""
    app = App(b"x" * 100_000 + b"ok")
    async with over_memory(app, QuietConfig()) as (stream, connection, http):
        await stream.send_all(GET + GET)
        while not app.begun:
            await trio.lowlevel.checkpoint()
        await http.end()
        connection.shut_if_idle()
        await stream.send_all(GET * 100)
        got = await everything(stream)
    assert got.endswith(b"ok")
    assert b"keep-alive" not in got
    assert got.count(b"HTTP/1.1") == app.begun == 1


def in_two_parts(goes_on: trio.Event) -> Any:
    """Return an application whose response has a second part, which waits for the event."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"o", "more_body": True})
        await goes_on.wait()
        await send({"type": "http.response.body", "body": b"k"})

    return app


async def test_a_response_that_promised_another_request_keeps_its_promise_as_the_server_ends(
    autojump_clock: Clock,
) -> None:
    """A client that has just been promised it uses the connection first; the next response says that it ends."""
    ended = trio.Event()

    async with over_memory(in_two_parts(ended), QuietConfig()) as (stream, _, http):
        await stream.send_all(GET)
        head = bytes(await stream.receive_some())
        await http.end()
        ended.set()
        assert await stream.receive_some() == b"k"
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_all(GET)
        got = await everything(stream)
    assert b"keep-alive: timeout" in head.lower()
    assert b"connection: close" in got.lower()
    assert got.endswith(b"ok")


@pytest.mark.parametrize("first", ["ends", "is to end", "is to end, and nothing follows"])
async def test_a_response_that_outlasts_the_farewell_keeps_its_promise(first: str, autojump_clock: Clock) -> None:
    """Its connection is kept for as long as an ordinary one; without another request, it ends then."""
    goes_on = trio.Event()

    async with over_memory(in_two_parts(goes_on), QuietConfig()) as (stream, connection, http):
        await stream.send_all(GET)
        assert b"keep-alive: timeout" in bytes(await stream.receive_some()).lower()
        await http.end()
        if first != "ends":
            connection.shut_if_idle(1.0)
        goes_on.set()
        assert await stream.receive_some() == b"k"
        await trio.testing.wait_all_tasks_blocked()
        if first == "ends":
            connection.shut_if_idle(1.0)
        began = trio.current_time()
        await trio.sleep(0.9)
        if not first.endswith("follows"):
            await stream.send_all(GET)
        got = await everything(stream)
    if first.endswith("follows"):
        assert (got, round(trio.current_time() - began, 3)) == (b"", 1.0)
    else:
        assert b"connection: close" in got.lower()
        assert got.endswith(b"ok")


async def test_a_server_that_is_cancelled_says_nothing_of_its_connections(caplog: pytest.LogCaptureFixture) -> None:
    """Some are idle, one sends half a head, one waits for its response."""
    made = Made()
    with trio.CancelScope() as scope:
        async with served(made=made) as (_, client, _), contextlib.AsyncExitStack() as stack:
            address = client.base_url.host, client.base_url.port or 0
            for data in (b"", GET.replace(b"/", b"/health", 1), GET[:10], WAIT):
                stream = await stack.enter_async_context(await trio.open_tcp_stream(*address))
                await stream.send_all(data)
            await made.started.wait()
            scope.cancel()
            await trio.sleep_forever()
    assert [record for record in caplog.records if record.name.startswith("trio_mcp")] == []


BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","arguments":{},"_meta":'
    b'{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}'
)
WAIT = (
    b"POST /mcp HTTP/1.1\r\nhost: localhost\r\naccept: application/json, text/event-stream\r\n"
    b"content-type: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n"
    b"mcp-name: wait\r\ncontent-length: %d\r\n\r\n" % len(BODY)
) + BODY

EXCHANGES: dict[str, tuple[Any, list[bytes]]] = {
    "an answer": (Answer(b"ok", read=True), [POST + b"\r\n", b"hello" + LAST]),
    "pieces": (Answer(*[b"x" * 10_000] * 3, read=True), [POST + b"\r\nhello", LAST]),
    "an early answer": (Answer(b"no", status=413), [POST + b"\r\n", b"hel"]),
    "a body that is asked for": (Answer(b"ok", read=True), [POST + b"expect: 100-continue\r\n\r\n", b"hello" + LAST]),
    "a malformed head": (Answer(b"ok"), [b"GET", b" / HTTP/9.9\r\n\r\n"]),
    "a malformed chunk": (Answer(b"ok", read=True), [LAST[:-2] + b"transfer-encoding: chunked\r\n\r\n", b"x\r\n"]),
    "no answer": (Answer(), [GET, GET]),
    "a client that leaves": (Waiting(), [GET, b""]),
}


@pytest.mark.parametrize(("name", "tls"), [*((name, False) for name in EXCHANGES), ("an answer", True)])
async def test_a_connection_cancelled_anywhere_leaves_nothing_behind(
    name: str, tls: bool, tmp_path: Path, autojump_clock: Clock
) -> None:
    """No task and no descriptor, and no task waits forever."""
    app, pieces = EXCHANGES[name]
    config, trusted = over_tls(tmp_path)
    context = config.create_ssl_context() if tls else None
    tasks = trio.lowlevel.current_statistics().tasks_living
    files = len(os.listdir("/proc/self/fd"))

    async def scenario() -> None:
        async with over_memory(app, config, tls=context) as (stream, _, _):
            client: Any = await tls_client(stream, trusted) if tls else stream
            for piece in pieces:
                with contextlib.suppress(trio.BrokenResourceError):
                    await (client.send_all(piece) if piece else stream.send_eof())
                await trio.testing.wait_all_tasks_blocked()
            await everything(client)

    async def check() -> None:
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert len(os.listdir("/proc/self/fd")) == files

    assert await cancel_everywhere(scenario, check) > 5


async def test_what_an_exchange_leaves_needs_no_collection_of_garbage() -> None:
    """Each object goes with its last reference: a cycle would keep bodies until the next collection."""
    app = Answer(b"ok", read=True)

    async def exchanges(count: int) -> None:
        async with over_memory(app, QuietConfig()) as (stream, _, _):
            for _ in range(count):
                await stream.send_all(POST + b"\r\nhello")
                while b"ok" not in await stream.receive_some():
                    pass

    await exchanges(1)
    gc.collect()
    gc.disable()
    try:
        await exchanges(50)
        few = gc.collect()
        await exchanges(100)
        many = gc.collect()
    finally:
        gc.enable()
    assert many - few < 50


# --- which runner ---------------------------------------------------------------------------------------------------


def test_a_runner_that_there_is_not_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="runner must be one of hypercorn, h11, httptools; got 'nope'"):
        HttpOptions(runner="nope")


async def test_httptools_that_is_not_installed_is_one_clear_error_before_anything_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)
    missing = pytest.raises(RuntimeError, match=r"needs httptools: pip install 'trio-mcp\[fast\]'")
    with socket.create_server(("127.0.0.1", 0)) as taken, missing:
        await Made().server.serve_http(port=taken.getsockname()[1], runner="httptools")
