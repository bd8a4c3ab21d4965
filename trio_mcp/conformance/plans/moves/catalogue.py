"""The catalogue of all moves, and which of them a rule needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves import (
    authorization,
    calls,
    cancellations,
    expected,
    extension_skills,
    extension_tasks,
    http,
    lists,
    malformed,
    messages,
    odd_calls,
    subscriptions,
    tasks,
)
from trio_mcp.conformance.plans.moves.model import Move
from trio_mcp.conformance.rules.model import Rule

__all__ = ["MOVES", "lacking", "moves_for"]


MODULES: Final = (
    authorization,
    calls,
    cancellations,
    expected,
    extension_skills,
    extension_tasks,
    http,
    lists,
    malformed,
    messages,
    odd_calls,
    subscriptions,
    tasks,
)

MOVES: Final = {move.name: move for module in MODULES for move in vars(module).values() if isinstance(move, Move)}
"""Every move, by its name."""


def moves_for(rules: Iterable[Rule]) -> list[Move]:
    """Return the moves that give rules something to judge: those that the rules name, or all if a rule names none."""
    rules = list(rules)
    if not all(rule.moves for rule in rules):
        return list(MOVES.values())
    named = {name for rule in rules for name in rule.moves}
    return [move for name, move in MOVES.items() if name in named]


def lacking(rule: Rule, facts: Sequence[Facts]) -> str:
    """Return why a target can't give a rule anything to judge; an empty string if it can."""
    facts = [each for each in facts if each.revision in rule.revisions]
    if not facts:
        return "the target was not checked in a revision that has the rule"
    if rule.transports and not any(each.transport in rule.transports for each in facts):
        return f"the rule applies only to the transport {' or '.join(rule.transports)}"
    reasons = [MOVES[name].lacks(each) for name in rule.moves if name in MOVES for each in facts]
    return reasons[0] if reasons and all(reasons) else ""
