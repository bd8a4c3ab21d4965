"""A thousand listeners, ten thousand changes per second, one client that does not read, and unrelated calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from benchmarks.measure.processes import run_python
from benchmarks.measure.samples import Comparison, Group, Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

# case, unit, label -> figure of benchmarks/load/listeners.py, target
TABLES: list[tuple[str, str, dict[str, str], Target | None]] = [
    ("changes taken of 10,000 a second", "changes/s", {"ours": "changes"}, Target(">=", 9500)),
    ("notifications that reached a client", "notifications/s", {"ours": "notifications"}, None),
    ("the last change to the last listener that hears of it", "ms", {"ours": "delay"}, Target("<=", 100)),
    ("growth of peak memory", "MiB", {"ours": "growth"}, Target("<=", 5)),
    (
        "an unrelated call meanwhile",
        "ms",
        {"median": "call", "slowest": "worst call", "median, idle": "idle call"},
        None,
    ),
]


def run(options: Options) -> Iterator[Group]:
    """Measure a new process for each sample, because a process's memory peak never goes down."""
    options.progress("listeners")
    rounds: list[dict[str, float]] = []
    for turn in range(options.rounds):
        rounds.append(json.loads(run_python("-m", "benchmarks.load.listeners", str(options.seconds))))
        options.progress(f"round {turn + 1}/{options.rounds}  {rounds[-1]}")
    for case, unit, figures, target in TABLES:
        samples = {label: [each[figure] for each in rounds] for label, figure in figures.items()}
        targets = {} if target is None else dict.fromkeys(samples, target)
        comparisons = [Comparison("median", "median, idle")] if "median, idle" in samples else []
        yield Group("listeners", case, unit, samples, comparisons, targets)
