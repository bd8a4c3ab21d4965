"""All moves."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Final

from trio_mcp.testing.check import moves as room
from trio_mcp.testing.check.facts import Facts
from trio_mcp.testing.check.moves.model import Move
from trio_mcp.testing.rules.model import Rule

__all__ = ["MOVES", "lacking", "moves_for"]


def _collected() -> dict[str, Move]:
    found: dict[str, Move] = {}
    for each in sorted(pkgutil.iter_modules(room.__path__, f"{room.__name__}."), key=lambda each: each.name):
        # This module, whose import has only begun, is among them, and has no moves.
        found |= {move.name: move for move in vars(import_module(each.name)).values() if isinstance(move, Move)}
    return found


MOVES: Final = _collected()
"""Every move, by its name."""


def moves_for(rules: Iterable[Rule]) -> list[Move]:
    """Return the moves that give occasions to rules; all if a rule names none, since anything may be its occasion."""
    rules = list(rules)
    if not all(rule.moves for rule in rules):
        return list(MOVES.values())
    named = {name for rule in rules for name in rule.moves}
    return [move for name, move in MOVES.items() if name in named]


def lacking(rule: Rule, facts: Sequence[Facts]) -> str:
    """Return why a target can't give a rule an occasion; an empty text if it can."""
    facts = [each for each in facts if each.revision in rule.revisions]
    if not facts:
        return "the target was not spoken to in a revision that has it"
    if rule.transports and not any(each.transport in rule.transports for each in facts):
        return f"it concerns another transport ({', '.join(rule.transports)})"
    reasons = [MOVES[name].lacks(each) for name in rule.moves if name in MOVES for each in facts]
    return reasons[0] if reasons and all(reasons) else ""
