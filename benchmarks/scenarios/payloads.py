"""CPU time and wall clock per MiB of text that a server echoes, over each transport, and a bare loop on the same."""

from __future__ import annotations

import contextlib
import re
import socket
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from benchmarks.load import wire
from benchmarks.load.http import head_for, last_data, post
from benchmarks.load.links import connect
from benchmarks.measure.processes import DEADLINE, LINUX, ROOT, Process, ProcessFailed
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import our_server, server_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.options import Options

KIB, MIB = 1 << 10, 1 << 20
SIZES = {"1 KiB": KIB, "64 KiB": 64 * KIB, "1 MiB": MIB, "4 MiB": 4 * MIB, "16 MiB": 16 * MIB}
# Quotes, a newline, an accent and an astral character: a copy that skips escaping or decoding would show.
TEXT = 'The "quick" brown fox,\n naïve as ever 🦊, jumps over the lazy dog. '
BASE64 = "iVBORw0KGgoAAAANSUhEUgAAB4AAAAQ4CAYAAADo08FDAAAAAXNSR0IArs4c6QAA"
OURS, BARE = "ours", "bare loop"
LIMIT = Target("<=", 1.3)

# Kind of the program in servers/, era, and whether answers are stored, which makes event streams of them.
TRANSPORTS: dict[str, tuple[str, wire.Era, bool]] = {
    "stdio": ("stdio", "modern", False),
    "TCP": ("tcp", "modern", False),
    "Unix socket": ("unix", "modern", False),
    "WebSocket": ("websocket", "modern", False),
    "HTTP, modern": ("http", "modern", False),
    "HTTP, legacy": ("http", "legacy", False),
    "HTTP, events": ("http", "legacy", True),
}


class Channel(Protocol):
    """A connection on which a message is exchanged for its answer."""

    process: Process

    def open(self) -> None:
        """Wait for the server, and connect."""

    def exchange(self, message: bytes) -> bytes:
        """Send a message, and return the answer, as JSON."""

    def close(self) -> None: ...


class Pipe:
    """The standard streams of a server."""

    def __init__(self, command: list[str], root: Path = ROOT) -> None:
        self.process = Process(command, root)

    def open(self) -> None:
        pass

    def exchange(self, message: bytes) -> bytes:
        with _sent(self.process.write, message):
            return self.process.read_line()

    def close(self) -> None:
        self.process.close()


class Socket:
    """A connection to the URL that a server prints; by it, its kind is told.

    Args:
        command: The command that starts the server.
        era: The era of the calls over HTTP.
    """

    def __init__(self, command: list[str], era: wire.Era = "modern") -> None:
        self.process = Process(command)
        self._era = era
        self._socket: socket.socket | None = None
        self._head = b""
        self._kind = ""

    def open(self) -> None:
        url = self.process.read_line().decode().strip()
        self._kind = urlsplit(url).scheme
        if self._kind != "http":
            self._socket = connect(url)
            return
        address = urlsplit(url)
        assert address.hostname is not None
        self._socket = socket.create_connection((address.hostname, address.port or 80))
        self._head = head_for(url, f"MCP-Protocol-Version: {wire.MODERN_VERSION}", *_OF_CALL)
        if self._era == "legacy":
            revision = f"MCP-Protocol-Version: {wire.LEGACY_VERSION}"
            self._head = head_for(url)
            self.exchange(wire.initialize(0)[:-1])
            self._head = head_for(url, revision, f"Mcp-Session-Id: {self._session}")
            self.exchange(wire.initialized()[:-1])

    def exchange(self, message: bytes) -> bytes:
        assert self._socket is not None
        if self._kind == "ws":
            with _sent(self._socket.sendall, _frame(message)):
                return self._read_frame()
        if self._kind == "http":
            with _sent(self._socket.sendall, post(self._head, message)):
                return self._read_response()
        with _sent(self._socket.sendall, message + b"\n"):
            return self._read_until(bytearray(), lambda data: data.endswith(b"\n"))

    def _read_until(self, data: bytearray, complete: Callable[[bytearray], bool]) -> bytes:
        assert self._socket is not None
        while not complete(data):
            if not (piece := self._socket.recv(1 << 18)):
                raise ProcessFailed(f"a server closed its connection after {bytes(data[:300])!r}")
            data += piece
        return bytes(data)

    def _read_frame(self) -> bytes:
        while True:
            data = bytearray(self._read_until(bytearray(), lambda data: len(data) >= 10))
            width = {126: 2, 127: 8}.get(data[1], 0)
            size = int.from_bytes(data[2 : 2 + width], "big") if width else data[1]
            whole = self._read_until(data, lambda data: len(data) >= 2 + width + size)  # noqa: B023
            if whole[0] == 0x81:  # not a ping
                return whole[2 + width :]

    def _read_response(self) -> bytes:
        data = bytearray(self._read_until(bytearray(), lambda data: b"\r\n\r\n" in data[:65536]))
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        if found := re.search(rb"\r\nmcp-session-id: (\S+)", head, re.IGNORECASE):
            self._session = found[1].decode()
        rest = bytearray(body)
        if b"content-length" in fields:
            length = int(fields[b"content-length"])
            whole = self._read_until(rest, lambda data: len(data) >= length)
            return last_data(whole) if fields.get(b"content-type", b"").startswith(b"text/event-stream") else whole
        if head.split()[1] == b"202":
            return b""
        whole = self._read_until(rest, lambda data: data.endswith(b"0\r\n\r\n"))
        events, place = [], 0
        while size := int(whole[place : (start := whole.index(b"\r\n", place) + 2) - 2], 16):
            events.append(whole[start : start + size])
            place = start + size + 2
        return last_data(b"".join(events))

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self.process.close()


_OF_CALL = ("Mcp-Method: tools/call", "Mcp-Name: echo")


@contextlib.contextmanager
def _sent(send: Callable[[bytes], object], data: bytes) -> Iterator[None]:
    """Send during the block, in a thread: the answer may begin before the whole request has been read."""
    sender = threading.Thread(target=send, args=(data,), daemon=True)
    sender.start()
    yield
    sender.join()


def _frame(payload: bytes) -> bytes:
    """Return a text frame, masked with zeros: the server works as hard as with any other mask."""
    size = len(payload)
    if size < 126:
        return b"\x81%b\0\0\0\0%b" % (bytes([0x80 | size]), payload)
    width, code = (2, b"\xfe") if size < 1 << 16 else (8, b"\xff")
    return b"\x81%b%b\0\0\0\0%b" % (code, size.to_bytes(width, "big"), payload)


class Echo:
    """A server that echoes texts, and what that costs.

    Attributes:
        costs: Milliseconds of its CPU time per MiB of text, one figure for each sample.
    """

    def __init__(self, channel: Channel, era: wire.Era = "modern") -> None:
        self.channel = channel
        self.costs: list[float] = []
        self._era = era
        self._ids = 0

    def sample(self, text: str, calls: int) -> float:
        """Return the milliseconds per MiB of text; making the requests and checking the answers is not counted."""
        elapsed, process = 0.0, self.channel.process
        used = 0.0
        with process.deadline():
            for _ in range(calls):
                self._ids += 1
                message = wire.call(self._ids, "echo", {"text": text}, self._era)[:-1]
                before, started = process.cpu_time() if LINUX else 0.0, time.perf_counter()
                answer = self.channel.exchange(message + b"\n" if isinstance(self.channel, Pipe) else message)
                elapsed += time.perf_counter() - started
                used += (process.cpu_time() if LINUX else 0.0) - before
                wire.check_tool_result(wire.result_of(answer, self._ids), text)
        size = len(text.encode()) * calls / MIB
        self.costs.append(used * 1000 / size)
        return elapsed * 1000 / size


def _echoes(transport: str, folder: str, before: Path | None) -> dict[str, Echo]:
    """Return the contenders over a transport."""
    found: dict[str, Echo] = {}
    if transport == "stdio":
        found[OURS] = Echo(Pipe(server_command("ours")))
        if before is not None:
            found["before"] = Echo(Pipe(server_command("ours"), before))
        found[BARE] = Echo(Pipe(server_command("bare")))
        if peer_installed():
            found["official"] = Echo(Pipe(server_command("official")))
        return found
    # Another checkout is measured over stdio alone: it may be older than the other transports and settings.
    kind, era, store = TRANSPORTS[transport]
    if kind != "http":
        command = server_command("links", kind, f"{folder}/{OURS}")
    elif store:
        command = server_command("http_stores", "memory")
    else:
        command = our_server("h11", max_message_size=64 * MIB)
    found[OURS] = Echo(Socket(command, era), era)
    command = server_command("bare_links", "events" if store else kind, f"{folder}/bare")
    found[BARE] = Echo(Socket(command), era)
    return found


def run(options: Options) -> Iterator[Group]:
    """Yield a group of CPU time and one of wall clock for each transport.

    Every sample of at least a MiB moves as much text as the largest size, in one call or in several.
    """
    sizes = dict(list(SIZES.items())[:3]) if options.quick else SIZES
    texts = {name: TEXT * max(1, size // len(TEXT.encode())) for name, size in sizes.items()}
    last = max(sizes.values())
    cases = {name: (text, max(1, min(last // sizes[name], 64))) for name, text in texts.items()}
    if not options.quick:
        cases["4 MiB of base64"] = BASE64 * (4 * MIB // len(BASE64)), 4
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for transport, (kind, _, _) in TRANSPORTS.items():
            if kind == "http" and not LINUX:  # where the runner h11 is
                continue
            with ExitStack() as each:
                echoes = _echoes(transport, folder, options.before)
                for echo in echoes.values():
                    each.callback(echo.channel.close)
                options.progress(f"payloads, {transport}")
                for echo in echoes.values():
                    with echo.channel.process.deadline(DEADLINE):
                        echo.channel.open()
                    echo.sample("warm", 20)
                    echo.costs.clear()
                yield from _groups(transport, echoes, cases, options)


def _groups(
    transport: str, echoes: dict[str, Echo], cases: dict[str, tuple[str, int]], options: Options
) -> Iterator[Group]:
    costs: dict[str, list[float]] = {}

    def sample(echo: Echo, label: str, text: str, calls: int) -> float:
        elapsed = echo.sample(text, calls)
        costs.setdefault(label, []).append(echo.costs.pop())
        return elapsed

    contenders = {}
    for case, (text, calls) in cases.items():
        for name, echo in echoes.items():
            label = f"{name}, {case}"
            contenders[label] = partial(sample, echo, label, text, calls)
    times = interleave(contenders, options.rounds, options.progress)
    found = []
    for case in cases:
        limit = LIMIT if "MiB" in case else None
        found += [
            Comparison(f"{OURS}, {case}", f"{other}, {case}", limit if other == BARE else None)
            for other in echoes
            if other != OURS
        ]
    if "16 MiB" in cases:
        found += [Comparison(f"{each}, 16 MiB", f"{each}, 1 MiB", LIMIT if each == OURS else None) for each in echoes]
    if LINUX:
        yield Group("payloads", f"{transport}, CPU time of the server", "ms/MiB", costs, found)
    yield Group("payloads", f"{transport}, wall clock", "ms/MiB", times, found)
