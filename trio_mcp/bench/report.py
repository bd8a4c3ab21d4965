"""Turn the result of a benchmark into plain data, JSON, and the sentences that all formats of the report share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from trio_mcp._secrets import mask_text
from trio_mcp.bench.figures import Latencies, Ratio, Sample, Step, bend, paired
from trio_mcp.bench.ladder import Bench, Ended
from trio_mcp.bench.plan import BenchTerms

__all__ = [
    "BUSY",
    "ENDINGS",
    "BenchReport",
    "Measured",
    "ToolFigures",
    "error_lines",
    "json_text",
    "report_of",
    "verdict",
]

VERSION: Final = 1
"""The version of the JSON format, incremented when the meaning of a member changes."""

BUSY: Final = 0.9
"""If the client's process is busy for at least this share of the time, it may be the client that limits a figure
(arbitrary)."""

MOST_ERRORS: Final = 0.1
"""The share of failed calls above which the figures of a step no longer show how the server scales (arbitrary)."""

ENDINGS: Final[Mapping[Ended, str]] = {
    "complete": "All steps were measured.",
    "calls": "The maximum number of calls was made (--max-calls); the last steps are missing.",
    "time": "The time limit was reached (--max-time); this is what was measured until then.",
    "interrupted": "The benchmark was interrupted; this is what was measured until then.",
    "lost": "The connection to the server was lost; this is what was measured until then.",
    "stuck": "The server stopped responding in the last step, so no further step was made.",
    "failing": "No call of the last step succeeded, so no further step was made.",
    "no tools": "No tool is left that can be measured.",
}


@attrs.frozen
class ToolFigures:
    """A tool, and its figures in the first step, where the tool's calls compete with the fewest other calls.

    Attributes:
        name: The name of the tool.
        p50: The median duration of a call in seconds, one figure for each server; None where no call succeeded.
        p99: The duration in seconds that 99 % of the calls do not exceed, also for each server.
    """

    name: str
    p50: tuple[float | None, ...]
    p99: tuple[float | None, ...]


@attrs.frozen
class Measured:
    """A server and its measurements.

    Attributes:
        name: The name that the user gave, without secrets.
        info: The name and version that the server itself states.
        transport: The transport that carries the calls.
        revision: The revision of the protocol.
        steps: The figures of each step.
    """

    name: str
    info: str
    transport: str
    revision: str
    steps: tuple[Step, ...] = ()

    @property
    def bends(self) -> str:
        """A sentence that says from which step on more calls in flight no longer bring more calls per second.

        The sentence is empty if there are fewer than two steps. The first step in which many calls fail, and all steps
        after it, are ignored.
        """
        # Failed calls may be quick, or take time from successful ones: from the first step with many failures on, the
        # figures no longer describe the same work.
        failing = next((step for step in self.steps if step.error_share > MOST_ERRORS), None)
        steps = [*itertools.takewhile(lambda step: step is not failing, self.steps)]
        steps = [step for step in steps if step.p50 is not None]
        beyond = (
            ""
            if failing is None
            else f"; with {failing.in_flight} in flight, {failing.error_share:.0%} of the calls fail"
        )
        if len(steps) < 2:
            return (
                f"Whether the throughput curve bends can't be said{beyond}."
                if failing is not None and len(self.steps) > 1
                else ""
            )
        at = bend(steps)
        if at is None:
            busy = f"; {_busy(steps[-1])}" if steps[-1].client_busy >= BUSY else ""
            return f"The throughput curve does not bend up to {steps[-1].in_flight} in flight{beyond}{busy}."
        here, there = steps[at], steps[at + 1]
        assert here.p50 is not None
        assert there.p50 is not None
        change = there.rate / here.rate - 1
        text = (
            f"The throughput curve bends after {here.in_flight} in flight: {there.in_flight} give {change:+.0%} calls"
            f" a second, and the median call takes {there.p50 / here.p50:.1f} times as long"
        )
        limited = next((step for step in (there, here) if step.client_busy >= BUSY), None)
        return f"{text}." if limited is None else f"{text}; but {_busy(limited)}."


def _busy(step: Step) -> str:
    return f"the client was busy {step.client_busy:.0%} of the time, so the server may be able to do more"


@attrs.frozen
class BenchReport:
    """The result of a benchmark.

    Attributes:
        servers: The servers, one or two.
        terms: The bounds of the benchmark.
        tools: The tools that were called.
        ratios: The ratios of the second server's figures to the first's.
        notes: Facts that the user must know.
        texts: The text of the first failure of each kind, by kind.
        ended: How the benchmark ended.
        error: The last error of the transport, if the server was lost.
    """

    servers: tuple[Measured, ...]
    terms: BenchTerms
    tools: tuple[ToolFigures, ...]
    ratios: tuple[Ratio, ...]
    notes: tuple[str, ...]
    texts: Mapping[str, str]
    ended: Ended
    error: str

    @property
    def failed(self) -> int:
        """The number of calls that failed."""
        return sum(sum(step.errors.values()) for server in self.servers for step in server.steps)

    @property
    def ending(self) -> str:
        """How the benchmark ended, in a few sentences."""
        text = ENDINGS[self.ended]
        cut = {str(step.in_flight): 1 for server in self.servers for step in server.steps if step.cut}
        if cut:
            text += f" Cut short by --max-calls: {', '.join(cut)} in flight."
        if self.failed:
            text += f" {self.failed:,} calls failed."
        return f"{text} The transport says: {self.error}" if self.error else text


def report_of(bench: Bench, servers: Sequence[Measured]) -> BenchReport:
    """Return the report of a benchmark.

    Args:
        bench: The benchmark, which has ended.
        servers: The servers that were measured, still without figures.
    """
    # Samples without a single call, which an interruption may leave behind, are left out.
    steps = [[taken for samples in side.steps if (taken := _with_calls(samples))] for side in bench.sides]
    ratios = [
        ratio
        for ours, theirs in (zip(*(side.steps for side in bench.sides), strict=True) if len(servers) == 2 else ())
        for ratio in paired(ours, theirs)
    ]
    return BenchReport(
        servers=tuple(
            attrs.evolve(server, steps=tuple(Step.of(samples) for samples in taken))
            for server, taken in zip(servers, steps, strict=True)
        ),
        terms=bench.terms,
        tools=tuple(_tool(name, [taken[0] if taken else [] for taken in steps]) for name in bench.plan.tools),
        ratios=tuple(ratios),
        notes=tuple(bench.plan.notes),
        texts={kind: mask_text(text) for kind, text in bench.texts.items()},
        ended=bench.ended,
        error="" if bench.error is None else mask_text(" ".join(str(bench.error).split())),
    )


def _with_calls(samples: Sequence[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.calls or sample.errors]


def _tool(name: str, firsts: Sequence[Sequence[Sample]]) -> ToolFigures:
    merged = [
        Latencies.together(sample.latencies[name] for sample in samples if name in sample.latencies)
        for samples in firsts
    ]
    p50, p99 = (tuple(each.quantile(share) if each.count else None for each in merged) for share in (0.5, 0.99))
    return ToolFigures(name, p50, p99)


def verdict(ratio: Ratio) -> str:
    """Say in a few words what a ratio means."""
    if ratio.within_noise:
        return "within the noise"
    more, less = ("more", "fewer") if ratio.of == "rate" else ("longer", "shorter")
    return more if ratio.median > 1 else less


def error_lines(report: BenchReport) -> list[str]:
    """Return a line for each step with failures, counted by kind, then the text of the first failure of each kind."""
    lines = [
        (f"{server.name}, " if len(report.servers) > 1 else "")
        + f"{step.in_flight} in flight: "
        + ", ".join(f"{count} {kind}" for kind, count in step.errors.items())
        for server in report.servers
        for step in server.steps
        if step.errors
    ]
    return lines + [f"the first {kind}: {text}" for kind, text in report.texts.items() if text]


def json_text(report: BenchReport) -> str:
    """Return a report as JSON: durations in seconds, shares from 0 to 1."""
    return json.dumps(as_json(report), indent=2) + "\n"


def as_json(report: BenchReport) -> dict[str, Any]:
    """Return a report as a JSON object."""
    found: dict[str, Any] = {"version": VERSION, **attrs.asdict(report)}
    for server, shown in zip(report.servers, found["servers"], strict=True):
        shown["bends"] = server.bends
    for ratio, shown in zip(report.ratios, found["ratios"], strict=True):
        shown["withinNoise"] = ratio.within_noise
    return found | {"failed": report.failed}
