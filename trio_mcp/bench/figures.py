"""The figures of a benchmark, computed from the measurements: nothing here uses a clock, a client or a server."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import attrs

__all__ = ["Latencies", "Ratio", "Sample", "Step", "bend", "paired"]

GROWTH: Final = 1.02
"""The factor by which each bucket of a histogram is wider than the one before: durations are accurate to within 1 %."""

FINEST: Final = 1e-6
"""Durations up to this many seconds share the first bucket (arbitrary): no call over any transport is faster, and
clocks are not much finer."""

BUCKETS: Final = 1100
"""The number of buckets in a histogram: they range from a microsecond to 48 minutes, longer than any call may take."""

LEAST_CPU: Final = 0.1
"""The minimum CPU time, in seconds, from which the time per call is computed (arbitrary): Linux counts hundredths."""

FLAT: Final = 1.10
"""A step with more calls in flight counts as flat if calls per second grow by less than this factor (arbitrary)."""

MOST_KINDS: Final = 20
"""How many kinds of errors are counted separately (arbitrary): the server may invent any number of error codes."""


class Latencies:
    """A histogram of durations with buckets that are 2 % wide: its memory does not grow with the number of durations.

    The count, the shortest and the longest duration are exact; a quantile is accurate to within 1 %.
    """

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self._least = math.inf
        self._most = 0.0
        self.count = 0

    def add(self, seconds: float) -> None:
        """Add a duration in seconds."""
        place = int(math.log(seconds / FINEST) / _LOG) if seconds > FINEST else 0
        self._buckets[min(place, BUCKETS - 1)] += 1
        self._least = min(self._least, seconds)
        self._most = max(self._most, seconds)
        self.count += 1

    @classmethod
    def together(cls, parts: Iterable[Latencies]) -> Latencies:
        """Return one histogram with the durations of several histograms."""
        found = cls()
        for each in parts:
            found.merge(each)
        return found

    def merge(self, other: Latencies) -> None:
        """Add all durations of another histogram."""
        self._buckets += other._buckets
        self._least = min(self._least, other._least)
        self._most = max(self._most, other._most)
        self.count += other.count

    def quantile(self, share: float) -> float:
        """Return the duration in seconds that the given share (0 to 1) of all durations does not exceed (nearest rank).

        Raises:
            ValueError: If there are no durations.
        """
        if not self.count:
            raise ValueError("there are no durations")
        rank = max(1, math.ceil(share * self.count))
        # The shortest and the longest duration are known exactly, so every quantile of one or two durations is exact.
        if rank in (1, self.count):
            return self._most if rank == self.count else self._least
        passed = 0
        for place in sorted(self._buckets):
            passed += self._buckets[place]
            if passed >= rank:
                return min(max(FINEST * math.exp(_LOG * (place + 0.5)), self._least), self._most)
        raise AssertionError("the buckets hold all durations")


_LOG: Final = math.log(GROWTH)


@attrs.define(eq=False)
class Sample:
    """A measurement with a fixed number of calls in flight; samples with the same number can be added up.

    Attributes:
        in_flight: How many calls were kept in flight at a time.
        latencies: The durations of the calls that succeeded, by tool.
        errors: How many calls failed, by kind, including those of the warm-up.
        made: How many calls were made, including those of the warm-up.
        call_seconds: How long all calls after the warm-up took together, including those that failed.
        seconds: The wall-clock time of the measurement, in seconds.
        client_cpu: The CPU time of this process, in seconds.
        server_cpu: The CPU time of the server's processes, in seconds; None if not known.
        complete: Whether the measurement ran to its end: it was not interrupted, and the server was not lost.
        cut: Whether the measurement ended early because the number of calls was used up.
    """

    in_flight: int
    latencies: dict[str, Latencies] = attrs.Factory(lambda: defaultdict(Latencies))
    errors: Counter[str] = attrs.Factory(Counter)
    made: int = 0
    call_seconds: float = 0.0
    seconds: float = 0.0
    client_cpu: float = 0.0
    server_cpu: float | None = None
    complete: bool = False
    cut: bool = False

    @property
    def calls(self) -> int:
        """The number of calls that succeeded."""
        return sum(each.count for each in self.latencies.values())

    @property
    def rate(self) -> float:
        """The number of successful calls per second.

        By Little's law, with k calls always in flight, the rate is k divided by the mean time of a call. So if one call
        hangs at the end, when no others are made any more, the rate falls only as if one of the k had stood still.
        """
        return self.in_flight * self.calls / self.call_seconds if self.call_seconds > 0 else 0.0

    def succeeded(self, tool: str, seconds: float) -> None:
        """Count a call that succeeded."""
        self.latencies[tool].add(seconds)

    def failed(self, kind: str) -> None:
        """Count a call that failed."""
        self.errors[kind if kind in self.errors or len(self.errors) < MOST_KINDS else "other"] += 1

    def of_all_tools(self) -> Latencies:
        """Return one histogram with the durations of the calls of all tools."""
        return Latencies.together(self.latencies.values())


@attrs.frozen
class Step:
    """The result of one step for one server; each step has a fixed number of calls in flight.

    Attributes:
        in_flight: How many calls were in flight.
        calls: How many calls succeeded.
        errors: How many calls failed, by kind.
        rate: The number of successful calls per second.
        p50: The median duration of a successful call in seconds; None if none succeeded.
        p99: The duration that 99 % of the successful calls do not exceed; None if none succeeded.
        worst: The longest duration of a successful call; None if none succeeded.
        seconds: The wall-clock time of the measurement, in seconds.
        client_busy: The share of the wall-clock time, from 0 to 1, in which the benchmark's own process used the CPU.
        server_cpu: The CPU time of the server's processes per call, in seconds; None if not known or too little to
            tell.
        complete: Whether the step ran to its end: it was not interrupted, and the server was not lost.
        cut: Whether the step ended early because the number of calls was used up.
    """

    in_flight: int
    calls: int
    errors: dict[str, int]
    rate: float
    p50: float | None
    p99: float | None
    worst: float | None
    seconds: float
    client_busy: float
    server_cpu: float | None
    complete: bool
    cut: bool

    @property
    def error_share(self) -> float:
        """The share of the calls, from 0 to 1, that failed."""
        failed = sum(self.errors.values())
        return failed / (failed + self.calls) if failed else 0.0

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Step:
        """Return the result of one step, computed from all its samples."""
        latencies = Latencies.together(each.of_all_tools() for each in samples)
        whole = Sample(
            samples[0].in_flight,
            {"": latencies},
            sum((each.errors for each in samples), Counter()),
            sum(each.made for each in samples),
            sum(each.call_seconds for each in samples),
            sum(each.seconds for each in samples),
            sum(each.client_cpu for each in samples),
        )
        server = [each.server_cpu for each in samples]
        cpu = sum(each for each in server if each is not None)
        return cls(
            in_flight=whole.in_flight,
            calls=latencies.count,
            errors=dict(whole.errors),
            rate=whole.rate,
            p50=latencies.quantile(0.5) if latencies.count else None,
            p99=latencies.quantile(0.99) if latencies.count else None,
            worst=latencies.quantile(1.0) if latencies.count else None,
            seconds=whole.seconds,
            client_busy=min(whole.client_cpu / whole.seconds, 1.0) if whole.seconds > 0 else 0.0,
            # The CPU time is divided by the number of all calls, because calls that fail, and those of the warm-up, use
            # it as well.
            server_cpu=cpu / whole.made if None not in server and cpu >= LEAST_CPU else None,
            complete=all(each.complete for each in samples),
            cut=any(each.cut for each in samples),
        )


def bend(steps: Sequence[Step]) -> int | None:
    """Return the index of the step after which more calls in flight bring no more calls per second, or None.

    Beyond that step the calls per second grow by less than 10 %, while the median duration grows by more than half of
    the factor by which the calls in flight grow. So calls only wait longer.
    """
    for index, (here, there) in enumerate(itertools.pairwise(steps)):
        if here.p50 is None or there.p50 is None:
            continue
        factor = there.in_flight / here.in_flight
        if there.rate < FLAT * here.rate and there.p50 > factor / 2 * here.p50:
            return index
    return None


@attrs.frozen
class Ratio:
    """The ratio of the second server's figure to the first's, from pairs of consecutive samples.

    Attributes:
        in_flight: How many calls were in flight.
        of: The figure that is compared: calls per second, or the median duration.
        median: The median of the pairs' ratios.
        low: The lowest of the pairs' ratios.
        high: The highest of the pairs' ratios.
        pairs: How many pairs there are.
    """

    in_flight: int
    of: Literal["rate", "p50"]
    median: float
    low: float
    high: float
    pairs: int

    @property
    def within_noise(self) -> bool:
        """Whether the pairs disagree about which server has the greater figure, or are too few to tell."""
        # If two servers are equally fast, all n pairs agree by chance in one of 2**(n-1) cases: with fewer than six
        # pairs, that is at least 6 %.
        return self.low <= 1 <= self.high or self.pairs < 6


def paired(ours: Iterable[Sample], theirs: Iterable[Sample]) -> list[Ratio]:
    """Return the ratios of the second server's figures to the first's, from pairs of complete samples with results."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a.complete and b.complete and a.rate and b.rate]
    if not pairs:
        return []
    rates = [b.rate / a.rate for a, b in pairs]
    medians = [b.of_all_tools().quantile(0.5) / max(a.of_all_tools().quantile(0.5), FINEST) for a, b in pairs]

    def ratio(of: Literal["rate", "p50"], values: list[float]) -> Ratio:
        return Ratio(pairs[0][0].in_flight, of, statistics.median(values), min(values), max(values), len(values))

    return [ratio("rate", rates), ratio("p50", medians)]
