"""Finds out which broken rules have one cause: a crash, for example, breaks the rule of each request that waited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trio_mcp.conformance.judging import first_broken
from trio_mcp.conformance.outcomes import Failure, Outcome
from trio_mcp.conformance.rules.model import LEVELS, Rule, Verdict
from trio_mcp.conformance.transcript.events import Event

__all__ = ["causes"]

LONGEST: Final = 500
"""The number of events above which an exchange is not judged by the other rules (arbitrary): it was not shrunk, so it
contains much that has nothing to do with the failure."""

LAYERS: Final = ("stdio", "http", "http_headers", "messages", "lifecycle")
"""The modules of rules for what all messages have in common, the deepest first: what is wrong there shows in all rules
for what the messages are about."""


def causes(broken: Sequence[Outcome]) -> tuple[tuple[str, ...], ...]:
    """Return the ids of broken rules, those with one cause together and the deepest of them first.

    Two rules have one cause if the smallest exchange that breaks the one breaks the other as well, and both are about
    the same event, or at least one of them about something that never came.
    """
    groups: list[list[Outcome]] = []
    for outcome in broken:
        joined = [group for group in groups if any(_is_shared(outcome, other) for other in group)]
        groups = [group for group in groups if group not in joined]
        groups.append([*(each for group in joined for each in group), outcome])
    order = {outcome.rule.id: place for place, outcome in enumerate(broken)}
    found = [tuple(each.rule.id for each in sorted(group, key=_depth)) for group in groups]
    return tuple(sorted(found, key=lambda group: min(order[rule] for rule in group)))


def _depth(outcome: Outcome) -> tuple[bool, int, bool, int, str]:
    rule = outcome.rule
    return (
        rule.level == "EXPECTED",
        _layer(rule),
        # A message explains the silence that follows it.
        outcome.failure is not None and _is_silence(outcome.failure),
        LEVELS.index(rule.level),
        rule.id,
    )


def _layer(rule: Rule) -> int:
    module = rule.judge.__module__.rpartition(".")[2]
    return LAYERS.index(module) if module in LAYERS else len(LAYERS)


def _is_shared(one: Outcome, other: Outcome) -> bool:
    if one.failure is None or other.failure is None or one.failure.revision != other.failure.revision:
        return False
    there, here = _first(other.rule, one.failure), _first(one.rule, other.failure)
    match _is_silence(one.failure), _is_silence(other.failure):
        case True, True:
            return there is not None or here is not None
        case True, False:
            return there is not None
        case False, True:
            return here is not None
    # Of two faults in one message, at least one must be in the message as such: two tools may be wrong in one list.
    is_deep = min(_layer(one.rule), _layer(other.rule)) < len(LAYERS)
    # An exchange ends with the event that breaks its rule, so it may be too short for the other one.
    agree = [_is_at(each, of) for each, of in ((there, one.failure), (here, other.failure)) if each is not None]
    return is_deep and bool(agree) and all(agree)


def _is_silence(failure: Failure) -> bool:
    """Return whether a failure is about something that did not come any more."""
    event = failure.transcript[failure.at]
    return event.kind == "close" or (event.kind == "mark" and event.facts.get("what") in ("overdue", "dead"))


def _is_at(verdict: Verdict, failure: Failure) -> bool:
    at = failure.transcript[failure.at]
    # The pieces of a broken message are events of their own.
    pieces = verdict.event.kind == at.kind == "text" and verdict.event.connection == at.connection
    return verdict.event is at or pieces


def _first(rule: Rule, failure: Failure) -> Verdict | None:
    """Return the first verdict by which the exchange of a failure breaks a rule, or None."""
    events = failure.transcript
    if len(events) > LONGEST or failure.revision not in rule.revisions:
        return None
    try:
        return first_broken(rule, events, _since(events))
    # A rule may be one of the user's own. Its mistakes are told where it judges the whole check.
    except Exception:
        return None


def _since(events: Sequence[Event]) -> int:
    begins = [at for at, each in enumerate(events) if each.kind == "mark" and each.facts.get("what") == "begin"]
    return begins[-1] if begins else 0
