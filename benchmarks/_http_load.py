"""The neutral load generator for HTTP: raw sockets and ready-made requests; no HTTP client is in the figures."""

from __future__ import annotations

import json
import selectors
import socket
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from . import _wire
from ._processes import Process, ProcessFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

_B = 7


class HttpLoad:
    """A server process that answers ``add`` calls of the modern era over HTTP; it says its URL in its first line."""

    def __init__(self, command: Sequence[str]) -> None:
        self.process = Process(command)
        self._connections: list[Connection] = []
        self._next_id = 1

    def greet(self) -> None:
        """Wait for its URL, and make one call."""
        with self.process.deadline():
            url = urlsplit(self.process.read_line().decode().strip())
            assert url.hostname is not None
            assert url.port is not None
            self._address = (url.hostname, url.port)
            self._head = (
                f"POST {url.path} HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
                "Accept: application/json, text/event-stream\r\n"
                f"MCP-Protocol-Version: {_wire.MODERN_VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: add\r\n"
            ).encode()
            self._open(1)[0].send(self._request(0))
            _wire.check_tool_result(_wire.result_of(self._open(1)[0].answer(), 0), _B)

    def _open(self, count: int) -> list[Connection]:
        while len(self._connections) < count:
            self._connections.append(Connection(self._address))
        return self._connections[:count]

    def _request(self, number: int) -> bytes:
        body = _wire.call(number, "add", {"a": number, "b": _B}, "modern").rstrip()
        return b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body)

    def throughput(self, connections: int, seconds: float) -> float:
        """Calls answered per second with one outstanding on each connection; every answer is checked, at the end."""
        first_id, answers = self._next_id, []
        with selectors.DefaultSelector() as selector, self.process.deadline(seconds + 60):
            for connection in self._open(connections):
                selector.register(connection.socket, selectors.EVENT_READ, connection)
            started = time.perf_counter()
            stop = started + seconds
            outstanding = 0
            for connection in self._connections[:connections]:
                connection.send(self._request(self._take_id()))
                outstanding += 1
            while outstanding:
                for key, _ in selector.select():
                    connection = key.data
                    answer = connection.take()
                    if answer is None:
                        continue
                    answers.append(answer)
                    if time.perf_counter() < stop:
                        connection.send(self._request(self._take_id()))
                    else:
                        outstanding -= 1
            elapsed = time.perf_counter() - started
        _wire.check_add_answers(b"\n".join(answers), first_id, len(answers), _B)
        return len(answers) / elapsed

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def close(self) -> None:
        for connection in self._connections:
            connection.socket.close()
        self.process.close()


class Connection:
    """One connection, kept alive; it understands what the contenders answer: a length, or one event in chunks."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = b""

    def send(self, request: bytes) -> None:
        self.socket.sendall(request)

    def answer(self) -> bytes:
        """The JSON of the next answer; blocks until it is there."""
        while (found := self.take()) is None:
            pass
        return found

    def take(self) -> bytes | None:
        """Read once: the JSON of the answer, or None while it is not complete."""
        data = self.socket.recv(65536)
        if not data:
            raise ProcessFailed(f"a server closed its connection after {self._buffer[:300]!r}")
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank:
            return None
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if b"content-length" in fields:
            if len(body) < int(fields[b"content-length"]):
                return None
        elif not body.endswith(b"\r\n0\r\n\r\n"):
            return None
        else:
            body = body.partition(b"data: ")[2].partition(b"\r\n")[0]
        self._buffer = b""
        if not head.startswith(b"HTTP/1.1 200"):
            raise _wire.WrongAnswer(f"not 200: {head[:100]!r} {body[:300]!r}")
        json.loads(body)
        return body
