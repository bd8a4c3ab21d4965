"""Peak resident memory of a stdio server under the load of the stdio scenario."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load.pipes import Load
from benchmarks.measure.processes import ProcessFailed
from benchmarks.measure.samples import Comparison, Group, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options


def _peak(name: str, seconds: float) -> float:
    with closing(Load(server_command(name), "modern")) as load:
        load.greet()
        load.throughput(64, seconds)
        peak = load.process.peak_rss()
    if peak is None:
        raise ProcessFailed("the server ended before its memory could be read")
    return peak


def run(options: Options) -> Iterator[Group]:
    """Measure a new server for each sample, because a process's memory peak never goes down."""
    options.progress("peak memory")
    names = {"ours": "ours", **({"official": "official"} if peer_installed() else {}), "bare Trio loop": "bare"}
    if not Path("/proc/self/status").exists():
        yield Group("rss", "peak", "MiB", {}, notes=["left out: this platform has no /proc/PID/status"])
        return
    samples = interleave(
        {label: partial(_peak, name, options.seconds) for label, name in names.items()},
        options.rounds,
        options.progress,
    )
    comparisons = [Comparison("ours", other) for other in samples if other != "ours"]
    yield Group("rss", "peak resident memory, 64 calls in flight", "MiB", samples, comparisons)
