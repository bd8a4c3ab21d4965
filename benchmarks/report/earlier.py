"""What is worse than in an earlier run: rows whose ratios have moved further than the noise of both runs."""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure.samples import interval_of_median
from benchmarks.report.formats import FORMAT, number

MARGIN = 1.05  # how much worse a median must be
# Whose ratios say nothing about this package: the peers, the limits, and another checkout.
_NOT_OURS = ("official", "TypeScript", "FastMCP", "bare", "before", "load generator")


@dataclass(frozen=True)
class Row:
    """One ratio in both runs; `better` says which direction is good."""

    name: str
    better: str
    then: list[float]
    now: list[float]

    @property
    def change(self) -> float:
        """How many times as good it is as before: below 1 is worse."""
        change = statistics.median(self.now) / statistics.median(self.then)
        return change if self.better == "higher" else 1 / change

    @property
    def worse(self) -> bool:
        """Whether it is worse by more than `MARGIN`, and the two intervals do not overlap."""
        (then_low, then_high), (now_low, now_high) = _interval(self.then), _interval(self.now)
        apart = now_high < then_low if self.better == "higher" else now_low > then_high
        return apart and self.change < 1 / MARGIN

    def cells(self) -> list[str]:
        """Return the cells of the row in the table."""
        return [self.name, *map(_shown, (self.then, self.now)), f"{self.change:.2f}", "WORSE" if self.worse else ""]


HEADING = ["paired ratio", "earlier: median, interval", "now: median, interval", "times as good", ""]


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median; of fewer samples than it takes, the range."""
    return interval_of_median(values) or (min(values), max(values))


def _shown(values: list[float]) -> str:
    low, high = _interval(values)
    return f"{number(statistics.median(values))} ({number(low)} to {number(high)})"


def earlier(text: str) -> dict[str, Any]:
    """Parse the value of an option that is the JSON of an earlier run."""
    try:
        report = json.loads(Path(text).read_text())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} can't be read as a report: {error}") from None
    if not isinstance(report, dict) or report.get("format") != FORMAT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a report of format {FORMAT}, written by --json")
    return report


def _ratios(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{group['scenario']}: {group['case']}: {ratio['left']} / {ratio['right']}": ratio
        for group in report["groups"]
        for ratio in group["ratios"]
        if not ratio["about"].startswith(_NOT_OURS)
    }


def compare(then: dict[str, Any], now: dict[str, Any]) -> list[Row]:
    """Return the rows that both reports have: ratios of samples of one round, so the machine matters less."""
    before, after = _ratios(then), _ratios(now)
    return [
        Row(name, ratio["better"], before[name]["values"], ratio["values"])
        for name, ratio in after.items()
        if name in before
    ]


def verdict(rows: list[Row], then: dict[str, Any]) -> str:
    """Return the verdict in one line."""
    worse = sum(row.worse for row in rows)
    of = f"of {len(rows)} ratios that the run of {then['date']} has, too"
    rule = f"a median more than {MARGIN - 1:.0%} worse, and intervals that do not overlap; this leaves the status at 0"
    return f"{worse} {of}, {'is' if worse == 1 else 'are'} worse ({rule})"
