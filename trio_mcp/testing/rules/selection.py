"""Which rules are meant: by id, by pattern, by section."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from trio_mcp.testing.rules.model import Rule

__all__ = ["check_known", "select_rules"]


def select_rules(patterns: Iterable[str], rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Return the rules that at least one pattern means, in the order of the catalogue.

    Args:
        patterns: Ids, patterns of ids with ``*``, ``?`` or ``[…]``, or ``section:`` and the beginning of a section.
        rules: The catalogue, by id.

    Raises:
        ValueError: If a pattern means no rule.
    """
    wanted = set()
    for pattern in patterns:
        kind, separator, prefix = pattern.partition(":")
        if separator and kind == "section":
            found = {each.id for each in rules.values() if prefix and _in_section(each, prefix)}
            if not found:
                raise ValueError(f"no rule has a section that begins with {prefix!r}{_near(prefix, _sections(rules))}")
        elif any(mark in pattern for mark in "*?["):
            found = {id_ for id_ in rules if fnmatchcase(id_, pattern)}
            if not found:
                raise ValueError(f"no rule matches {pattern!r}")
        else:
            check_known(pattern, rules)
            found = {pattern}
        wanted |= found
    return {id_: rule for id_, rule in rules.items() if id_ in wanted}


def check_known(id_: str, rules: Mapping[str, Rule]) -> None:
    """Check that there is a rule of an id.

    Raises:
        ValueError: If there is not.
    """
    if id_ not in rules:
        raise ValueError(f"there is no rule {id_!r}{_near(id_, rules)}")


def _in_section(rule: Rule, prefix: str) -> bool:
    return any(section.startswith(prefix) for section in (rule.section, rule.older))


def _sections(rules: Mapping[str, Rule]) -> set[str]:
    return {rule.section.partition("#")[0] for rule in rules.values()}


def _near(text: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(text, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""
