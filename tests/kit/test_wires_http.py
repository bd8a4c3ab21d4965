"""The wire over HTTP: its requests, and what it makes of responses, good and bad."""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.peer import ME
from tests.server.http.certificate import over_tls
from trio_mcp import HttpServerParameters, Server, TransportError
from trio_mcp.conformance.steps import Http
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.http import http_wire
from trio_mcp.conformance.wires.targets import open_wire_for
from trio_mcp.conformance.wires.wire import Wire

LEGACY, MODERN = "2025-11-25", "2026-07-28"
META = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}
VERSION = "io.modelcontextprotocol/protocolVersion"
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}
HELLO = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}
WELCOME = {"jsonrpc": "2.0", "id": 0, "result": {"protocolVersion": LEGACY}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
OK = b"HTTP/1.1 200 OK\r\n"
NOTHING = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n"
NO_GET = b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n"
STREAM = OK + b"Content-Type: text/event-stream\r\n\r\n"


def plain(message: Any, fields: bytes = b"") -> bytes:
    body = json.dumps(message).encode()
    return OK + fields + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def data(message: Any, fields: bytes = b"") -> bytes:
    return fields + b"data: " + json.dumps(message).encode() + b"\n\n"


class Held(bytes):
    """A response after which the connection stays open, though it is not at its end."""


class Scripted:
    """A server in memory that gives each request the next of its responses."""

    def __init__(self, *responses: bytes, close: bool = False) -> None:
        self.responses = list(responses)
        self.close = close
        self.requests: list[bytes] = []
        self.opened: list[trio.abc.Stream] = []
        self.nursery: trio.Nursery | None = None

    async def connect(self) -> trio.abc.Stream:
        ours, theirs = trio.testing.memory_stream_pair()
        assert self.nursery is not None
        self.nursery.start_soon(self.serve, theirs)
        self.opened.append(ours)
        await trio.lowlevel.checkpoint()
        return ours

    async def serve(self, stream: Any) -> None:
        while head := await read_request(stream):
            self.requests.append(head)
            response = self.responses.pop(0)
            await stream.send_all(response)
            body = response.partition(b"\r\n\r\n")[2]
            if not isinstance(response, Held) and (self.close or b"Content-Length: %d\r" % len(body) not in response):
                await stream.aclose()
                return


async def read_request(stream: trio.abc.ReceiveStream) -> bytes:
    got = b""
    while b"\r\n\r\n" not in got:
        try:
            chunk = await stream.receive_some()
        except trio.BrokenResourceError:
            return b""
        if not chunk:
            return b""
        got += chunk
    head, _, body = got.partition(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
    while len(body) < length:
        body += await stream.receive_some()
    return head + b"\r\n\r\n" + body


Script = Callable[[Wire, Tape], Awaitable[None]]


async def play(server: Scripted, script: Script, revision: str = LEGACY) -> list[Event]:
    tape = Tape()
    async with trio.open_nursery() as server.nursery:
        open_wire = http_wire(HttpServerParameters("http://host/mcp"), connect=server.connect)
        async with open_wire(tape, 0, revision) as wire:
            await script(wire, tape)
        server.nursery.cancel_scope.cancel()
    return tape.events


def brief(events: Sequence[Event]) -> list[Any]:
    return [
        e.message if e.kind == "message" else e.text if e.kind == "text" else e.facts.get("status", e.facts.get("cut"))
        for e in events
        if e.sender == "server" and e.kind in ("message", "text", "response", "end")
    ]


async def after(count: int, tape: Tape) -> None:
    """Wait for the end of as many exchanges."""
    assert await tape.until(lambda: sum(e.kind == "end" for e in tape.events) >= count, 60), tape.events


async def pings(wire: Wire, tape: Tape, times: int = 1) -> None:
    for number in range(times):
        await wire.send(PING)
        await after(number + 1, tape)


@pytest.mark.parametrize(
    ("response", "noted"),
    [
        (plain(PONG), [200, PONG, False]),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + NOTHING, [202, False]),
        (OK + b"\r\n<html>", [200, b"<html>", False]),
        (STREAM + data(1) + data(2, b"id: 7\nevent: message\nretry: 50\n"), [200, 1, 2, False]),
        (
            STREAM + b"\xef\xbb\xbfid: 1\ndata:\n\n: comment\n\nretry: 5\n\ndata: {\r\ndata: }\r\n\r\n",
            [200, b"", b"", {}, False],
        ),
        (STREAM + b"data: 1\n", [200, False]),
        (OK + b"Content-Length: 9\r\n\r\n1", [200, True]),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\n5\r\nzz\r\n", [200, True]),
        (b"SSH-2.0-x\r\n", [True]),
        (b"HTTP/1.1", [True]),
        (b"", [True]),
    ],
)
async def test_a_response_is_noted_as_it_came(
    response: bytes, noted: list[Any], autojump_clock: trio.testing.MockClock
) -> None:
    assert brief(await play(Scripted(response), pings)) == noted


async def test_facts_of_events() -> None:
    events = await play(Scripted(STREAM + data(2, b"id: 7\nevent: message\nretry: 50\n")), pings)
    assert [e.facts for e in events if e.message == 2] == [{"event_id": "7", "event": "message", "retry": 0.05}]


@pytest.mark.parametrize("close", [False, True])
async def test_a_connection_is_used_again_unless_the_server_has_closed_it(close: bool) -> None:
    server = Scripted(plain(PONG), plain(PONG), close=close)
    assert brief(await play(server, partial(pings, times=2))) == [200, PONG, False] * 2


@pytest.mark.parametrize("cancelled", [False, True])
async def test_no_connection_is_left_open(cancelled: bool) -> None:
    server = Scripted(plain(PONG), plain(PONG), plain(PONG))

    async def script(wire: Wire, tape: Tape) -> None:
        for _ in range(3):
            await wire.send(PING)
        await after(3, tape)
        if cancelled:
            scope.cancel()

    with trio.CancelScope() as scope:
        await play(server, script)
    assert len(server.opened) >= 3  # the first one is only tried
    for stream in server.opened:
        with pytest.raises(trio.ClosedResourceError), trio.fail_after(5):  # against a hang only
            await stream.receive_some()


def headers_of(request: bytes) -> dict[str, str]:
    lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
    return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}


async def hello(wire: Wire, tape: Tape) -> None:
    await wire.send(HELLO)
    await after(1, tape)
    await wire.send(INITIALIZED)


async def test_a_session() -> None:
    primed = STREAM + b"id: 3\ndata:\n\n"
    server = Scripted(plain(WELCOME, b"Mcp-Session-Id: s\r\n"), NOTHING, NO_GET, primed + data(PONG), NOTHING)

    async def script(wire: Wire, tape: Tape) -> None:
        await hello(wire, tape)
        await wire.send(PING, headers={"x": "{session} {event} {other session}", "Accept": None, "host": "h"})
        await after(4, tape)

    events = await play(server, script)
    assert [e.facts["method"] for e in events if e.kind == "request"] == ["POST", "POST", "GET", "POST", "DELETE"]
    first, *others = map(headers_of, server.requests)
    assert "mcp-session-id" not in first
    assert "mcp-protocol-version" not in first
    assert {(h["mcp-session-id"], h["mcp-protocol-version"]) for h in others} == {("s", LEGACY)}
    assert others[2]["x"] == "s none none"
    assert others[2]["host"] == "h"
    assert "accept" not in others[2]


async def test_a_stream_that_the_server_closes_early_is_resumed(autojump_clock: trio.testing.MockClock) -> None:
    server = Scripted(STREAM + b"id: 3\nretry: 40\ndata:\n\n", STREAM + data(PONG, b"id: 4\n"))
    events = await play(server, _resumed)
    assert headers_of(server.requests[1])["last-event-id"] == "3"
    (resumed,) = (e for e in events if "resumes" in e.facts)
    assert resumed.facts["resumes"] == 1
    assert resumed.time == pytest.approx(0.04)


async def _resumed(wire: Wire, tape: Tape) -> None:
    await wire.send(PING)
    await after(2, tape)


async def test_a_broken_stream_is_resumed_when_told(autojump_clock: trio.testing.MockClock) -> None:
    open_stream = Held(STREAM + b"id: 3\ndata: 1\n\n")
    server = Scripted(open_stream, STREAM + data(PONG))

    async def script(wire: Wire, tape: Tape) -> None:
        await wire.resume(0)
        await wire.stop("reset", 0)
        await wire.send(PING)
        await tape.until(lambda: any(e.message == 1 for e in tape.events), 60)
        await wire.stop("reset", 5)
        await wire.resume(1)
        await after(2, tape)

    events = await play(server, script)
    assert [e.facts.get("by") for e in events if e.kind == "end"] == ["client", "server"]
    assert sum(e.facts.get("what") == "unsent" for e in events) == 2
    assert headers_of(server.requests[1])["last-event-id"] == "3"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"method": "tools/call", "params": {"name": "ü", "_meta": META}}, ("tools/call", "=?base64?w7w=?=", MODERN)),
        ({"method": "resources/read", "params": {"uri": "a:b"}}, ("resources/read", "a:b", MODERN)),
        ({"method": "tools/list", "params": {"_meta": META | {VERSION: "x"}}}, ("tools/list", None, "x")),
        ({"method": "tools/list", "params": {"_meta": {VERSION: 5}}}, ("tools/list", None, MODERN)),
        ({"method": "a\r\nb: c"}, ("a  b: c", None, MODERN)),
        ({"method": 5}, (None, None, MODERN)),
        ([], (None, None, MODERN)),
    ],
)
async def test_modern_headers_fit_the_body(message: Any, expected: Any) -> None:
    server = Scripted(plain(PONG))

    async def script(wire: Wire, tape: Tape) -> None:
        await wire.send(message)
        await after(1, tape)

    await play(server, script, MODERN)
    found = headers_of(server.requests[0])
    assert (found.get("mcp-method"), found.get("mcp-name"), found["mcp-protocol-version"]) == expected


async def test_arguments_become_headers() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}}
    tools = {"tools": [{"name": "t", "inputSchema": schema}, {"name": "u", "inputSchema": {"x-mcp-header": 1}}]}
    server = Scripted(plain({"id": 1, "result": tools}), plain(PONG))

    async def script(wire: Wire, tape: Tape) -> None:
        await pings(wire, tape)
        await wire.send({"id": 2, "method": "tools/call", "params": {"name": "t", "arguments": {"a": "x"}}})
        await after(2, tape)

    await play(server, script, MODERN)
    assert headers_of(server.requests[1])["mcp-param-a"] == "x"


async def test_a_modern_request_is_cancelled_by_closing_its_response() -> None:
    async def script(wire: Wire, tape: Tape) -> None:
        await wire.send(PING)
        await wire.cancel("1", None)
        assert not any(e.kind == "end" for e in tape.events)
        await wire.cancel(1, None)

    events = await play(Scripted(Held(STREAM)), script, MODERN)
    assert [(e.facts["by"], e.facts["how"]) for e in events if e.kind == "end"] == [("client", "close")]


async def test_requests_of_ones_own_are_held_for_a_time(autojump_clock: trio.testing.MockClock) -> None:
    async def script(wire: Wire, tape: Tape) -> None:
        await wire.http(Http("GET", {"Accept": None}, path="/x", hold=3))
        assert trio.current_time() == began + 3

    began = trio.current_time()
    server = Scripted(Held(STREAM))
    await play(server, script)
    assert server.requests[0].startswith(b"GET /x HTTP/1.1\r\n")
    assert "accept" not in headers_of(server.requests[0])


@pytest.mark.parametrize(("response", "reason"), [(b"SSH-2.0-x\r\n", "does not speak HTTP"), (plain(PONG), "done")])
async def test_what_is_not_http_ends_the_wire(response: bytes, reason: str) -> None:
    events = await play(Scripted(response), pings)
    (close,) = (e for e in events if e.kind == "close")
    assert reason in close.facts["reason"]


async def test_a_flood_ends_its_response(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.conformance.wires.events.LONGEST", 1000)
    events = await play(Scripted(STREAM + b"data: " + b"1" * 2000), pings)
    assert [e.facts["what"] for e in events if e.kind == "mark"] == ["flood"]


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
async def test_a_server_that_is_not_there(scheme: str) -> None:
    with pytest.raises(TransportError, match=f"can't connect to {scheme}://127.0.0.1:1/mcp: Connection refused"):
        async with open_wire_for(f"{scheme}://127.0.0.1:1/mcp")(Tape(), 0, LEGACY):
            pass


@pytest.mark.parametrize(
    ("serve", "kind", "revision"),
    [
        ("serve_http", "http", LEGACY),
        ("serve_http", "http", MODERN),
        ("serve_sse", "sse", "2024-11-05"),
        ("serve_websocket", "ws", MODERN),
    ],
)
async def test_our_own_servers(serve: str, kind: Any, revision: str) -> None:
    tape = Tape()
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": ME}
    first = HELLO | {"params": params}
    if revision == MODERN:
        first = {"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": {"_meta": META}}
    async with trio.open_nursery() as nursery:
        url = await nursery.start(getattr(Server("s"), serve), "127.0.0.1", 0)
        async with open_wire_for(HttpServerParameters(url, kind=kind))(tape, 0, revision) as wire:
            await wire.send(first)
            assert await tape.until(lambda: any("result" in (e.message or ()) for e in tape.events), 10), tape.events
            if revision != MODERN:
                await wire.send(INITIALIZED)
                await wire.send(PING)
                assert await tape.until(lambda: any(e.message == PONG for e in tape.events), 10), tape.events
        nursery.cancel_scope.cancel()
    assert tape.events[0].facts["transport"] == {"ws": "websocket"}.get(kind, kind)
    assert not [e for e in tape.events if e.kind == "mark"]


@pytest.mark.parametrize("scheme", ["https", "wss", "tls"])
async def test_a_certificate_is_checked(scheme: str, tmp_path: Path) -> None:
    config, trusting = over_tls(tmp_path)
    tape = Tape()
    async with trio.open_nursery() as nursery:
        if scheme == "tls":
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(str(config.certfile), config.keyfile)
            url = await nursery.start(partial(Server("s").serve_tcp, port=0, ssl_context=context))
        else:
            serve = Server("s").serve_http if scheme == "https" else Server("s").serve_websocket
            url = await nursery.start(partial(serve, config=config))
        with pytest.raises(TransportError, match="certificate"):
            async with open_wire_for(url)(Tape(), 0, LEGACY):
                pass
        async with open_wire_for(url, ssl_context=trusting)(tape, 0, LEGACY) as wire:
            await wire.send(HELLO | {"params": {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": ME}})
            assert await tape.until(lambda: any("result" in (e.message or ()) for e in tape.events), 10), tape.events
        nursery.cancel_scope.cancel()
