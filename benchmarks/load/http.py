"""The neutral load generator for HTTP: raw sockets and ready-made requests, so the figures include no HTTP client."""

from __future__ import annotations

import contextlib
import json
import math
import selectors
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from benchmarks.load import wire
from benchmarks.measure.processes import DEADLINE, ROOT, Process, ProcessFailed
from benchmarks.measure.samples import Times

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.load.wire import Era

_B = 7


class HttpServer:
    """A server process that prints its URL on its first line."""

    def __init__(self, command: Sequence[str], root: Path = ROOT) -> None:
        self.process = Process(command, root)
        self.url = ""

    def wait_ready(self) -> None:
        """Wait until the server has printed its URL."""
        with self.process.deadline():
            self.url = self.process.read_line().decode().strip()

    def connect(self) -> Connection:
        """Open a connection to the server."""
        url = urlsplit(self.url)
        assert url.hostname is not None
        assert url.port is not None
        return Connection((url.hostname, url.port))

    def head(self, *fields: str) -> bytes:
        """Return the head of a POST with these additional fields, all but ``Content-Length``."""
        return head_for(self.url, *fields)

    def open_session(self, connection: Connection) -> str:
        """Do the handshake of the legacy era, and return the id of the session: empty if the server keeps none."""
        connection.send(post(self.head(), wire.initialize(0)))
        wire.result_of(connection.answer(), 0)
        session = connection.fields.get(b"mcp-session-id", b"").decode()
        connection.send(post(self.head(*of_session(session)), wire.initialized()))
        connection.answer()
        return session

    def close(self) -> None:
        self.process.close()


def of_session(session: str) -> list[str]:
    """Return the header fields of a request in a session of the legacy era."""
    revision = f"MCP-Protocol-Version: {wire.LEGACY_VERSION}"
    return [revision, f"Mcp-Session-Id: {session}"] if session else [revision]


def head_for(url: str, *fields: str) -> bytes:
    """Return the head of a POST to this URL with these additional fields, all but ``Content-Length``."""
    parts = urlsplit(url)
    lines = [
        f"POST {parts.path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Content-Type: application/json",
        "Accept: application/json, text/event-stream",
        *fields,
    ]
    return "".join(f"{line}\r\n" for line in lines).encode()


def post(head: bytes, body: bytes) -> bytes:
    """Return a complete request."""
    return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


class HttpLoad(HttpServer):
    """A server process that answers ``add`` calls over HTTP; in the legacy era they all belong to one session.

    Args:
        command: The command that starts it.
        era: The era of the calls.
        root: The directory from which it imports.
        new_heads: Whether no two requests have the same head, so that remembering heads gains nothing.

    Attributes:
        measured: What was measured beside each `throughput`.
        head_of_calls: The head of a call of ``add``, after `greet`.
    """

    def __init__(
        self, command: Sequence[str], era: Era = "modern", root: Path = ROOT, *, new_heads: bool = False
    ) -> None:
        super().__init__(command, root)
        self.measured = Times()
        self._era = era
        self._new_heads = new_heads
        self._template = wire.add_template(era)
        self.head_of_calls = b""
        self._connections: list[Connection] = []
        self._next_id = 1

    def greet(self) -> None:
        """Wait for the server's URL, open the session, and make one call."""
        self.wait_ready()
        with self.process.deadline():
            if self._era == "legacy":
                with contextlib.closing(self.connect()) as first:
                    self.head_of_calls = self.head(*of_session(self.open_session(first)))
            else:
                revision = f"MCP-Protocol-Version: {wire.MODERN_VERSION}"
                self.head_of_calls = self.head(revision, "Mcp-Method: tools/call", "Mcp-Name: add")
            self.open(1)

    def open(self, count: int) -> None:
        """Replace all connections with new ones, and make a call on each."""
        # A server may have closed the old ones, which were idle between two samples.
        self._hang_up()
        self.add(count)

    def add(self, count: int) -> None:
        """Open more connections, and make a call on each."""
        for _ in range(count):
            self._connections.append(self.connect())
            self._call(self._connections[-1])

    def call(self, connection: Connection, tool: str, arguments: dict[str, Any]) -> Any:
        """Call any tool of the modern era, and return its value."""
        number = self._take_id()
        connection.send(self.request_of(number, tool, arguments))
        return wire.result_of(connection.answer(), number)["structuredContent"]["result"]

    def request_of(self, number: int, tool: str, arguments: dict[str, Any]) -> bytes:
        """Return a call of any tool of the modern era."""
        revision = f"MCP-Protocol-Version: {wire.MODERN_VERSION}"
        head = self.head(revision, "Mcp-Method: tools/call", f"Mcp-Name: {tool}")
        return post(head, wire.call(number, tool, arguments, "modern"))

    def _call(self, connection: Connection) -> None:
        number = self._take_id()
        connection.send(self._request(number))
        wire.check_tool_result(wire.result_of(connection.answer(), number), number + _B)

    def times(self, seconds: float) -> list[float]:
        """Call over the first connection, one call after the other, and return the seconds that each took."""
        found = []
        with self.process.deadline(seconds + DEADLINE):
            started = time.perf_counter()
            stop = started + seconds
            while started < stop:
                self._call(self._connections[0])
                found.append(-started + (started := time.perf_counter()))
        return found

    def _hang_up(self) -> None:
        while self._connections:
            self._connections.pop().close()

    def _request(self, number: int) -> bytes:
        head = b"%bX-Differs: %d\r\n" % (self.head_of_calls, number) if self._new_heads else self.head_of_calls
        return post(head, self._template % (number, number, _B))

    def throughput(self, connections: int, seconds: float) -> float:
        """Return the calls answered per second, with one outstanding on each connection.

        Every response is checked, after the clock has stopped.
        """
        self.open(connections)
        before = self.used()
        took, elapsed = self._keep_busy(seconds)
        self.measured.add(took, self.used() - before)
        return len(took) / elapsed

    def used(self) -> float:
        """Return the seconds of CPU time that the server has taken so far; 0 where they can't be read."""
        return self.process.used()

    def answer(self, calls: int) -> None:
        """Have the server answer this many calls over the open connections; every answer is checked."""
        if len(self._keep_busy(DEADLINE, calls)[0]) != calls:
            raise self.process.failure(f"did not answer {calls} calls in {DEADLINE:.0f} seconds")

    def _keep_busy(self, seconds: float, calls: float = math.inf) -> tuple[list[float], float]:
        """Return how long each call took, and how long all of it."""
        with selectors.DefaultSelector() as selector, self.process.deadline(seconds + 60):
            first_id, answers, took = self._next_id, [], []
            for connection in self._connections:
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            end_id = first_id + calls
            started = time.perf_counter()
            stop = started + seconds
            outstanding = 0
            for connection in self._connections:
                connection.begun = time.perf_counter()
                connection.send(self._request(self._take_id()))
                outstanding += 1
            while outstanding:
                for key, _ in selector.select():
                    connection = key.data
                    answer = connection.take()
                    if answer is None:
                        continue
                    answers.append(answer)
                    now = time.perf_counter()
                    took.append(now - connection.begun)
                    if self._next_id < end_id and now < stop:
                        connection.begun = now
                        connection.send(self._request(self._take_id()))
                    else:
                        outstanding -= 1
            elapsed = time.perf_counter() - started
        wire.check_add_answers(b"\n".join(answers), first_id, len(answers), _B)
        return took, elapsed

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def close(self) -> None:
        self._hang_up()
        super().close()


def _joined(chunks: bytes) -> bytes:
    """Return the body that comes in these chunks."""
    parts = []
    size, _, rest = chunks.partition(b"\r\n")
    while length := int(size, 16):
        parts.append(rest[:length])
        size, _, rest = rest[length + 2 :].partition(b"\r\n")
    return b"".join(parts)


def last_data(events: bytes) -> bytes:
    """Return the data of the last event of a stream; an event before it may only give its id."""
    return events.rpartition(b"data: ")[2].partition(b"\n")[0].rstrip(b"\r")


class Connection:
    """A persistent connection. It understands bodies with a length or in chunks, of JSON or of events.

    Attributes:
        fields: The header fields of the last response, by lower-case name.
        begun: When the last request was sent; set by who measures that.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.fields: dict[bytes, bytes] = {}
        self.begun = 0.0
        self._buffer = b""

    def close(self) -> None:
        self.socket.close()

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def answer(self) -> bytes:
        """Wait for the next response, and return its JSON; return nothing for a 202."""
        while (found := self.take()) is None:
            pass
        return found

    def take(self) -> bytes | None:
        """Read once, and return the JSON of the response, or None if it is not complete yet."""
        data = self.socket.recv(65536)
        if not data:
            raise ProcessFailed(f"a server closed its connection after {self._buffer[:300]!r}")
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return None
        pairs = (line.partition(b": ") for line in head.split(b"\r\n")[1:])
        fields = {name.lower(): value for name, _, value in pairs}
        if b"content-length" in fields:
            if len(body) < int(fields[b"content-length"]):
                return None
        elif body != b"0\r\n\r\n" and not body.endswith(b"\r\n0\r\n\r\n"):
            return None
        else:
            body = _joined(body)
        if fields.get(b"content-type", b"").startswith(b"text/event-stream"):
            body = last_data(body)
        self._buffer, self.fields = b"", fields
        if head.startswith(b"HTTP/1.1 202"):
            return b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise wire.WrongAnswer(f"not 200: {head[:100]!r} {body[:300]!r}")
        json.loads(body)
        return body
