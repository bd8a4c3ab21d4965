"""All rules, and how a history is judged by them."""

from __future__ import annotations

import difflib
import fnmatch
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import Final

from trio_mcp.testing import rules as rooms
from trio_mcp.testing.rules.history import History
from trio_mcp.testing.rules.model import Rule, Verdict, Who
from trio_mcp.types.versions import REVISIONS

__all__ = ["RULES", "judge", "select"]


def _collected() -> dict[str, Rule]:
    found: dict[str, Rule] = {}
    for each in sorted(pkgutil.walk_packages(rooms.__path__, f"{rooms.__name__}."), key=lambda each: each.name):
        # This module, whose import has only begun, is among them, and has no rules.
        found |= {rule.id: rule for rule in vars(import_module(each.name)).values() if isinstance(rule, Rule)}
    return found


RULES: Final = _collected()
"""Every rule, by its id."""


def judge(history: History, rules: Iterable[Rule]) -> Iterator[tuple[Rule, Verdict]]:
    """Yield the verdicts of rules on a history, without those on its prologue or on revisions that lack the rule."""
    for rule in rules:
        for verdict in rule.judge(history):
            revision = history.connections[verdict.event.connection].revision
            if history.counts(verdict.event) and (revision in rule.revisions or revision not in REVISIONS):
                yield rule, verdict


def select(names: Sequence[str | Rule] | None, *who: Who) -> list[Rule]:
    """Return the rules for these sides, or of them those that are named.

    Args:
        names: Ids, patterns such as ``cursor-*``, ``section:`` and the beginning of a section, or rules of your own;
            None for all.
        who: The sides that are checked.

    Raises:
        ValueError: If a name fits no rule.
    """
    rules = [rule for rule in RULES.values() if rule.who in who]
    if names is None:
        return rules
    chosen: dict[str, Rule] = {}
    for name in names:
        if isinstance(name, Rule):
            chosen[name.id] = name
            continue
        kind, _, section = name.partition(":")
        if kind == "section":
            found = [
                rule
                for rule in rules
                if section and (rule.section.startswith(section) or rule.older.startswith(section))
            ]
        else:
            found = [rule for rule in rules if fnmatch.fnmatchcase(rule.id, name)]
        if not found:
            near = difflib.get_close_matches(name, [rule.id for rule in rules], 1)
            meant = f"; did you mean {near[0]!r}?" if near else "; `trio-mcp check --dry-run` lists the rules"
            raise ValueError(f"no rule for a {' or '.join(who)} is called {name!r}{meant}")
        chosen |= {rule.id: rule for rule in found}
    return list(chosen.values())
