"""Format the report of a benchmark for a terminal: the figures of each step, and what the figures mean."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from trio_mcp.bench.figures import Ratio, Step
from trio_mcp.bench.plan import LONGEST_NAME
from trio_mcp.bench.report import BenchReport, Measured, error_lines, verdict
from trio_mcp.conformance.report.view import clean, shorten

__all__ = ["COLUMNS", "PAIRED", "milliseconds", "ratio_cells", "step_cells", "table", "title_of"]

WIDTH: Final = 100
"""The width of the report in columns: fixed, so that a report is the same in a terminal and in a file."""

COLUMNS: Final = (
    "in flight",
    "calls/s",
    "p50 ms",
    "p99 ms",
    "worst ms",
    "errors",
    "client busy",
    "server CPU µs/call",
)
"""The column headings of the table of steps."""

PAIRED: Final = ("in flight", "calls/s", "", "p50", "")
"""The column headings of the table of ratios."""


def table(report: BenchReport) -> str:
    """Return a report as text."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: BenchReport) -> Iterator[str]:
    for server in report.servers:
        yield clean(title_of(server))
        yield from _rows(COLUMNS, [step_cells(step) for step in server.steps])
        yield from _filled(server.bends)
        yield ""
    if report.ratios:
        yield clean(f"{report.servers[1].name} to {report.servers[0].name}, in pairs: the median ratio, and the range")
        yield from _rows(PAIRED, ratio_cells(report.ratios))
        yield ""
    if len(report.tools) > 1:
        yield from _tools(report)
    for line in [*(f"note: {note}" for note in report.notes), *error_lines(report)]:
        yield from _filled(line)
    yield from _filled(report.ending)


def title_of(server: Measured) -> str:
    """Describe a server in one line: its name, its transport and its revision."""
    info = f" ({shorten(server.info, LONGEST_NAME)})" if server.info else ""
    return f"{server.name}{info} over {server.transport}, revision {server.revision}"


def step_cells(step: Step) -> tuple[str, ...]:
    """Return the table cells of a step, in the order of `COLUMNS`."""
    return (
        str(step.in_flight),
        f"{step.rate:,.4g}" if step.rate < 1000 else f"{step.rate:,.0f}",
        *(milliseconds(each) for each in (step.p50, step.p99, step.worst)),
        f"{sum(step.errors.values()):,}",
        f"{step.client_busy:.0%}",
        "" if step.server_cpu is None else f"{step.server_cpu * 1e6:,.0f}",
    )


def ratio_cells(ratios: Sequence[Ratio]) -> list[tuple[str, ...]]:
    """Return a table row for each step that has ratios, with its cells in the order of `PAIRED`."""
    rows: dict[int, list[str]] = {}
    for ratio in ratios:
        cells = rows.setdefault(ratio.in_flight, [str(ratio.in_flight)])
        cells += [f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})", verdict(ratio)]
    return [tuple(row) for row in rows.values()]


def milliseconds(seconds: float | None) -> str:
    """Format a duration in milliseconds, to three digits or to the microsecond; return a dot if it is missing."""
    if seconds is None:
        return "·"
    value = seconds * 1000
    return f"{value:,.0f}" if value >= 100 else f"{value:#.3g}" if value >= 1 else f"{value:.3f}"


def _tools(report: BenchReport) -> Iterator[str]:
    in_flight = report.terms.ladder[0]
    heads = ["tool"]
    for server in report.servers:
        of = f"{server.name} " if len(report.servers) > 1 else ""
        heads += [f"{of}p50 ms", f"{of}p99 ms"]
    rows = [
        (
            shorten(tool.name, LONGEST_NAME),
            *(milliseconds(each) for pair in zip(tool.p50, tool.p99, strict=True) for each in pair),
        )
        for tool in report.tools
    ]
    yield f"each tool, with {in_flight} in flight"
    yield from _rows([clean(head) for head in heads], [(clean(name), *cells) for name, *cells in rows], str.ljust)
    yield ""


def _rows(
    heads: Sequence[str], rows: Sequence[Sequence[str]], first: Callable[[str, int], str] = str.rjust
) -> Iterator[str]:
    """Yield the lines of a table, if it has any rows, without the columns that are empty in every row."""
    if not rows:
        return
    kept = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    widths = {at: max(len(row[at]) for row in [heads, *rows]) for at in kept}
    for row in [heads, *rows]:
        cells = [first(row[at], widths[at]) if at == kept[0] else row[at].rjust(widths[at]) for at in kept]
        yield f"  {'  '.join(cells)}".rstrip()


def _filled(text: str) -> list[str]:
    return textwrap.wrap(clean(text), WIDTH, subsequent_indent="  ")
