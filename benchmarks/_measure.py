"""Interleaved measurement and its statistics, independent of what is measured."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ._processes import LINUX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True)
class Target:
    """A bound that a median ratio or value should keep; informational, never asserted."""

    relation: str  # ">=" or "<="
    bound: float

    def met(self, value: float) -> bool:
        return value >= self.bound if self.relation == ">=" else value <= self.bound


@dataclass(frozen=True)
class Comparison:
    """The ratio of one contender to another, from samples of the same round."""

    left: str
    right: str
    target: Target | None = None


@dataclass
class Group:
    """One table: a figure of several contenders, measured in the same rounds."""

    scenario: str
    case: str
    unit: str
    samples: dict[str, list[float]]
    comparisons: list[Comparison] = field(default_factory=list)
    value_targets: dict[str, Target] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ratios(self, comparison: Comparison) -> list[float]:
        """Return the ratio of each round's two samples, in the order of the rounds."""
        pairs = zip(self.samples[comparison.left], self.samples[comparison.right], strict=True)
        return [left / right for left, right in pairs]


@dataclass(frozen=True)
class Spread:
    """The median and the range of some samples."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


class Times:
    """What was measured beside the throughput, one figure for each sample.

    Attributes:
        costs: Microseconds of the server's CPU time per call; Linux only.
        medians: Microseconds that half of the calls took at most.
        tails: Microseconds that 99 of 100 calls took at most.
        slowest: Microseconds that the slowest call took.
    """

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.medians: list[float] = []
        self.tails: list[float] = []
        self.slowest: list[float] = []

    def add(self, seconds: Sequence[float], cpu_seconds: float) -> None:
        """Record a sample: how long each call took, and the server's CPU time for all of them."""
        if LINUX:
            self.costs.append(cpu_seconds * 1e6 / len(seconds))
        ordered = sorted(seconds)
        self.medians.append(statistics.median(ordered) * 1e6)
        self.tails.append(ordered[len(ordered) * 99 // 100] * 1e6)
        self.slowest.append(ordered[-1] * 1e6)


def interleave(
    contenders: Mapping[str, Callable[[], float]],
    rounds: int,
    progress: Callable[[str], None],
) -> dict[str, list[float]]:
    """Take one sample of each contender per round, so that a slow minute of the machine affects all of them.

    Each round begins with the next contender, so that none always runs on a processor that the same one has heated up.
    """
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            value = contenders[name]()
            samples[name].append(value)
            progress(f"round {turn + 1}/{rounds}  {name}: {value:,.4g}")
    return samples
