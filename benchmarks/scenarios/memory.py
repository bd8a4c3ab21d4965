"""Calls per second between a client and a server in one process."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks._measure import Comparison, Target
from benchmarks._options import peer_installed
from benchmarks._throughput import Worker, groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._measure import Group
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


def run(options: Options) -> Iterator[Group]:
    """Yield a group for sequential calls and one for 64 in flight."""
    chosen = options.select({**OURS, **(PEER if peer_installed() else {}), **BARE})
    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        for label, (module, variant) in chosen.items():
            workers[label] = Worker(module, variant)
            stack.callback(workers[label].close)
        for worker in workers.values():
            worker.wait_ready()
        yield from groups("memory", workers, {1: "sequential", 64: "64 in flight"}, COMPARISONS, options)
