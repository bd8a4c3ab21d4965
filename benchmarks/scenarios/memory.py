"""Calls per second between a client and a server in one process."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks._measure import Comparison, Group, Target, interleave
from benchmarks._options import peer_installed
from benchmarks._processes import Process, python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._options import Options

# label -> (module in contenders/, variant)
OURS = {
    "ours, modern, encoded": ("our_memory", "modern-encoded"),
    "ours, legacy, encoded": ("our_memory", "legacy-encoded"),
    "ours, modern, as it comes": ("our_memory", "modern"),
    "our sessions alone, modern, encoded": ("our_sessions", "modern"),
}
PEER = {
    "official, modern, encoded": ("official_memory", "modern-encoded"),
    "official, legacy, encoded": ("official_memory", "legacy-encoded"),
    "official, modern, as it comes": ("official_memory", "modern"),
    "official, legacy, as it comes": ("official_memory", "legacy"),
}
BARE = {"bare Trio loop, encoded": ("bare_memory", "encoded")}

COMPARISONS = [
    Comparison("ours, modern, encoded", "official, modern, encoded", Target(">=", 6)),
    Comparison("ours, legacy, encoded", "official, legacy, encoded", Target(">=", 6)),
    Comparison("ours, modern, encoded", "official, modern, as it comes"),
    Comparison("ours, modern, as it comes", "official, modern, as it comes"),
    Comparison("ours, modern, encoded", "bare Trio loop, encoded"),
]


class Worker:
    """A contender in its own process, idle until a sample is asked of it."""

    def __init__(self, module: str, variant: str) -> None:
        self._process = Process(python("-m", "benchmarks._worker", module, variant))

    def wait_ready(self) -> None:
        with self._process.deadline():
            self._process.read_line()

    def throughput(self, in_flight: int, seconds: float) -> float:
        with self._process.deadline(seconds + 60):
            self._process.write(f"{in_flight} {seconds}\n".encode())
            return float(self._process.read_line())

    def close(self) -> None:
        self._process.close()


def run(options: Options) -> Iterator[Group]:
    """One group sequentially and one with 64 calls in flight."""
    chosen = options.select({**OURS, **(PEER if peer_installed() else {}), **BARE})
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for label, (module, variant) in chosen.items():
            workers[label] = Worker(module, variant)
            stack.callback(workers[label].close)
        for worker in workers.values():
            worker.wait_ready()
        for in_flight, case in ((1, "sequential"), (64, "64 in flight")):
            options.progress(f"memory, {case}")
            samples = interleave(
                {label: partial(worker.throughput, in_flight, options.seconds) for label, worker in workers.items()},
                options.rounds,
                options.progress,
            )
            comparisons = [c for c in COMPARISONS if c.left in samples and c.right in samples]
            yield Group("memory", f"add(a, b), {case}", "calls/s", samples, comparisons)
