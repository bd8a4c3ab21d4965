"""Makes the HTML page that ``trio-mcp check --report report.html`` writes: a single file that loads nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from trio_mcp.conformance.outcomes import CheckReport, Outcome, Status
from trio_mcp.conformance.plans.plan_files import plan_file_name
from trio_mcp.conformance.report.diagram import diagram
from trio_mcp.conformance.report.html_elements import facts, html_page, notes, safe, spans
from trio_mcp.conformance.report.view import (
    SIDES,
    STATUSES,
    Coverage,
    Section,
    ShownEvent,
    ShownReach,
    clean,
    counted,
    coverage,
    ending,
    headline,
    page_title,
    problem_of,
    reached,
    reached_line,
    repeats,
    sections,
    shorten,
    transcript_of,
)
from trio_mcp.conformance.rules.model import LEVELS
from trio_mcp.conformance.transcript.files import as_line

__all__ = ["html"]

NAMES: Final[dict[Status, tuple[str, str, str]]] = {
    "broken": ("✗", "Broken", "broken"),
    "held": ("✓", "Held", "held"),
    "not exercised": ("○", "No occasion", "unused"),
    "not checkable": ("?", "Can't check", "unclear"),
}
"""The mark, the name and the CSS class of each status."""

MAX_EVENTS: Final = 80
"""The maximum number of events of a failure that are drawn: an arbitrary choice, as a shrunk failure has only a few."""


def html(report: CheckReport) -> str:
    """Return a report as an HTML page."""
    title = f"{safe(report.target)} and the Model Context Protocol"
    again = f"The same seed sends the same messages: <code>trio-mcp check --seed {report.seed}</code>"
    body = [
        *_head(report),
        "<main>",
        *_failures(report),
        *_reached(report),
        *_rules(report),
        *_coverage(report),
        *notes([*report.notes, *(f"advice: {each}" for each in report.advice)]),
        *_figures(report),
        "</main>",
    ]
    return html_page(title, body, good=not report.status, footer=again)


def _prose(text: str) -> str:
    """Return the sentence of a rule as HTML, with the text in backticks as code."""
    # The tags are added after escaping, so that the page has no other tags, whatever a user's own rule contains.
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", safe(text))


# --- the head ---------------------------------------------------------------------------------------------------------


def _head(report: CheckReport) -> list[str]:
    verdict, mark = ("bad", "✗") if report.status else ("good", "✓")
    kind = "fine" if report.ended == "complete" else "warning"
    counts = counted(report.outcomes)
    return [
        "<header>",
        f'<p class="over">Conformance of {SIDES[report.side]} with the Model Context Protocol</p>',
        f"<h1>{safe(report.target)}</h1>",
        *([f'<p class="info">{safe(shorten(report.info, 300))}</p>'] if report.info else []),
        f'<p class="verdict {verdict}"><span>{mark}</span> {safe(headline(report))}</p>',
        f'<p class="{kind}">{safe(ending(report))}</p>',
        _bar(counts, "large"),
        '<ul class="tiles">',
        *(
            f'<li class="{kind}"><b>{counts[status]}</b><span><i>{sign}</i> {name}</span></li>'
            for status, (sign, name, kind) in NAMES.items()
        ),
        "</ul>",
        *facts(
            {
                "Transport": [report.transport],
                "Revisions": [*report.revisions] or ["none"],
                ("Issuers" if report.side == "issuer" else "Examples"): [f"{report.examples:,}"],
                "Requests": [f"{report.requests:,}"],
                "Time": [f"{report.seconds:.1f} s"],
                "Seed": [report.seed],
            }
        ),
        "</header>",
    ]


def _bar(counts: Mapping[Status, int], kind: str = "") -> str:
    parts = spans((NAMES[status][2], counts[status]) for status in STATUSES if counts[status])
    words = ", ".join(f"{counts[status]} {NAMES[status][1].lower()}" for status in STATUSES if counts[status])
    return f'<div class="bar {kind}" role="img" aria-label="{safe(words)}" title="{safe(words)}">{parts}</div>'


# --- what is broken ---------------------------------------------------------------------------------------------------


def _failures(report: CheckReport) -> list[str]:
    # The rules that make the check fail come first.
    found = sorted(report.findings, key=_gravity)
    articles = [line for first, *others in found for line in _failure(first, others)]
    return ['<section id="broken"><h2>What is broken</h2>', *articles, "</section>"] if articles else []


def _gravity(finding: Sequence[Outcome]) -> tuple[bool, int]:
    return finding[0].known, min(LEVELS.index(each.rule.level) for each in finding)


def _also(outcome: Outcome) -> str:
    """Return another rule that the cause of a failure breaks, as an item of a list."""
    return (
        f'<li id="{safe(outcome.rule.id)}">{_level(outcome)} <code>{safe(outcome.rule.id)}</code>:'
        f" {safe(problem_of(outcome))}</li>"
    )


def _failure(outcome: Outcome, others: Sequence[Outcome]) -> list[str]:
    rule, failure = outcome.rule, outcome.failure
    revision = None if failure is None else failure.revision
    known = '<span class="badge">known</span>' if outcome.known else ""
    head = [
        f'<article id="{safe(rule.id)}" class="{rule.level.lower()}"><div class="rule">',
        f"<h3>{_level(outcome)}{known} <code>{safe(rule.id)}</code></h3>",
        f'<p class="sentence">{_prose(rule.sentence)}</p>',
        *([f'<p class="fine">No sentence demands it. {_prose(rule.reason)}</p>'] if rule.reason else []),
    ]
    if link := rule.link(revision):
        where = f"{safe(rule.section)}{f' ({revision})' if revision else ''}"
        head.append(f'<p><a href="{escape(link)}" rel="noreferrer">The specification: {where}</a></p>')
    if failure is None:
        return [*head, "</div></article>"]
    name = "" if failure.steps is None else safe(plan_file_name(rule.id))
    lines = {"To see it again": name and f"trio-mcp replay {name} TARGET", "Without the kit": safe(failure.command)}
    shown = (f'<p class="fine">{way}:</p><pre class="command">{line}</pre>' for way, line in lines.items() if line)
    also = f'<p class="fine">The same breaks:</p><ul>{"".join(map(_also, others))}</ul>' if others else ""
    return [
        *head,
        f'<p class="problem">{safe(problem_of(outcome))}</p>',
        *([also] if also else []),
        f'<p class="fine">{repeats(failure).capitalize()}; first in example {failure.example}.</p>',
        *shown,
        '</div><div class="exchange">',
        *_exchange(*transcript_of(failure), f"The exchange that breaks {rule.id}"),
        "</div></article>",
    ]


def _exchange(prologue: list[ShownEvent], rest: list[ShownEvent], name: str) -> list[str]:
    # The prologue is drawn only if it contains the event that broke the rule.
    whole = prologue + rest
    drawn = whole if any(each.is_bad for each in prologue) else rest
    # The events in `whole` have been masked already, unlike those in `failure.transcript`.
    lines = "\n".join(json.dumps(as_line(each.event), ensure_ascii=False) for each in whole)
    more = len(drawn) - MAX_EVENTS
    return [
        diagram(drawn[:MAX_EVENTS], before=len(whole) - len(drawn), name=name),
        *([f'<p class="fine">… {more} more events</p>'] if more > 0 else []),
        f"<details><summary>All {len(whole)} events, as JSON</summary>"
        f"<pre>{escape(clean(lines, chr(10)))}</pre></details>",
    ]


def _level(outcome: Outcome) -> str:
    level = outcome.rule.level
    return f'<span class="badge {level.lower()}">{level}</span>'


# --- what was reached -------------------------------------------------------------------------------------------------


def _reached(report: CheckReport) -> list[str]:
    found = reached(report)
    if not found:
        return []
    return [
        '<section id="reached"><h2>What was reached</h2>',
        f'<p class="fine">{safe(reached_line(report))} Counted are calls that are valid by the schema.</p>',
        *map(_target, found),
        "</section>",
    ]


def _target(shown: ShownReach) -> str:
    item = shown.item
    others = item.called - item.accepted - item.refused
    counts = {"held": item.accepted, "broken": item.refused, "unused": others}
    names = {"held": "accepted", "broken": "refused", "unused": "without an answer"}
    words = ", ".join(f"{count:,} {names[kind]}" for kind, count in counts.items() if count) or "never called"
    bar = spans((kind, count) for kind, count in counts.items() if count)
    numbers = f"{shown.share} keywords" if shown.share else ""
    head = (
        f'<summary><span class="name">{safe(shown.label)}</span><span class="numbers"><span>{words}</span>'
        f'<span class="unused">{numbers}</span></span><div class="bar" title="{words}">{bar}</div></summary>'
    )
    why = f'<p class="why">{safe(shown.why)}</p>' if shown.why else ""
    rows = "".join(
        f"<tr><th><code>{safe(shorten(each.keyword, 120))}</code></th>"
        + "".join(f"<td>{count:,}</td>" for count in (each.called, each.accepted, each.refused, each.broken))
        + f"<td>{safe(each.why)}</td></tr>"
        for each in shown.keywords
    )
    table = (
        "<table><tr><th>keyword</th><th>called</th><th>accepted</th><th>refused</th><th>broken on purpose</th>"
        f"<th></th></tr>{rows}</table>"
    )
    opened = " open" if shown.why and item.called else ""
    return f'<details class="section"{opened}>{head}<div class="calls">{why}{table if rows else ""}</div></details>'


# --- every rule -------------------------------------------------------------------------------------------------------


def _rules(report: CheckReport) -> list[str]:
    return [
        '<section id="rules"><h2>The rules, by section of the specification</h2>',
        f'<p class="fine">{_covered(report.outcomes)}</p>',
        *(line for section in sections(report) for line in _section(section)),
        "</section>",
    ]


_SAYING: Final = {"MUST": "that say MUST", "SHOULD": "that say SHOULD", "EXPECTED": "of what users expect"}


def _covered(outcomes: Iterable[Outcome]) -> str:
    parts = []
    for level in LEVELS:
        rules = [each for each in outcomes if each.rule.level == level]
        used = sum(each.status in ("held", "broken") for each in rules)
        if rules:
            parts.append(f"{used} of {len(rules)} rules {_SAYING[level]} were exercised ({used / len(rules):.0%})")
    return "; ".join(parts) + "." if parts else "No rule was judged."


def _section(section: Section) -> list[str]:
    counts = section.counts
    # A section in which nothing is broken stays closed: open, it would push the sections that a reader looks for out of
    # sight.
    opened = " open" if counts["broken"] else ""
    numbers = "".join(
        f'<span class="{NAMES[status][2]}" title="{NAMES[status][1]}">{NAMES[status][0]} {counts[status]}</span>'
        for status in STATUSES
        if counts[status]
    )
    return [
        f'<details class="section"{opened}><summary><span class="name">{safe(page_title(section.path))}</span>'
        f'<span class="numbers">{numbers}</span>{_bar(counts)}</summary><ul class="outcomes">',
        *map(_row, section.outcomes),
        "</ul></details>",
    ]


def _row(outcome: Outcome) -> str:
    sign, name, kind = NAMES[outcome.status]
    where = f"<code>{safe(outcome.rule.id)}</code>"
    if outcome.status == "broken":
        where = f'<a href="#{safe(outcome.rule.id)}">{where}</a>'
    return (
        f'<li><span class="mark {kind}" title="{name}">{sign}</span><div><p>{where} {_level(outcome)}</p>'
        f"<p>{_prose(outcome.rule.sentence)}</p>"
        f'<p class="fine">{_why(outcome)} · {_source(outcome)}</p></div></li>'
    )


def _source(outcome: Outcome) -> str:
    link = outcome.rule.link()
    return f'<a href="{escape(link)}" rel="noreferrer">specification</a>' if link else _prose(outcome.rule.reason)


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


def _coverage(report: CheckReport) -> list[str]:
    found = coverage(report)
    if not found:
        return []
    revisions = dict.fromkeys(each.revision for each in found)
    return [
        '<section id="coverage"><h2>Coverage of the specification</h2>',
        *(line for each in revisions for line in _pages(each, [page for page in found if page.revision == each])),
        '<p class="fine">Green: exercised. Grey: no occasion. Striped: no peer can observe it.</p></section>',
    ]


def _pages(revision: str, pages: list[Coverage]) -> list[str]:
    used, idle, hidden = (sum(getattr(each, name) for each in pages) for name in ("exercised", "idle", "hidden"))
    return [
        f"<details><summary>Revision {revision}: {used} of {used + idle} sentences with MUST or SHOULD that a peer"
        f" can observe were exercised ({used / max(used + idle, 1):.0%}); {hidden} more can't be observed, or"
        f" concern authorization</summary><table>",
        *(
            f"<tr><th>{safe(page_title(page.page))}</th><td>{_share(page)}</td>"
            f'<td class="wide"><div class="bar">{_shares(page)}</div></td></tr>'
            for page in pages
        ),
        "</table></details>",
    ]


def _share(page: Coverage) -> str:
    seen = page.exercised + page.idle
    return f"{page.exercised} of {seen}" if seen else "none"


def _shares(page: Coverage) -> str:
    shares = {"held": page.exercised, "unused": page.idle, "hidden": page.hidden}
    return spans((kind, count) for kind, count in shares.items() if count)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _figures(report: CheckReport) -> list[str]:
    rows = [f"<tr><th>{safe(name)}</th><td>{_figure(value)}</td></tr>" for name, value in report.figures.items()]
    return [f'<section id="figures"><h2>Figures</h2><table>{"".join(rows)}</table></section>'] if rows else []


def _figure(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{safe(name)} {_figure(each)}" for name, each in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else safe(value)
