"""Renders a report as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from trio_mcp.conformance.outcomes import CheckReport, Outcome
from trio_mcp.conformance.report.view import (
    SIDES,
    STATUSES,
    ShownEvent,
    clean,
    counted,
    ending,
    folded,
    headline,
    problem_of,
    reached,
    reached_line,
    repeats,
    sections,
    shorten,
    transcript_of,
)

__all__ = ["event_line", "failure_lines", "table"]

WIDTH = 100
"""The width of a report, in columns: fixed, so that a report looks the same in a terminal and in a file."""

MAX_EVENTS = 60
"""The maximum number of events of a failure that are shown: an arbitrary choice, as a shrunk failure has only a few."""

MAX_REACHED = 30
"""The maximum number of tools, prompts and resources whose calls are shown: an arbitrary choice; other formats have all
of them."""

COLUMNS = {"held": "held", "broken": "broken", "not exercised": "no occasion", "not checkable": "can't check"}


def table(report: CheckReport) -> str:
    """Return a report as text: the rules by section, then each failure with its exchange."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: CheckReport) -> Iterator[str]:
    yield clean(" ".join(filter(None, [report.target, f"({report.info})" if report.info else ""])))
    revisions = ", ".join(report.revisions)
    side = SIDES[report.side].partition(" ")[2]
    yield f"  {side} over {clean(report.transport)}, {revisions or 'no revision'}, seed {report.seed}"
    if report.side == "issuer":
        yield f"  {report.requests} requests, {report.seconds:.1f} s"
    else:
        yield (
            f"  {report.examples} examples, {report.requests} requests, {report.seconds:.1f} s"
            f" ({report.generating:.1f} s of that to generate the examples)"
        )
    yield ""
    yield from _by_section(report)
    yield from _by_target(report)
    for first, *others in report.findings:
        yield ""
        yield from failure_lines(first)
        for outcome in others:
            yield f"  the same breaks {outcome.rule.id}  {outcome.rule.level}"
            yield textwrap.fill(problem_of(outcome), WIDTH, initial_indent="    → ", subsequent_indent="      ")
    if report.notes:
        yield ""
        for note in report.notes:
            yield textwrap.fill(clean(note), WIDTH, initial_indent="note: ", subsequent_indent="      ")
    if report.advice:
        yield ""
        for each in report.advice:
            yield textwrap.fill(clean(each), WIDTH, initial_indent="advice: ", subsequent_indent="        ")
    yield ""
    yield ending(report)
    yield textwrap.fill(clean(f"{headline(report)}."), WIDTH)


def _by_section(report: CheckReport) -> Iterator[str]:
    found = sections(report)
    width = max([len("section"), *(len(section.path) for section in found)])
    yield f"{'section':{width}}" + "".join(f"{COLUMNS[status]:>13}" for status in STATUSES)
    for section in found:
        # Zero is shown as a dot, because most numbers in a section are zero and would hide the others.
        yield f"{section.path:{width}}" + "".join(f"{section.counts[status] or '·':>13}" for status in STATUSES)
    counts = counted(report.outcomes)
    yield f"{'in all':{width}}" + "".join(f"{counts[status]:>13}" for status in STATUSES)


def _by_target(report: CheckReport) -> Iterator[str]:
    found = reached(report)
    if not found:
        return
    yield ""
    labels = [shorten(each.label, WIDTH - 42) for each in found[:MAX_REACHED]]
    width = max(len("calls of"), *map(len, labels))
    yield f"{'calls of':{width}}{'called':>9}{'accepted':>10}{'refused':>9}{'keywords':>13}"
    for label, each in zip(labels, found, strict=False):
        item = each.item
        counts = f"{item.called:>9}{item.accepted:>10}{item.refused:>9}{each.share:>13}"
        yield f"{label:{width}}{counts}".rstrip()
        if each.why:
            yield textwrap.fill(each.why, WIDTH, initial_indent="  → ", subsequent_indent="    ")
        elif each.idle:
            yield shorten(f"  never reached: {', '.join(each.idle)}", WIDTH)
    if len(found) > MAX_REACHED:
        yield f"  … and {len(found) - MAX_REACHED} more"
    yield reached_line(report)


def failure_lines(outcome: Outcome) -> Iterator[str]:
    """Yield the lines about a broken rule: what it requires, what is wrong, and the exchange that shows it."""
    rule, failure = outcome.rule, outcome.failure
    known = "  (known)" if outcome.known else ""
    yield f"✗ {rule.id}  {rule.level}{known}"
    yield textwrap.fill(rule.sentence, WIDTH, initial_indent="  ", subsequent_indent="  ")
    if rule.reason:
        yield textwrap.fill(
            f"No sentence demands it. {rule.reason}", WIDTH, initial_indent="  ", subsequent_indent="  "
        )
    if link := rule.link(None if failure is None else failure.revision):
        yield f"  {link}"
    if failure is None:
        return
    yield textwrap.fill(problem_of(outcome), WIDTH, initial_indent="  → ", subsequent_indent="    ")
    yield f"  {repeats(failure)}, in revision {failure.revision}"
    prologue, rest = transcript_of(failure)
    # If the event that broke the rule is in the prologue, the prologue is shown.
    if any(each.is_bad for each in prologue):
        prologue, rest = [], prologue + rest
    # To save space, the standard error of a connection is folded into one line; the HTML page has the whole transcript.
    rest = folded(rest)
    if prologue:
        yield f"    (after {len(prologue)} events of connecting and listing)"
    for shown in rest[:MAX_EVENTS]:
        yield event_line(shown)
    if len(rest) > MAX_EVENTS:
        yield f"    … {len(rest) - MAX_EVENTS} more"
    if failure.command:
        # The line is not wrapped: it is to be copied.
        yield "  without the kit:"
        yield f"    {clean(failure.command)}"


ARROWS = {"client": "──▶", "server": "◀──", "kit": " · "}


def event_line(shown: ShownEvent) -> str:
    """Return an event as one line of text."""
    event = shown.event
    # The main connection, which is the only one in most exchanges, has the number 0, and is shown without it.
    where = f"[{event.connection}] " if event.connection else ""
    text = f"{shown.time:8.3f} s  {ARROWS[event.sender]} {where}{shown.label}  {shown.detail}".rstrip()
    return ("  ✗ " if shown.is_bad else "    ") + shorten(text, WIDTH - 4)
