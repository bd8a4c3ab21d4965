"""The catalogue of all rules: how they are selected, and how they judge a history."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from trio_mcp.conformance.rules import (
    authorization,
    cancellation,
    expected,
    extension_apps,
    extension_skills,
    extension_tasks,
    http,
    http_headers,
    issuers,
    lifecycle,
    messages,
    prompts,
    questions,
    resources,
    stdio,
    subscriptions,
    tasks,
    tools,
    utilities,
)
from trio_mcp.conformance.rules.clients import (
    declared,
    extension_tasks as client_extension_tasks,
    extensions as client_extensions,
    fetches,
    http as client_http,
    messages as client_messages,
    opening,
    replies,
    requests,
    results,
    rounds,
    sign_in_discovery,
    sign_in_requests,
    sign_in_tokens,
    tasks as client_tasks,
)
from trio_mcp.conformance.rules.history import History
from trio_mcp.conformance.rules.model import Rule, Verdict, Who
from trio_mcp.types.versions import REVISIONS

__all__ = ["RULES", "SIDES", "judge", "select"]


MODULES: Final = (
    declared,
    client_extension_tasks,
    client_extensions,
    fetches,
    client_http,
    client_messages,
    opening,
    replies,
    requests,
    results,
    rounds,
    sign_in_discovery,
    sign_in_requests,
    sign_in_tokens,
    client_tasks,
    authorization,
    cancellation,
    expected,
    extension_apps,
    extension_skills,
    extension_tasks,
    http,
    http_headers,
    issuers,
    lifecycle,
    messages,
    prompts,
    questions,
    resources,
    stdio,
    subscriptions,
    tasks,
    tools,
    utilities,
)

SIDES: Final[Mapping[str, tuple[Who, ...]]] = {
    "server": ("server", "transport"),
    "client": ("client",),
    "issuer": ("issuer",),
}
"""The kinds of rules that a check of each side judges by."""

RULES: Final = {rule.id: rule for module in MODULES for rule in vars(module).values() if isinstance(rule, Rule)}
"""Every rule, by its id."""


def judge(history: History, rules: Iterable[Rule]) -> Iterator[tuple[Rule, Verdict]]:
    """Yield the verdicts of rules on a history.

    Left out are verdicts on the history's prologue, and those of rules that don't apply to a connection's revision.
    """
    for rule in rules:
        for verdict in rule.judge(history):
            # A connection in an unknown revision is judged by all rules: otherwise a server that negotiates nonsense
            # would pass as one without faults.
            revision = history.connections[verdict.event.connection].revision
            if history.counts(verdict.event) and (revision in rule.revisions or revision not in REVISIONS):
                yield rule, verdict


def select(names: Sequence[str | Rule] | None, *who: Who) -> list[Rule]:
    """Return the rules for these sides, or only those of them that are named.

    Args:
        names: Ids, patterns such as ``cursor-*``, ``section:`` and the beginning of a section, ``level:`` and a level,
            or rules of your own; None for all.
        who: The sides that are checked.

    Raises:
        ValueError: If a name matches no rule.
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
        elif kind == "level":
            found = [rule for rule in rules if rule.level == section.upper()]
        else:
            # `fnmatchcase` is used because `fnmatch` ignores case on Windows, where the same command would select
            # different rules.
            found = [rule for rule in rules if fnmatch.fnmatchcase(rule.id, name)]
        if not found:
            # A name without a match is an error: otherwise, a check for a misspelt rule would pass.
            near = difflib.get_close_matches(name, [rule.id for rule in rules], 1)
            meant = f"; did you mean {near[0]!r}?" if near else "; `trio-mcp check --dry-run` lists the rules"
            raise ValueError(
                f"no rule for {'an' if 'issuer' in who else 'a'} {' or '.join(who)} is called {name!r}{meant}"
            )
        chosen |= {rule.id: rule for rule in found}
    return list(chosen.values())
