"""Slow clients of an HTTP server: ``python -m benchmarks.load.slow URL COUNT``.

COUNT clients read an answer, a KiB a second. COUNT more write a request, a byte a second: half of them its head, half
its body. When all have begun it prints a line, and goes on until its stdin ends. It fails if a client was not under way
until then.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import sys
import time
from urllib.parse import urlsplit

from benchmarks.load import wire
from benchmarks.load.http import head_for, post
from benchmarks.load.wire import WrongAnswer

PERIOD = 1.0  # seconds between two signs of life of a client
TEXT = "x" * 32768  # the answer has it twice: more than the two buffers of a connection take, some 20 KiB
READ = 1024  # bytes
PATIENCE = 10.0  # seconds for the rest of an answer, at the end


class Reader:
    """A client that reads slowly."""

    def __init__(self, address: tuple[str, int], head: bytes, number: int) -> None:
        self._socket = socket.socket()
        # Small buffers at both ends, as over a network: on loopback the server's would take some MiB.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1460)
        self._socket.connect(address)
        self._socket.sendall(post(head, wire.call(number, "echo", {"text": TEXT}, "modern")))
        self._answer = self._socket.recv(READ)

    def live(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._answer += self._socket.recv(READ, socket.MSG_DONTWAIT)

    def check(self) -> None:
        if len(self._answer) > len(TEXT):
            raise WrongAnswer("a slow reader was so fast that it nearly has its whole answer")
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.settimeout(PATIENCE)
        head, blank, _ = self._answer.partition(b"\r\n\r\n")
        left = len(head + blank) + int(head.lower().partition(b"content-length: ")[2].split()[0]) - len(self._answer)
        while left > 0:
            if not (data := self._socket.recv(left)):
                raise WrongAnswer("a slow reader's answer was cut off")
            left -= len(data)


class Writer:
    """A client that writes slowly."""

    def __init__(self, address: tuple[str, int], head: bytes, number: int) -> None:
        request = post(head, wire.call(number, "echo", {"text": TEXT[:1024]}, "modern"))
        begun = request.index(b"\r\n\r\n") // 2 if number % 2 else request.index(b"\r\n\r\n") + 100
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(request[:begun])
        self._rest = iter(request[begun:])

    def live(self) -> None:
        self._socket.send(bytes([next(self._rest)]))

    def check(self) -> None:
        try:
            data = self._socket.recv(READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        raise WrongAnswer(f"a slow writer was answered: {data!r}")


def main(url: str, count: int) -> None:
    parts = urlsplit(url)
    head = head_for(url, f"MCP-Protocol-Version: {wire.MODERN_VERSION}", "Mcp-Method: tools/call", "Mcp-Name: echo")
    address = (str(parts.hostname), parts.port or 0)
    clients = [kind(address, head, number) for number in range(count) for kind in (Reader, Writer)]
    print("all have begun", flush=True)
    due = time.monotonic()
    for client in itertools.cycle(clients):
        # Evenly spread: that the clients are many must not look like one that comes in bursts.
        due = max(due + PERIOD / len(clients), time.monotonic() - PERIOD)
        if select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
            break
        client.live()
    for client in clients:
        client.check()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
