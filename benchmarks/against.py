"""``python -m benchmarks.against OTHER_CHECKOUT``: compare the cost of this checkout with another's, in pairs.

For each row a pair takes one sample before (the other checkout) and one after (this one), in alternating order: A B,
B A, A B. Each sample has its own processes, so the figures do not depend on one hash seed or one memory layout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.load.wire import WrongAnswer
from benchmarks.measure.checkouts import prepare
from benchmarks.measure.processes import ROOT, ProcessFailed
from benchmarks.measure.samples import interval_of_median
from benchmarks.options import Parser, checkout, whole_number
from benchmarks.probes import PROBES, must_fall, unit_of
from benchmarks.report.formats import markdown_table, number, text_table
from benchmarks.report.machine import load_average, machine, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BEFORE, AFTER = "before", "after"
NO_MORE, LESS = 1.03, 1.0


@dataclass
class Row:
    """One figure, before and after, for each pair."""

    probe: str
    name: str
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        return [after / before for before, after in zip(self.before, self.after, strict=True)]

    @property
    def unit(self) -> str:
        return unit_of(self.probe, self.name)

    @property
    def verdict(self) -> str:
        """The verdict on the interval: whether it meets the row's bound."""
        interval = interval_of_median(self.ratios)
        if interval is None:
            return "too few pairs"
        low, high = interval
        if low > NO_MORE:
            return f"MISSED: above {NO_MORE:.2f}"
        if must_fall(self.probe, self.name):
            return f"below {LESS:.2f}: met" if high < LESS else f"MISSED: not below {LESS:.2f}"
        return f"not above {NO_MORE:.2f}: met"

    def cells(self) -> list[str]:
        """Return the cells of the row in the table."""
        interval = interval_of_median(self.ratios)
        return [
            f"{self.probe}: {self.name}",
            f"{number(statistics.median(self.before))} {self.unit}",
            f"{number(statistics.median(self.after))} {self.unit}",
            f"{statistics.median(self.ratios):.3f}",
            f"{interval[0]:.3f} to {interval[1]:.3f}" if interval else "",
            self.verdict,
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "row": f"{self.probe}: {self.name}",
            "unit": self.unit,
            "before": self.before,
            "after": self.after,
            "ratios": self.ratios,
            "median": statistics.median(self.ratios),
            "interval": interval_of_median(self.ratios),
            "verdict": self.verdict,
        }


HEADING = ["row", "median before", "median after", "after / before", "95 % interval", "wanted"]


def measure(
    probes: Sequence[str], roots: dict[str, Path], pairs: int, calls: int, progress: Callable[[str], None]
) -> list[Row]:
    """Run the probes in this many pairs."""
    rows: dict[tuple[str, str], Row] = {}
    started = time.perf_counter()
    for pair in range(pairs):
        for probe in probes:
            values = {}
            for side in (BEFORE, AFTER) if pair % 2 == 0 else (AFTER, BEFORE):
                values[side] = PROBES[probe](roots[side], calls)
            ratios = []
            for name, before in values[BEFORE].items():
                row = rows.setdefault((probe, name), Row(probe, name))
                row.before.append(before)
                row.after.append(values[AFTER][name])
                ratios.append(f"{name} {row.ratios[-1]:.3f}")
            progress(f"pair {pair + 1}/{pairs}  {probe}: {', '.join(ratios)}")
        left = (time.perf_counter() - started) / (pair + 1) * (pairs - pair - 1)
        progress(f"pair {pair + 1}/{pairs} done, about {left / 60:.1f} minutes to go")
    return list(rows.values())


def _calls(text: str) -> int:
    if not text.isdecimal() or not 64 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 64 to 1000000")
    return int(text)


def _probes(text: str) -> list[str]:
    """Return the probes of this name, or whose names begin with it and a hyphen."""
    chosen = [name for name in PROBES if name == text or name.startswith(f"{text}-")]
    if not chosen:
        raise argparse.ArgumentTypeError(f"there are no rows {text!r}: choose from {', '.join(PROBES)}")
    return chosen


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.against",
        description="Compare the CPU time and memory of this checkout with those of another one, in pairs.",
    )
    parser.add_argument("other", type=checkout, metavar="OTHER_CHECKOUT", help="the state before")
    parser.add_argument("--pairs", type=whole_number, default=20, help="samples of each side (default 20)")
    parser.add_argument("--calls", type=_calls, default=2000, help="calls that a sample makes (default 2000)")
    parser.add_argument(
        "--rows",
        type=_probes,
        nargs="+",
        metavar="NAME",
        help=f"of {', '.join(PROBES)}, or how they begin; all by default",
    )
    return parser.parse_with_files(arguments)


def _summary(around: dict[str, Any]) -> list[str]:
    load = f"load average {around['load']} at the start and {around['load_at_end']} at the end, this run's own included"
    versions = ", ".join(f"{name} {version}" for name, version in around["versions"].items())
    return [
        f"Before: trio-mcp {around['before']}; after: {versions}",
        f"{around['date']}, {around['cpus']} CPUs, {around['platform']}, Python {around['python']}, {load}",
        f"{around['pairs']} pairs in turn, {around['calls']} calls a sample: CPU time and memory of one process",
    ]


def _progress(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def _run(chosen: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stages = Path(directory).resolve()
        checkouts = {BEFORE: chosen.other, AFTER: ROOT}
        roots = {side: prepare(stages / str(index), path) for index, (side, path) in enumerate(checkouts.items())}
        around = {
            **machine(),
            "before": version_of(chosen.other),
            "pairs": chosen.pairs,
            "calls": chosen.calls,
        }
        wanted = {name for names in chosen.rows or [PROBES] for name in names}
        probes = [name for name in PROBES if name in wanted]
        rows = measure(probes, roots, chosen.pairs, chosen.calls, _progress)
    around["load_at_end"] = load_average()
    table = [HEADING, *(row.cells() for row in rows)]
    print("\n".join([*text_table(table), "", *_summary(around)]))
    if chosen.json:
        report = {**around, "rows": [row.as_json() for row in rows]}
        chosen.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    if chosen.markdown:
        lines = ["# Before and after", "", "Written by `python -m benchmarks.against`; README.md says how.", ""]
        lines += [*(f"- {line}" for line in _summary(around)), "", *markdown_table(table)]
        chosen.markdown.write_text("\n".join(lines) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Compare the checkouts. Return 0 whatever the figures are, or 1 if a process failed or gave a wrong answer."""
    chosen = _parse(arguments)
    if not sys.platform.startswith("linux"):
        print("benchmarks: the CPU time of another process can be read on Linux only", file=sys.stderr)
        return 1
    try:
        _run(chosen)
    except (ProcessFailed, WrongAnswer) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("benchmarks: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
