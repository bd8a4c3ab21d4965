"""A report of the conformance kit as one HTML file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Final

from trio_mcp.conformance.outcomes import CheckReport, Outcome, Status
from trio_mcp.conformance.plans.plan_files import plan_file_name
from trio_mcp.conformance.report.diagram import diagram
from trio_mcp.conformance.report.page import facts, html_page, safe
from trio_mcp.conformance.report.view import (
    STATUSES,
    Coverage,
    Section,
    ShownEvent,
    clean,
    counted,
    coverage,
    ending,
    headline,
    page_title,
    problem_of,
    repeats,
    sections,
    shorten,
    transcript_of,
)
from trio_mcp.conformance.serving.script import Script
from trio_mcp.conformance.transcript.files import as_line

__all__ = ["html"]

NAMES: Final[dict[Status, tuple[str, str, str]]] = {
    "broken": ("✗", "Broken", "broken"),
    "held": ("✓", "Held", "held"),
    "not exercised": ("○", "No occasion", "unused"),
    "not checkable": ("?", "Can't check", "unclear"),
}
"""For each status: its mark, its name and its class."""

MAX_EVENTS: Final = 80
"""The most events of a failure that are drawn. Chosen: a shrunk one has a few."""


def html(report: CheckReport) -> str:
    """Return a report as an HTML page."""
    title = f"{safe(report.target)} and the Model Context Protocol"
    again = f"The same seed sends the same messages: <code>trio-mcp check --seed {report.seed}</code>"
    return html_page(title, _body(report), good=not report.status, footer=again)


def _body(report: CheckReport) -> Iterator[str]:
    yield from _head(report)
    yield "<main>"
    yield from _failures(report)
    yield from _rules(report)
    yield from _coverage(report)
    yield from _notes(report)
    yield "</main>"


def _prose(text: str) -> str:
    """Return a sentence of a rule, in which backticks hold code."""
    # After the escapes, so that these tags are the only ones, whatever a rule of the user's own says.
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", safe(text))


# --- the head ---------------------------------------------------------------------------------------------------------


def _head(report: CheckReport) -> Iterator[str]:
    verdict = "bad" if report.status else "good"
    mark = "✗" if report.status else "✓"
    yield "<header>"
    yield f'<p class="over">Conformance of a {report.side} with the Model Context Protocol</p>'
    yield f"<h1>{safe(report.target)}</h1>"
    if report.info:
        yield f'<p class="info">{safe(shorten(report.info, 300))}</p>'
    yield f'<p class="verdict {verdict}"><span>{mark}</span> {safe(headline(report))}</p>'
    kind = "fine" if report.ended == "complete" else "warning"
    yield f'<p class="{kind}">{safe(ending(report))}</p>'
    counts = counted(report.outcomes)
    yield _bar(counts, "large")
    yield '<ul class="tiles">'
    for status, (sign, name, kind) in NAMES.items():
        yield f'<li class="{kind}"><b>{counts[status]}</b><span><i>{sign}</i> {name}</span></li>'
    yield "</ul>"
    found: dict[str, list[object]] = {
        "Transport": [report.transport],
        "Revisions": [*report.revisions] or ["none"],
        "Examples": [f"{report.examples:,}"],
        "Requests": [f"{report.requests:,}"],
        "Time": [f"{report.seconds:.1f} s"],
        "Seed": [report.seed],
    }
    yield from facts(found)
    yield "</header>"


def _bar(counts: Mapping[Status, int], kind: str = "") -> str:
    # Shares that the browser divides up itself: percentages would have to be rounded, and their sum would not fit.
    parts = "".join(
        f'<span class="{NAMES[status][2]}" style="flex-grow:{counts[status]}"></span>'
        for status in STATUSES
        if counts[status]
    )
    words = ", ".join(f"{counts[status]} {NAMES[status][1].lower()}" for status in STATUSES if counts[status])
    return f'<div class="bar {kind}" role="img" aria-label="{safe(words)}" title="{safe(words)}">{parts}</div>'


# --- what is broken ---------------------------------------------------------------------------------------------------


def _failures(report: CheckReport) -> Iterator[str]:
    if not report.broken:
        return
    yield '<section id="broken"><h2>What is broken</h2>'
    # What fails the check comes first.
    for outcome in sorted(report.broken, key=lambda each: (each.known, each.rule.level != "MUST")):
        yield from _failure(outcome, report)
    yield "</section>"


def _failure(outcome: Outcome, report: CheckReport) -> Iterator[str]:
    rule, failure = outcome.rule, outcome.failure
    revision = None if failure is None else failure.revision
    known = '<span class="badge">known</span>' if outcome.known else ""
    yield f'<article id="{safe(rule.id)}" class="{rule.level.lower()}"><div class="rule">'
    yield f"<h3>{_level(outcome)}{known} <code>{safe(rule.id)}</code></h3>"
    yield f'<p class="sentence">{_prose(rule.sentence)}</p>'
    yield (
        f'<p><a href="{escape(rule.link(revision))}" rel="noreferrer">The specification: {safe(rule.section)}'
        f"{f' ({revision})' if revision else ''}</a></p>"
    )
    if failure is None:
        yield "</div></article>"
        return
    yield f'<p class="problem">{safe(problem_of(outcome))}</p>'
    yield f'<p class="fine">{repeats(failure).capitalize()}; first in example {failure.example}.</p>'
    # What a client met can't be replayed, so for it there is no file.
    if not isinstance(failure.plan, Script):
        name = safe(plan_file_name(rule.id))
        yield f'<p class="fine">To see it again:</p><pre class="command">trio-mcp replay {name} TARGET</pre>'
    prologue, rest = transcript_of(failure)
    yield '</div><div class="exchange">'
    yield from _exchange(prologue, rest, f"The exchange that breaks {rule.id}")
    yield "</div></article>"


def _exchange(prologue: list[ShownEvent], rest: list[ShownEvent], name: str) -> Iterator[str]:
    # A prologue that broke the rule itself is what matters.
    drawn = prologue + rest if any(each.is_bad for each in prologue) else rest
    before = len(prologue) if drawn is rest else 0
    yield diagram(drawn[:MAX_EVENTS], before=before, name=name)
    if len(drawn) > MAX_EVENTS:
        yield f'<p class="fine">… {len(drawn) - MAX_EVENTS} more events</p>'
    # The events were masked when they were made ready to be shown; those of the failure itself are not.
    lines = "\n".join(json.dumps(as_line(each.event), ensure_ascii=False) for each in (prologue + rest))
    size = len(prologue) + len(rest)
    yield f"<details><summary>All {size} events, as JSON</summary><pre>{escape(clean(lines, chr(10)))}</pre></details>"


def _level(outcome: Outcome) -> str:
    level = outcome.rule.level
    return f'<span class="badge {level.lower()}">{level}</span>'


# --- every rule -------------------------------------------------------------------------------------------------------


def _rules(report: CheckReport) -> Iterator[str]:
    yield '<section id="rules"><h2>The rules, by section of the specification</h2>'
    yield f'<p class="fine">{_covered(report.outcomes)}</p>'
    for section in sections(report):
        yield from _section(section)
    yield "</section>"


def _covered(outcomes: Iterable[Outcome]) -> str:
    parts = []
    for level in ("MUST", "SHOULD"):
        rules = [each for each in outcomes if each.rule.level == level]
        used = sum(each.status in ("held", "broken") for each in rules)
        if rules:
            parts.append(f"{used} of {len(rules)} rules that say {level} were exercised ({used / len(rules):.0%})")
    return "; ".join(parts) + "." if parts else "No rule was judged."


def _section(section: Section) -> Iterator[str]:
    counts = section.counts
    # A section in which all is well stays closed: a reader comes for the others, which it would push out of sight.
    opened = " open" if counts["broken"] else ""
    numbers = "".join(
        f'<span class="{NAMES[status][2]}" title="{NAMES[status][1]}">{NAMES[status][0]} {counts[status]}</span>'
        for status in STATUSES
        if counts[status]
    )
    yield (
        f'<details class="section"{opened}><summary><span class="name">{safe(section.title)}</span>'
        f'<span class="numbers">{numbers}</span>{_bar(counts)}</summary><ul class="outcomes">'
    )
    for outcome in section.outcomes:
        sign, name, kind = NAMES[outcome.status]
        link = escape(outcome.rule.link())
        id_ = safe(outcome.rule.id)
        where = f'<a href="#{id_}"><code>{id_}</code></a>' if outcome.status == "broken" else f"<code>{id_}</code>"
        yield (
            f'<li><span class="mark {kind}" title="{name}">{sign}</span><div><p>{where} {_level(outcome)}</p>'
            f"<p>{_prose(outcome.rule.sentence)}</p>"
            f'<p class="fine">{_why(outcome)} · <a href="{link}" rel="noreferrer">specification</a></p></div></li>'
        )
    yield "</ul></details>"


def _why(outcome: Outcome) -> str:
    times = "on one occasion" if outcome.occasions == 1 else f"on {outcome.occasions:,} occasions"
    match outcome.status:
        case "held":
            return f"held {times}"
        case "broken":
            return f"{'known, ' if outcome.known else ''}judged {times}"
    name = NAMES[outcome.status][1].lower()
    return f"{name}: {safe(outcome.reason)}" if outcome.reason else name


# --- the specification ------------------------------------------------------------------------------------------------


def _coverage(report: CheckReport) -> Iterator[str]:
    found = coverage(report)
    if not found:
        return
    yield '<section id="coverage"><h2>Coverage of the specification</h2>'
    for revision in dict.fromkeys(each.revision for each in found):
        pages = [each for each in found if each.revision == revision]
        used, idle, hidden = (sum(getattr(each, name) for each in pages) for name in ("exercised", "idle", "hidden"))
        yield (
            f"<details><summary>Revision {revision}: {used} of {used + idle} sentences with MUST or SHOULD that a peer"
            f" can observe were exercised ({used / max(used + idle, 1):.0%}); {hidden} more can't be observed, or"
            f" concern authorization</summary><table>"
        )
        for page in pages:
            yield (
                f"<tr><th>{safe(page_title(page.page))}</th><td>{_share(page)}</td>"
                f'<td class="wide">{_spans(held=page.exercised, unused=page.idle, hidden=page.hidden)}</td></tr>'
            )
        yield "</table></details>"
    yield '<p class="fine">Green: exercised. Grey: no occasion. Striped: no peer can observe it.</p></section>'


def _share(page: Coverage) -> str:
    seen = page.exercised + page.idle
    return f"{page.exercised} of {seen}" if seen else "none"


def _spans(**parts: int) -> str:
    spans = "".join(f'<span class="{kind}" style="flex-grow:{count}"></span>' for kind, count in parts.items() if count)
    return f'<div class="bar">{spans}</div>'


# --- the rest ---------------------------------------------------------------------------------------------------------


def _notes(report: CheckReport) -> Iterator[str]:
    if report.notes:
        items = "".join(f"<li>{safe(note)}</li>" for note in report.notes)
        yield f'<section id="notes"><h2>Notes</h2><ul>{items}</ul></section>'
    if report.figures:
        rows = "".join(
            f"<tr><th>{safe(name)}</th><td>{_figure(value)}</td></tr>" for name, value in report.figures.items()
        )
        yield f'<section id="figures"><h2>Figures</h2><table>{rows}</table></section>'


def _figure(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{safe(name)} {_figure(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else safe(value)
