"""Calls per second between a client and a server in one process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.measure.processes import ROOT
from benchmarks.measure.samples import Comparison
from benchmarks.measure.throughput import Worker, groups
from benchmarks.options import peer_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.measure.samples import Group
    from benchmarks.options import Options

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

BEFORE = {
    "before, modern, encoded": ("our_memory", "modern-encoded"),
    "before, legacy, encoded": ("our_memory", "legacy-encoded"),
}

COMPARISONS = [
    Comparison("ours, modern, encoded", "official, modern, encoded", calls={1: 5.5, 64: 8.3}),
    Comparison("ours, legacy, encoded", "official, legacy, encoded", calls={1: 5, 64: 6.8}),
    Comparison("ours, modern, encoded", "official, modern, as it comes"),
    Comparison("ours, modern, as it comes", "official, modern, as it comes"),
    Comparison("ours, modern, encoded", "before, modern, encoded"),
    Comparison("ours, legacy, encoded", "before, legacy, encoded"),
    Comparison("ours, modern, encoded", "bare Trio loop, encoded"),
]


def run(options: Options) -> Iterator[Group]:
    """Yield two groups for sequential calls and two for 64 in flight: calls per second, and CPU time per call."""
    chosen = options.select(
        {**OURS, **(PEER if peer_installed() else {}), **(BEFORE if options.before else {}), **BARE}
    )
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for label, (module, variant) in chosen.items():
            root = options.before if label in BEFORE and options.before else ROOT
            workers[label] = Worker.of(module, variant, root=root)
            stack.callback(workers[label].close)
        for worker in workers.values():
            worker.wait_ready()
        cases = {1: "sequential", 64: "64 in flight"}
        yield from groups("memory", workers, cases, COMPARISONS, options, of="process")
