"""How long a cancellation takes to reach the cancel scope of a handler, while other calls keep the server busy."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.load import wire
from benchmarks.load.http import Connection, HttpLoad, post
from benchmarks.load.links import LinkLoad
from benchmarks.load.moments import expect
from benchmarks.measure.processes import LINUX
from benchmarks.measure.samples import Comparison, Group, Target, Times
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from benchmarks.load.wire import Era
    from benchmarks.options import Options

IN_FLIGHT = 64
CANCELLED, CALL = "until the scope is cancelled", "round trip of a call that does nothing"
SOON = Target("<=", 1.5)
LONGER = 6
"""How much longer a sample is than others: one cancellation follows the other, and of a hundred the 99th percentile is
nearly the slowest."""
_FIRST = 1 << 40  # ids of calls that are cancelled are above those of others


class Waiting(Protocol):
    """A server that is kept busy, and gets calls that wait to be cancelled."""

    @property
    def load(self) -> LinkLoad | HttpLoad:
        """What keeps it busy."""

    def wait(self, number: int, file: str) -> None:
        """Make a call that waits."""

    def cancel(self, number: int) -> None:
        """Cancel it."""


def _call(number: int, file: str, era: Era) -> bytes:
    return wire.call(number, "wait", {"number": number, "file": file}, era)


def _cancellation(number: int) -> bytes:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}}
    return wire.line(message)


class OverLink:
    """Over stdio or a WebSocket, where everything shares one stream, and a notification cancels."""

    def __init__(self, transport: str) -> None:
        self.load = LinkLoad(server_command("more_tools", transport), transport)
        # Two threads write, and a long write to a pipe is not atomic.
        lock = threading.Lock()

        def locked(write: Callable[[bytes], object]) -> Callable[[bytes], None]:
            def locked_write(data: bytes) -> None:
                with lock:
                    write(data)

            return locked_write

        self._locked = locked

    def greet(self) -> None:
        self.load.greet()
        self.load.write = self._locked(self.load.write)

    def wait(self, number: int, file: str) -> None:
        self.load.write(self.load.framing.frame(_call(number, file, "modern")))

    def cancel(self, number: int) -> None:
        self.load.write(self.load.framing.frame(_cancellation(number)))


class OverHttp:
    """Over HTTP, where a call has a connection: its end cancels in the modern era, a notification in the legacy era."""

    def __init__(self, era: Era) -> None:
        self.load = HttpLoad(server_command("more_tools", "http"), era)
        self._era = era
        self._connection: Connection | None = None
        self._other: Connection | None = None

    def greet(self) -> None:
        self.load.greet()

    def wait(self, number: int, file: str) -> None:
        if self._era == "legacy" and self._other is None:
            self._other = self.load.connect()
        self._connection = self.load.connect()
        head = self.load.head_of_calls.replace(b"Mcp-Name: add", b"Mcp-Name: wait")
        self._connection.send(post(head, _call(number, file, self._era)))

    def cancel(self, number: int) -> None:
        assert self._connection is not None
        if self._other is None:
            self._connection.close()
            return
        self._other.send(post(self.load.head_of_calls, _cancellation(number)))
        self._other.answer()
        self._connection.close()


def run(options: Options) -> Iterator[Group]:
    """Yield a group for each transport."""
    if not LINUX:
        return  # its clock is the same in all processes
    kinds: dict[str, OverLink | OverHttp] = {
        "stdio": OverLink("stdio"),
        "WebSocket": OverLink("websocket"),
        "HTTP, modern": OverHttp("modern"),
        "HTTP, legacy": OverHttp("legacy"),
    }
    with ExitStack() as stack:
        for kind in kinds.values():
            stack.callback(kind.load.close)
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        for place, (case, kind) in enumerate(kinds.items()):
            options.progress(f"cancellation, {case}")
            file = Path(directory, str(place))
            file.touch()
            kind.greet()
            kind.load.throughput(IN_FLIGHT, min(0.3, options.seconds))
            kind.load.measured = Times()
            samples: dict[str, list[float]] = {CANCELLED: [], CALL: []}
            for turn in range(options.rounds):
                seconds = options.seconds * (1 if options.quick else LONGER)
                took = _sample(kind, file, _FIRST + (turn << 20), seconds)
                samples[CANCELLED].append(took)
                samples[CALL].append(kind.load.measured.tails[-1])
                options.progress(f"round {turn + 1}/{options.rounds}  {case}: {took:,.4g}")
            title = f"{case}, {IN_FLIGHT} in flight: 99 of 100 take at most"
            yield Group("cancellation", title, "µs", samples, [Comparison(CANCELLED, CALL, SOON)])


def _sample(kind: Waiting, file: Path, first: int, seconds: float) -> float:
    """Cancel one call after the other, and return the 99th percentile of the microseconds that it took."""
    took: list[int] = []
    busy = threading.Thread(target=kind.load.throughput, args=(IN_FLIGHT, seconds))
    busy.start()
    with file.open() as lines:
        lines.seek(0, os.SEEK_END)
        number = first
        while busy.is_alive():
            kind.wait(number, str(file))
            expect(lines, number)
            begun = time.perf_counter_ns()
            kind.cancel(number)
            took.append(expect(lines, number) - begun)
            number += 1
    busy.join()
    return sorted(took)[len(took) * 99 // 100] / 1000
