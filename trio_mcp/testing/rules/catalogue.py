"""Every rule, and the judgement of a history by them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Final

from trio_mcp.testing.rules import messages
from trio_mcp.testing.rules.history import History
from trio_mcp.testing.rules.model import Rule, Verdict

__all__ = ["MODULES", "RULES", "judge"]

MODULES: Final[tuple[ModuleType, ...]] = (messages,)
"""The modules that have rules, in the order in which reports show them."""

RULES: Final[dict[str, Rule]] = {
    found.id: found for module in MODULES for found in vars(module).values() if isinstance(found, Rule)
}
"""The rules, by id."""


def judge(history: History, rules: Iterable[Rule] = RULES.values()) -> Iterator[tuple[Rule, Verdict]]:
    """Yield the verdicts of rules on a history.

    Left out are those on its prologue, and those on connections whose revision does not have the rule.
    """
    for each in rules:
        for verdict in each.judge(history):
            event = verdict.event
            connection = history.connections.get(event.connection)
            revision = connection.revision if connection is not None else None
            if history.counts(event) and (revision is None or revision in each.revisions):
                yield each, verdict
