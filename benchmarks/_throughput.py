"""Calls per second of everything that has a `throughput`, and contenders in processes of their own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from ._measure import Comparison, Group, interleave
from ._processes import DEADLINE, ROOT, Process, python

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from ._options import Options


class Measurable(Protocol):
    """A contender that can be kept busy with a number of calls in flight, for a time."""

    def throughput(self, in_flight: int, seconds: float) -> float: ...


class Worker:
    """A contender in its own process, idle until a sample is taken.

    Args:
        module: The name of its module in contenders/.
        arguments: The arguments of the module's `connect`, the variant first.
        loop: The event loop on which it runs.
        root: The directory from which it imports.
    """

    def __init__(self, module: str, *arguments: str, loop: str = "trio", root: Path = ROOT) -> None:
        self.process = Process(python("-m", "benchmarks._worker", loop, module, *arguments), root)

    def wait_ready(self) -> None:
        with self.process.deadline():
            self.process.read_line()

    def throughput(self, in_flight: int, seconds: float) -> float:
        return self._order(seconds, f"{in_flight} {seconds}\n")

    def answer(self, in_flight: int, calls: int) -> None:
        """Have the contender make this many calls, with `in_flight` outstanding."""
        self._order(DEADLINE, f"{in_flight} inf {calls}\n")

    def _order(self, seconds: float, order: str) -> float:
        with self.process.deadline(seconds + 60):
            self.process.write(order.encode())
            return float(self.process.read_line())

    def close(self) -> None:
        self.process.close()


def groups(
    scenario: str,
    contenders: Mapping[str, Measurable],
    cases: Mapping[int, str],
    comparisons: Sequence[Comparison],
    options: Options,
) -> Iterator[Group]:
    """Yield a group for each number of calls in flight, with the comparisons whose two sides are both present."""
    present = [each for each in comparisons if each.left in contenders and each.right in contenders]
    for in_flight, case in cases.items():
        options.progress(f"{scenario}, {case}")
        samples = interleave(
            {label: partial(each.throughput, in_flight, options.seconds) for label, each in contenders.items()},
            options.rounds,
            options.progress,
        )
        yield Group(scenario, f"add(a, b), {case}", "calls/s", samples, present)
