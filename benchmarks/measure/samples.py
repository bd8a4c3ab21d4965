"""Interleaved measurement and its statistics, independent of what is measured."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.measure.processes import LINUX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


CONFIDENCE = 0.95


@dataclass(frozen=True)
class Target:
    """A bound that a median ratio or value should keep; informational, never asserted."""

    relation: str  # ">=" or "<="
    bound: float

    def met(self, value: float) -> bool:
        return value >= self.bound if self.relation == ">=" else value <= self.bound


@dataclass(frozen=True)
class Comparison:
    """The ratio of one contender to another, from samples of the same round.

    Attributes:
        left: The contender that is divided.
        right: The contender that it is divided by.
        target: The target of the ratio; of a throughput, in each of its cases, by calls per second and by CPU time.
        calls: How many times as many calls per second the left one should make, for each number of calls in flight
            that has a target of its own.
        cpu: How many times as much CPU time per call the right one should take, likewise.
        about_right: Whether the right one is judged by the left one, and not the other way round.
    """

    left: str
    right: str
    target: Target | None = None
    calls: Mapping[int, float] = field(default_factory=dict)
    cpu: Mapping[int, float] = field(default_factory=dict)
    about_right: bool = False

    @property
    def subject(self) -> str:
        """The contender that the comparison is about; the other one is the yardstick."""
        return self.right if self.about_right else self.left

    def by_calls(self, in_flight: int) -> Comparison:
        """Return the comparison of calls per second with so many in flight."""
        return Comparison(self.left, self.right, _at_least(self.calls.get(in_flight)) or self.target)

    def by_cpu(self, in_flight: int) -> Comparison:
        """Return the comparison of CPU time per call, turned: how many times as much the right one takes."""
        return Comparison(self.right, self.left, _at_least(self.cpu.get(in_flight)) or self.target, about_right=True)


def _at_least(bound: float | None) -> Target | None:
    return None if bound is None else Target(">=", bound)


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

    def better(self, comparison: Comparison) -> str:
        """Return which ratios speak for the contender that a comparison is about: the higher or the lower ones."""
        rate = self.unit.endswith("/s")
        return "higher" if rate != (comparison.subject == comparison.right) else "lower"

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


def interval_of_median(values: Sequence[float]) -> tuple[float, float] | None:
    """Return a 95 % confidence interval of the median, from the order of the values alone; None for fewer than six.

    The number of n values below the true median is binomial with p = 1/2, whatever their distribution.
    """
    count = len(values)
    outside, cut = 0.0, 0  # what the interval without its `cut` values on either side misses
    while (missed := outside + 2 * math.comb(count, cut) / 2**count) <= 1 - CONFIDENCE:
        outside = missed
        cut += 1
    ordered = sorted(values)
    return (ordered[cut - 1], ordered[count - cut]) if cut else None


class Times:
    """What was measured beside the throughput, one figure for each sample.

    Attributes:
        costs: Microseconds of the contender's CPU time per call; Linux only.
        medians: Microseconds that half of the calls took at most.
        tails: Microseconds that 99 of 100 calls took at most.
        slowest: Microseconds that the slowest call took.
    """

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.medians: list[float] = []
        self.tails: list[float] = []
        self.slowest: list[float] = []

    def add_cost(self, calls: float, cpu_seconds: float) -> None:
        """Record the CPU time that the calls of a sample took."""
        if LINUX:
            self.costs.append(cpu_seconds * 1e6 / calls)

    def add(self, seconds: Sequence[float], cpu_seconds: float) -> None:
        """Record a sample: how long each call took, and the CPU time for all of them."""
        self.add_cost(len(seconds), cpu_seconds)
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
