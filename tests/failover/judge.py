"""What a run has promised and whether it has kept it, and its figures."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator

from tests.failover.load import TIMEOUT, Call, has_effect, may_repeat
from tests.failover.run import BACK, MARGIN, RECOVERY, Run, Side
from tests.failover.ways import longest_up
from tests.soak.record import effects

MOST_UNKNOWN = 0.05
"""The share of all calls that may end as unknown."""


class Judge:
    """Compares what the callers were told with the ledger, and with the times at which the ways were up."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._ways = list(run.ways.values())
        self._did = effects(run.plan.out / "effects.log").get("did", Counter())
        self._calls = [call for side in run.sides for call in side.load.calls]

    def broken(self) -> Iterator[str]:
        """Yield the broken promises."""
        for call in self._calls:
            for problem in self._of_call(call):
                yield f"{self._shown(call)}: {problem}"
        unknown = self._count("unknown")
        if unknown > MOST_UNKNOWN * len(self._calls):
            yield f"{unknown} of {len(self._calls)} calls are unknown"
        for side in self._run.sides:
            yield from self._of_side(side)

    def not_succeeded(self) -> Iterator[str]:
        """Yield the calls that have not succeeded."""
        return (self._shown(call) for call in self._calls if call.outcome != "succeeded")

    def _shown(self, call: Call) -> str:
        return f"{call.name} ({call.kind}, {self._span(call.began, call.ended)}, {call.outcome}: {call.note})"

    def _span(self, begin: float, end: float) -> str:
        return f"{begin - self._run.begun:.2f} to {end - self._run.begun:.2f} s"

    def _promised(self, begin: float, end: float) -> bool:
        """Whether a way was up for long enough within a span."""
        return longest_up(self._ways, begin, end) > RECOVERY

    def _of_call(self, call: Call) -> Iterator[str]:
        times = self._did[call.name]
        if call.outcome == "wrong":
            yield "the response is wrong"
        elif may_repeat(call):
            # Until its time limit: one that fails early has not waited for a way that comes back.
            if call.outcome != "succeeded" and self._promised(call.began, min(call.began + TIMEOUT, self._run.ended)):
                yield f"safe, and it {call.outcome}, although a way was up"
            if has_effect(call) and call.outcome == "succeeded" and not times:
                yield "it succeeded, and the ledger does not have it"
        elif times > 1:
            yield f"it may not be repeated, and the ledger has it {times} times"
        elif (call.outcome == "succeeded") > times:
            yield "it succeeded, and the ledger does not have it"
        elif call.outcome == "failed" and times:
            yield "it failed, and the ledger has it"
        if call.outcome != "succeeded" and call.began > self._run.quiet:
            yield "all ways were up, and each client on its best"
        if call.outcome == "unknown" and not may_repeat(call):
            yield from self._of_unknown(call)

    def _of_unknown(self, call: Call) -> Iterator[str]:
        ways = [way for way in self._ways if f":{way.reached}/" in call.way]
        if not ways:
            if self._promised(call.began, call.ended):
                yield "a way was up"
        # What broke it a moment before may reach the client only after the call has been sent.
        elif any(since < call.began - MARGIN and call.ended < until for since, until in ways[0].intervals()):
            yield "nothing has broken its way, so a planned return has, or haste"

    def _of_side(self, side: Side) -> Iterator[str]:
        run = self._run
        for begin, end in self._gaps(side):
            if (up := longest_up(self._ways, begin, end)) > RECOVERY:
                yield f"{side.era}: no safe call succeeded from {self._span(begin, end)}; a way was up for {up:.1f} s"
        for change in run.changes:
            if change < run.ended - RECOVERY:
                heard = min((time for time in side.heard if time >= change), default=run.ended)
                if self._promised(change, heard):
                    yield f"{side.era}: it was not told of a change from {self._span(change, heard)}"
        if run.quiet - run.calmed >= BACK:
            yield f"{side.era}: not back on its best way after {BACK:g} s"
        yield from (f"{side.era}: a subscription was lost: {cause}" for cause in side.lost)
        for text, number in Counter(map(str, side.errors)).most_common():
            yield f"{side.era}: reported {number} times: {text}"

    def _gaps(self, side: Side) -> Iterator[tuple[float, float]]:
        """Yield the times without a success of a safe call, if they are long enough to matter."""
        good = sorted(call.ended for call in side.load.calls if may_repeat(call) and call.outcome == "succeeded")
        for begin, end in itertools.pairwise([self._run.begun, *good, self._run.ended]):
            if end - begin > 0.5:
                yield begin, end

    def _count(self, outcome: str) -> int:
        return sum(call.outcome == outcome for call in self._calls)

    # --- figures -----------------------------------------------------------------------------------------------------

    def figures(self) -> Iterator[tuple[str, str]]:
        """Yield the figures of the run."""
        run, calls = self._run, self._calls
        yield "calls; a second", f"{len(calls):,}; {len(calls) / (run.ended - run.begun):.0f}"
        yield "succeeded; failed", f"{self._count('succeeded'):,}; {self._count('failed'):,}"
        yield "unknown", f"{self._count('unknown')}: {100 * self._count('unknown') / len(calls):.2f} %"
        yield "not begun, as too many were under way", f"{sum(side.load.left_out for side in run.sides)}"
        faults = sum((way.faults for way in self._ways), Counter[str]())
        yield "faults", ", ".join(f"{name} {number}" for name, number in faults.most_common())
        for side in run.sides:
            planned = sum(switch.planned for _, switch in side.switches)
            yield f"{side.era}: switches; of these planned", f"{len(side.switches)}; {planned}"
            longest = max((longest_up(self._ways, *gap) for gap in self._gaps(side)), default=0.0)
            yield f"{side.era}: longest time without a success while a way was up", f"{longest:.2f} s"
            took = sorted(call.ended - call.began for call in side.load.calls if call.outcome == "succeeded")
            cuts = statistics.quantiles(took, n=100)
            yield f"{side.era}: median, p99, longest", f"{cuts[49]:.3f} s, {cuts[98]:.2f} s, {took[-1]:.1f} s"
        yield "back on the best way after", f"{run.quiet - run.calmed:.1f} s"
