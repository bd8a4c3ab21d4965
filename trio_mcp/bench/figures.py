"""The figures of a benchmark, as functions of what was measured: nothing here knows a clock, a client or a server."""

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
"""How much wider each bucket of a histogram is than the one before: a duration is known to within 1 %."""

FINEST: Final = 1e-6
"""Seconds. Chosen: no call over any transport is faster, and clocks are not much finer."""

BUCKETS: Final = 1100
"""The most buckets of a histogram: they reach from a microsecond to 48 minutes, longer than any call may take."""

LEAST_CPU: Final = 0.1
"""The least seconds of CPU time that are divided by the calls (chosen): Linux counts hundredths."""

FLAT: Final = 1.10
"""The growth in calls a second below which a step of the ladder counts as flat (chosen)."""

MOST_KINDS: Final = 20
"""Kinds of errors that are counted separately (chosen): the codes come from the server, which may invent any number."""


class Latencies:
    """Durations, in memory that does not grow with their number: a histogram with buckets 2 % wide.

    The count, the shortest and the longest duration are exact; a quantile is within 1 %.
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
        """Return the durations of several histograms together."""
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
        """Return the duration in seconds that a share of all, from 0 to 1, do not exceed: the nearest rank.

        Raises:
            ValueError: If there are no durations.
        """
        if not self.count:
            raise ValueError("there are no durations")
        rank = max(1, math.ceil(share * self.count))
        # The ends are known exactly, so that a few durations have exact figures.
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
    """One stretch of calls with a number of them in flight; samples of the same number can be added up.

    Attributes:
        in_flight: How many calls were kept in flight.
        latencies: The durations of the calls that succeeded, by tool.
        errors: How many calls failed, by kind; those of the warm-up, too.
        made: How many calls there were, those of the warm-up among them.
        call_seconds: How long all calls after the warm-up took together, with those that failed.
        seconds: Wall-clock time.
        client_cpu: Seconds of CPU time of this process.
        server_cpu: Seconds of CPU time of the server's processes; None if not known.
        complete: Whether it came to its end: it was not interrupted, and the server was not lost.
        cut: Whether it ended by the number of calls, before its time.
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
        """How many calls succeeded."""
        return sum(each.count for each in self.latencies.values())

    @property
    def rate(self) -> float:
        """Calls a second that succeeded.

        By Little's law: with k always in flight, k divided by the time that a call takes. So a call that hangs at the
        end, when no others are made any more, counts as one of k, and not as if all had stood still.
        """
        return self.in_flight * self.calls / self.call_seconds if self.call_seconds > 0 else 0.0

    def succeeded(self, tool: str, seconds: float) -> None:
        """Count a call that succeeded."""
        self.latencies[tool].add(seconds)

    def failed(self, kind: str) -> None:
        """Count a call that failed."""
        self.errors[kind if kind in self.errors or len(self.errors) < MOST_KINDS else "other"] += 1

    def of_all_tools(self) -> Latencies:
        """Return the durations of all tools together."""
        return Latencies.together(self.latencies.values())


@attrs.frozen
class Step:
    """The result of one step of the ladder for one server.

    Attributes:
        in_flight: How many calls were in flight.
        calls: How many calls succeeded.
        errors: How many calls failed, by kind.
        rate: Calls a second that succeeded.
        p50: The median duration of a successful call in seconds; None if none succeeded.
        p99: The duration that 99 % of them do not exceed.
        worst: The longest.
        seconds: Wall-clock time of the measurement.
        client_busy: The share of that time, from 0 to 1, in which the benchmark's own process computed.
        server_cpu: Seconds of CPU time of the server's processes for each call; None if not known, or too short to
            tell.
        complete: Whether it came to its end: it was not interrupted, and the server was not lost.
        cut: Whether it ended by the number of calls, before its time.
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
        """Return the figures of the samples of one step together."""
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
            # The time is divided by all calls: those that fail, or only warm up, take the server's time, too.
            server_cpu=cpu / whole.made if None not in server and cpu >= LEAST_CPU else None,
            complete=all(each.complete for each in samples),
            cut=any(each.cut for each in samples),
        )


def bend(steps: Sequence[Step]) -> int | None:
    """Return the index of the last step before more calls in flight bring no more calls a second, or None.

    Beyond it calls a second grow by less than 10 %, while the median duration grows with the calls in flight: by at
    least half of that factor. So calls only wait longer.
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
    """The ratio of one server's figure to another's, from pairs of samples that were taken one after the other.

    Attributes:
        in_flight: How many calls were in flight.
        of: The figure that is compared: calls a second, or the median duration.
        median: The median of the pairs' ratios.
        low: The least.
        high: The greatest.
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
        """Whether the pairs disagree about which of the two is greater, or are too few to tell."""
        # Pairs of two equal servers agree in one of 2**(n-1) cases: for fewer than six that is more than 3 %.
        return self.low <= 1 <= self.high or self.pairs < 6


def paired(ours: Iterable[Sample], theirs: Iterable[Sample]) -> list[Ratio]:
    """Return the ratios of the second server's figures to the first's; pairs without calls are left out."""
    pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a.complete and b.complete and a.rate and b.rate]
    if not pairs:
        return []
    rates = [b.rate / a.rate for a, b in pairs]
    medians = [b.of_all_tools().quantile(0.5) / max(a.of_all_tools().quantile(0.5), FINEST) for a, b in pairs]

    def ratio(of: Literal["rate", "p50"], values: list[float]) -> Ratio:
        return Ratio(pairs[0][0].in_flight, of, statistics.median(values), min(values), max(values), len(values))

    return [ratio("rate", rates), ratio("p50", medians)]
