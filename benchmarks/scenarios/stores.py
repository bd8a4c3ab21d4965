"""CPU time that an event store adds to a call over HTTP in the legacy era, on the server and on the client."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpServer
from benchmarks.measure.processes import LINUX
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.measure.throughput import Worker
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

NONE, MEMORY, SQLITE = "no event store", "MemoryEventStore", "SqliteEventStore"
SHARED = "SqliteStores, whose sessions any process serves"
CASES = {1: "one call after the other", 32: "32 in flight"}
COMPARISONS = [
    Comparison(SQLITE, NONE, Target("<=", 1.35)),
    Comparison(MEMORY, NONE),
    Comparison(SQLITE, MEMORY),
    Comparison(SHARED, SQLITE, Target("<=", 1.25)),
]
CALLS = 1000  # in a sample of a second; at least as many as are in flight


class Pair:
    """A server and a client of it, each in a process of its own."""

    def __init__(self, *store: str) -> None:
        self.server = HttpServer(server_command("http_stores", *store))
        self.worker: Worker | None = None

    def connect(self) -> None:
        """Wait for the server, and start the client."""
        self.server.wait_ready()
        self.worker = Worker.of("our_http", "legacy", self.server.url)
        self.worker.wait_ready()

    def cost(self, in_flight: int, calls: int) -> float:
        """Return the microseconds of CPU time that both processes take for a call."""
        assert self.worker is not None
        processes = self.server.process, self.worker.process
        before = [process.cpu_time() for process in processes]
        self.worker.answer(in_flight, calls)
        return (sum(process.cpu_time() for process in processes) - sum(before)) * 1e6 / calls

    def close(self) -> None:
        if self.worker is not None:
            self.worker.close()
        self.server.close()


def run(options: Options) -> Iterator[Group]:
    """Yield a group for calls one after the other, and one for many in flight."""
    if not LINUX:
        options.progress("stores: CPU time of another process can be measured on Linux only")
        return
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pairs = {
            NONE: Pair(),
            MEMORY: Pair("memory"),
            SQLITE: Pair("sqlite", str(folder / "events.db")),
            SHARED: Pair("shared", str(folder / "stores.db")),
        }
        for pair in pairs.values():
            stack.callback(pair.close)
        for pair in pairs.values():
            pair.connect()
        for in_flight, case in CASES.items():
            options.progress(f"stores, {case}")
            calls = max(in_flight, round(CALLS * options.seconds))
            contenders = {label: partial(pair.cost, in_flight, calls) for label, pair in pairs.items()}
            samples = interleave(contenders, options.rounds, options.progress)
            yield Group("stores", f"add(a, b), {case}: CPU time of client and server", "µs/call", samples, COMPARISONS)
