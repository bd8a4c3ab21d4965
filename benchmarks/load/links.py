"""The neutral load generator for full-duplex transports: raw pipes or sockets, and ready-made messages.

It frames as stdio does (a line for each message), or as WebSocket does (an unfragmented text frame for each).
"""

from __future__ import annotations

import base64
import json
import os
import socket
import time
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from benchmarks.load import wire
from benchmarks.measure.processes import DEADLINE, Process, ProcessFailed
from benchmarks.measure.samples import Times

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_B = 7
_CHUNK = 1 << 16


class Framing(Protocol):
    """How messages are told apart on a stream of bytes."""

    def frame(self, line: bytes) -> bytes:
        """Return a message as it is sent; the message comes as a line."""

    def take(self, data: bytes) -> list[bytes]:
        """Return the messages that these bytes complete."""


class Lines:
    """A line for each message: stdio, TCP and Unix sockets."""

    def __init__(self) -> None:
        self._rest = b""

    def frame(self, line: bytes) -> bytes:
        return line

    def take(self, data: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines


class Frames:
    """A text frame for each message: the client's end of a WebSocket."""

    def __init__(self) -> None:
        self._rest = b""

    def frame(self, line: bytes) -> bytes:
        """Return a message as a frame, masked with zeros: the server works as hard as with any other mask."""
        payload = line[:-1]
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        return b"\x81%b\0\0\0\0%b" % (length, payload)

    def take(self, data: bytes) -> list[bytes]:
        data = self._rest + data
        messages, place = [], 0
        while len(data) - place >= 4:
            size, start = data[place + 1], place + 2
            if size == 126:
                size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
            if data[place] not in (0x81, 0x89) or size == 127:
                raise wire.WrongAnswer(f"not a frame of an answer: {data[place : place + 300]!r}")
            if len(data) < start + size:
                break
            if data[place] == 0x81:  # not a ping, which needs no answer so soon
                messages.append(data[start : start + size])
            place = start + size
        self._rest = data[place:]
        return messages


def connect(target: str) -> socket.socket:
    """Return a connection to a URL that a server has printed; with ``ws://`` the handshake is done."""
    if target.startswith("unix:"):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(target.removeprefix("unix:"))
        return connection
    url = urlsplit(target)
    assert url.hostname is not None
    assert url.port is not None
    connection = socket.create_connection((url.hostname, url.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if url.scheme == "ws":
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {url.path} HTTP/1.1",
            f"Host: {url.netloc}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Protocol: mcp",
            f"Sec-WebSocket-Key: {key}",
        ]
        connection.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += (byte := connection.recv(1))
            if not byte or not b"HTTP/1.1 101 ".startswith(head[:13]):
                raise ProcessFailed(f"a server refused the handshake of a WebSocket: {head + connection.recv(300)!r}")
    return connection


class LinkLoad:
    """A server process that answers ``add`` calls of the modern era over one link.

    Args:
        command: The command that starts it.
        transport: ``"stdio"``, or else the server prints a URL that is connected to.
        echo: Whether it does nothing but send back what it gets.

    Attributes:
        measured: What was measured beside the throughput.
        framing: How messages are told apart.
        write: Writes bytes to the server.
    """

    def __init__(self, command: Sequence[str], transport: str, *, echo: bool = False) -> None:
        self.process = Process(command)
        self.measured = Times()
        self._transport = transport
        self._echo = echo
        self.framing: Framing = Frames() if transport == "websocket" else Lines()
        self._template = wire.add_template("modern")
        self._next_id = 1
        self._socket: socket.socket | None = None
        self._read: Callable[[], bytes] = self.process.read
        self.write: Callable[[bytes], object] = self.process.write

    def greet(self) -> None:
        """Connect, and make some calls: the imports and caches of the first ones count as start-up."""
        with self.process.deadline():
            if self._transport != "stdio":
                self._socket = connect(self.process.read_line().decode().strip())
                self._read, self.write = self._receive, self._socket.sendall
        self._keep_busy(1, DEADLINE, 20)

    def _receive(self) -> bytes:
        assert self._socket is not None
        if not (data := self._socket.recv(_CHUNK)):
            raise self.process.failure("closed its connection")
        return data

    def throughput(self, in_flight: int, seconds: float) -> float:
        """Return the calls answered per second, with `in_flight` outstanding; every answer is checked."""
        before = self.process.used()
        took, elapsed = self._keep_busy(in_flight, seconds)
        self.measured.add(took, self.process.used() - before)
        return len(took) / elapsed

    def _requests(self, count: int) -> list[bytes]:
        first, self._next_id = self._next_id, self._next_id + count
        return [self._template % (i, i, _B) for i in range(first, first + count)]

    def _keep_busy(self, in_flight: int, seconds: float, calls: int = 1 << 60) -> tuple[list[float], float]:
        """Return how long each call took, and how long all of it.

        While the clock runs, answers are only counted and replaced by new requests. A call begins when its request is
        handed to the system, alone or with others, and ends when its answer is at hand.
        """
        read, write, frame, take = self._read, self.write, self.framing.frame, self.framing.take
        first_id, outstanding = self._next_id, 0
        begun: list[float] = []
        arrived: list[tuple[float, list[bytes]]] = []
        with self.process.deadline(seconds + DEADLINE):
            now = started = time.perf_counter()
            stop = started + seconds
            wanted = in_flight
            while True:
                if wanted and now < stop and len(begun) < calls:
                    data = b"".join(map(frame, self._requests(wanted)))
                    begun += [time.perf_counter()] * wanted
                    outstanding += wanted
                    write(data)
                if not outstanding:
                    break
                answers = take(read())
                now = time.perf_counter()
                arrived.append((now, answers))
                wanted = len(answers)
                outstanding -= wanted
            elapsed = now - started
        messages = [message for _, answers in arrived for message in answers]
        self._check(messages, first_id)
        moments = [moment for moment, answers in arrived for _ in answers]
        ids = [json.loads(message)["id"] for message in messages]
        return [moment - begun[i - first_id] for i, moment in zip(ids, moments, strict=True)], elapsed

    def _check(self, messages: list[bytes], first_id: int) -> None:
        if not self._echo:
            wire.check_add_answers(b"\n".join(messages), first_id, len(messages), _B)
        elif messages != [(self._template % (i, i, _B))[:-1] for i in range(first_id, self._next_id)]:
            raise wire.WrongAnswer("an echo did not give back what it was sent")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self.process.close()
