"""The HTML page that ``trio-mcp bench --html`` writes."""

from __future__ import annotations

from collections.abc import Sequence

from trio_mcp.bench.figures import Step
from trio_mcp.bench.plan import shown_names
from trio_mcp.bench.report import BenchReport, Measured, error_lines
from trio_mcp.bench.table import COLUMNS, PAIRED, milliseconds, ratio_cells, step_cells, title_of
from trio_mcp.conformance.report.html_elements import facts, html_page, notes, safe, spans

__all__ = ["html"]


def html(report: BenchReport) -> str:
    """Return a report as an HTML page."""
    names = " and ".join(safe(server.name) for server in report.servers)
    method = "Closed loop: a worker makes its next call when its last one has ended."
    good = report.ended == "complete" and not report.failed
    return html_page(f"{names}: calls a second", _body(report, names), good=good, footer=method)


def _body(report: BenchReport, names: str) -> list[str]:
    # Both servers share one scale, so that their bars can be compared.
    steps = [step for server in report.servers for step in server.steps]
    return [
        f'<header><p class="over">Benchmark of calls with the Model Context Protocol</p><h1>{names}</h1>',
        *([f'<p class="warning">{safe(report.ending)}</p>'] if report.ended != "complete" else []),
        *facts(
            {
                "Tools": [shown_names([tool.name]) for tool in report.tools] or ["none"],
                "Seconds a step": [f"{report.terms.seconds:g}"],
                "Timeout": [f"{report.terms.timeout:g} s"],
                "Seed": [report.terms.seed],
            }
        ),
        "</header><main>",
        *(line for server in report.servers for line in _server(server, steps)),
        *_ratios(report),
        *_tools(report),
        *notes([*report.notes, *error_lines(report)]),
        "</main>",
    ]


def _ratios(report: BenchReport) -> list[str]:
    if not report.ratios:
        return []
    first, second = (safe(server.name) for server in report.servers)
    return [
        f"<section><h2>{second} to {first}</h2>",
        '<p class="fine">The median ratio of the pairs of samples, and the range.</p>',
        *_table(PAIRED, ratio_cells(report.ratios)),
        "</section>",
    ]


def _tools(report: BenchReport) -> list[str]:
    if len(report.tools) < 2:
        return []
    heads = ["tool", *(f"{server.name} {which} ms" for server in report.servers for which in ("p50", "p99"))]
    rows = [
        [
            shown_names([tool.name]),
            *(milliseconds(each) for pair in zip(tool.p50, tool.p99, strict=True) for each in pair),
        ]
        for tool in report.tools
    ]
    title = f"<section><h2>Each tool, with {report.terms.ladder[0]} in flight</h2>"
    return [title, *_table(heads, rows), "</section>"]


def _server(server: Measured, steps: Sequence[Step]) -> list[str]:
    title = f"<section><h2>{safe(title_of(server))}</h2>"
    if not server.steps:
        return [title, "<p>Nothing was measured.</p></section>"]
    fastest = max((step.rate for step in steps), default=0.0)
    slowest = max((step.p99 or 0.0 for step in steps), default=0.0)
    return [
        title,
        *([f"<p>{safe(server.bends)}</p>"] if server.bends else []),
        *_table(COLUMNS, [step_cells(step) for step in server.steps]),
        '<h2>Calls a second</h2><table class="bars">',
        *(
            _bar(f"{step.in_flight} in flight", f"{step.rate:,.0f}", [("held", step.rate)], fastest)
            for step in server.steps
        ),
        '</table><h2>Milliseconds a call, p50 and p99</h2><table class="bars">',
        *(
            _bar(
                f"{step.in_flight} in flight",
                f"{milliseconds(step.p50)} and {milliseconds(step.p99)}",
                [("held", step.p50), ("unclear", step.p99 - step.p50)],
                slowest,
            )
            for step in server.steps
            if step.p50 is not None and step.p99 is not None
        ),
        "</table></section>",
    ]


def _bar(name: str, words: str, shares: Sequence[tuple[str, float]], whole: float) -> str:
    # The parts of a bar and a filler add up to 1: with a smaller sum, for example of seconds, the browser would fill
    # only that part of the row (CSS Flexible Box Layout, section 7.2).
    parts = [(kind, share / whole) for kind, share in shares if share > 0]
    rest = max(1.0 - sum(part for _, part in parts), 0.0)
    filler = f'<span style="flex-grow:{rest:.6f};min-width:0"></span>'
    return (
        f'<tr><th>{name}</th><td>{words}</td><td class="wide"><div class="bar large" role="img" aria-label="{words}">'
        f"{spans((kind, f'{part:.6f}') for kind, part in parts)}{filler}</div></td></tr>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    kept = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    return [
        '<table class="figures"><tr>',
        "".join(f"<th>{safe(heads[at])}</th>" for at in kept),
        "</tr>",
        *(f"<tr>{''.join(f'<td>{safe(row[at])}</td>' for at in kept)}</tr>" for row in rows),
        "</table>",
    ]
