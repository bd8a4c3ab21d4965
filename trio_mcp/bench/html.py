"""The report of a benchmark as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trio_mcp.bench.figures import Step
from trio_mcp.bench.plan import shown_names
from trio_mcp.bench.report import BenchReport, Measured, error_lines
from trio_mcp.bench.table import COLUMNS, PAIRED, milliseconds, ratio_cells, step_cells, title_of
from trio_mcp.conformance.report.page import facts, html_page, safe

__all__ = ["html"]


def html(report: BenchReport) -> str:
    """Return a report as an HTML page."""
    names = " and ".join(safe(server.name) for server in report.servers)
    method = "Closed loop: a worker makes its next call when its last one has ended."
    good = report.ended == "complete" and not report.failed
    return html_page(f"{names}: calls a second", _body(report, names), good=good, footer=method)


def _body(report: BenchReport, names: str) -> Iterator[str]:
    yield f'<header><p class="over">Benchmark of calls with the Model Context Protocol</p><h1>{names}</h1>'
    if report.ended != "complete":
        yield f'<p class="warning">{safe(report.ending)}</p>'
    yield from facts(
        {
            "Tools": [shown_names([tool.name]) for tool in report.tools] or ["none"],
            "Seconds a step": [f"{report.terms.seconds:g}"],
            "Timeout": [f"{report.terms.timeout:g} s"],
            "Seed": [report.terms.seed],
        }
    )
    yield "</header><main>"
    # One scale for both, so that the bars of two servers can be compared.
    steps = [step for server in report.servers for step in server.steps]
    for server in report.servers:
        yield from _server(server, steps)
    if report.ratios:
        first, second = (safe(server.name) for server in report.servers)
        yield f"<section><h2>{second} to {first}</h2>"
        yield '<p class="fine">The median ratio of the pairs of samples, and the range.</p>'
        yield from _table(PAIRED, ratio_cells(report.ratios))
        yield "</section>"
    if len(report.tools) > 1:
        yield f"<section><h2>Each tool, with {report.terms.ladder[0]} in flight</h2>"
        heads = ["tool", *(f"{server.name} {which} ms" for server in report.servers for which in ("p50", "p99"))]
        rows = [
            [
                shown_names([tool.name]),
                *(milliseconds(each) for pair in zip(tool.p50, tool.p99, strict=True) for each in pair),
            ]
            for tool in report.tools
        ]
        yield from _table(heads, rows)
        yield "</section>"
    if notes := [*report.notes, *error_lines(report)]:
        items = "".join(f"<li>{safe(note)}</li>" for note in notes)
        yield f'<section id="notes"><h2>Notes</h2><ul>{items}</ul></section>'
    yield "</main>"


def _server(server: Measured, steps: Sequence[Step]) -> Iterator[str]:
    yield f"<section><h2>{safe(title_of(server))}</h2>"
    if not server.steps:
        yield "<p>Nothing was measured.</p></section>"
        return
    if server.bends:
        yield f"<p>{safe(server.bends)}</p>"
    yield from _table(COLUMNS, [step_cells(step) for step in server.steps])
    yield '<h2>Calls a second</h2><table class="bars">'
    fastest = max((step.rate for step in steps), default=0.0)
    for step in server.steps:
        yield _bar(f"{step.in_flight} in flight", f"{step.rate:,.0f}", [("held", step.rate)], fastest)
    yield '</table><h2>Milliseconds a call, p50 and p99</h2><table class="bars">'
    slowest = max((step.p99 or 0.0 for step in steps), default=0.0)
    for step in server.steps:
        if step.p50 is not None and step.p99 is not None:
            shares = [("held", step.p50), ("unclear", step.p99 - step.p50)]
            words = f"{milliseconds(step.p50)} and {milliseconds(step.p99)}"
            yield _bar(f"{step.in_flight} in flight", words, shares, slowest)
    yield "</table></section>"


def _bar(name: str, words: str, shares: Sequence[tuple[str, float]], whole: float) -> str:
    # Parts of one, and what is left of it: if the sum of the factors is below 1, as that of seconds is, the browser
    # fills only that part of the row (CSS Flexible Box Layout, section 7.2).
    parts = [(kind, share / whole) for kind, share in shares if share > 0]
    spans = "".join(f'<span class="{kind}" style="flex-grow:{part:.6f}"></span>' for kind, part in parts)
    rest = max(1.0 - sum(part for _, part in parts), 0.0)
    filler = f'<span style="flex-grow:{rest:.6f};min-width:0"></span>'
    return (
        f'<tr><th>{name}</th><td>{words}</td><td class="wide"><div class="bar large" role="img" aria-label="{words}">'
        f"{spans}{filler}</div></td></tr>"
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    kept = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    yield '<table class="figures"><tr>'
    yield "".join(f"<th>{safe(heads[at])}</th>" for at in kept)
    yield "</tr>"
    for row in rows:
        yield f"<tr>{''.join(f'<td>{safe(row[at])}</td>' for at in kept)}</tr>"
    yield "</table>"
