"""Calls per second of everything that has a `throughput`, and contenders in processes of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from benchmarks.measure.processes import DEADLINE, ROOT, Process, python
from benchmarks.measure.samples import Comparison, Group, Times, interleave

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from benchmarks.options import Options

# What is measured beside the calls per second of a case.
MEDIAN, TAIL = "time of a call at the median", "time of a call at the 99th percentile"
COST = "CPU time of the {}"
BUSY = "processors that the server keeps busy"

_WARM_UP = 0.3  # seconds: what is slow only at first, as before code has been compiled or specialised, is start-up


class Measurable(Protocol):
    """A contender that can be kept busy with a number of calls in flight, for a time.

    Attributes:
        measured: What was measured beside each throughput; it may leave out what means nothing.
    """

    measured: Times

    def throughput(self, in_flight: int, seconds: float) -> float: ...


class Worker:
    """A contender in its own process, idle until a sample is taken.

    Args:
        command: The command that starts it; it does what `load.worker` says.
        root: The directory from which it imports.
        beside: Processes that work for it: their CPU time counts, too.

    Attributes:
        measured: What was measured beside each `throughput`.
    """

    def __init__(self, command: Sequence[str], root: Path = ROOT, beside: Sequence[Process] = ()) -> None:
        self.process = Process(command, root)
        self._all = [self.process, *beside]
        self.measured = Times()

    @classmethod
    def of(cls, module: str, *arguments: str, loop: str = "trio", root: Path = ROOT) -> Worker:
        """Return a contender in contenders/.

        Args:
            module: The name of its module.
            arguments: The arguments of the module's `connect`, the variant first.
            loop: The event loop on which it runs.
            root: The directory from which it imports.
        """
        return cls(python("-m", "benchmarks.load.worker", loop, module, *arguments), root)

    def wait_ready(self) -> None:
        with self.process.deadline():
            self.process.read_line()

    def throughput(self, in_flight: int, seconds: float) -> float:
        """Return the calls per second that it made, with `in_flight` outstanding."""
        before = self._used()
        rate, calls = self._order(seconds, f"{in_flight} {seconds}\n")
        self.measured.add_cost(calls, self._used() - before)
        return rate

    def answer(self, in_flight: int, calls: int) -> None:
        """Have the contender make this many calls, with `in_flight` outstanding."""
        self._order(DEADLINE, f"{in_flight} inf {calls}\n")

    def _used(self) -> float:
        return sum(process.used() for process in self._all)

    def _order(self, seconds: float, order: str) -> tuple[float, float]:
        with self.process.deadline(seconds + 60):
            self.process.write(order.encode())
            rate, calls = map(float, self.process.read_line().split())
        return rate, calls

    def close(self) -> None:
        self.process.close()


def warm_up(contenders: Mapping[str, Measurable], in_flight: int, seconds: float) -> None:
    """Call each contender for a while before a case, and forget what was measured then."""
    for each in contenders.values():
        # The object of the case before is kept unchanged: its groups refer to it.
        each.measured = Times()
        each.throughput(in_flight, min(_WARM_UP, seconds))
        each.measured = Times()


def groups(
    scenario: str,
    contenders: Mapping[str, Measurable],
    cases: Mapping[int, str],
    comparisons: Sequence[Comparison],
    options: Options,
    *,
    of: str = "server",
    times: bool = False,
) -> Iterator[Group]:
    """Yield the groups of each number of calls in flight: calls per second, CPU time per call, processors kept busy.

    Args:
        scenario: The name of the scenario.
        contenders: What is measured.
        cases: The numbers of calls in flight, and what each is called.
        comparisons: The comparisons; one whose two sides are not both present is left out.
        options: The options of the run.
        of: What takes the CPU time: the server, the client or the process.
        times: Whether to yield the time that a call takes, too; the contenders must have measured it.
    """
    if not contenders:
        return
    for in_flight, case in cases.items():
        options.progress(f"{scenario}, {case}")
        warm_up(contenders, in_flight, options.seconds)
        samples = interleave(
            {label: partial(each.throughput, in_flight, options.seconds) for label, each in contenders.items()},
            options.rounds,
            options.progress,
        )
        title = f"add(a, b), {case}"
        yield _group(scenario, title, "calls/s", samples, [each.by_calls(in_flight) for each in comparisons])
        found = {label: each.measured for label, each in contenders.items()}
        if times:
            yield Group(scenario, f"{title}: {MEDIAN}", "µs", {label: each.medians for label, each in found.items()})
            yield Group(scenario, f"{title}: {TAIL}", "µs", {label: each.tails for label, each in found.items()})
        if costs := {label: each.costs for label, each in found.items() if each.costs}:
            turned = [each.by_cpu(in_flight) for each in comparisons]
            yield _group(scenario, f"{title}: {COST.format(of)}", "µs/call", costs, turned)
            if of == "server":
                busy = {
                    label: [rate * cost / 1e6 for rate, cost in zip(samples[label], each, strict=True)]
                    for label, each in costs.items()
                }
                yield Group(scenario, f"{title}: {BUSY}", "", busy)


def _group(
    scenario: str, case: str, unit: str, samples: dict[str, list[float]], comparisons: Sequence[Comparison]
) -> Group:
    present = [each for each in comparisons if each.left in samples and each.right in samples]
    return Group(scenario, case, unit, samples, present)
