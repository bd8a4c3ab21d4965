"""Makes functions into rules, whose level, side, section and sentence come from the statements of the specification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from trio_mcp.conformance.rules.model import Judge, Level, Rule, Who, rule
from trio_mcp.conformance.statements.model import REVISIONS as LISTED, Statement, statements
from trio_mcp.types.versions import REVISIONS

__all__ = ["own_statements", "stated_rule"]


@cache
def own_statements() -> dict[str, Statement]:
    """Return the statement that each rule takes its level, section and sentence from, by the rule's id.

    If several statements name a rule, the one with a star after the rule's id counts, or else the first.
    """
    first = {name: statement for statement in reversed(statements()) for name in statement.rules}
    return first | {name: statement for statement in statements() for name in statement.owns}


def stated_rule(
    *,
    level: Level | None = None,
    who: Who | None = None,
    section: str | None = None,
    older: str | None = None,
    sentence: str | None = None,
    since: str = "",
    revisions: Sequence[str] = (),
    moves: Sequence[str] = (),
    transports: Sequence[str] = (),
) -> Callable[[Judge], Rule]:
    """Return a decorator that turns a function into a rule, with the facts from the statement that names it.

    Args:
        level: The level, if it differs from the statement's.
        who: The side to check, if the statement binds both sides and the rule is not about the server.
        section: The page and anchor, if they differ from the statement's first place.
        older: The page and anchor in the revisions of the legacy era, if they differ from the statement's.
        sentence: The rule in one sentence, if it checks more or less than its statement.
        since: The first revision of the legacy era that has the rule, if it differs from the statement's.
        revisions: The revisions, if they differ from the statement's.
        moves: The moves that give the rule something to judge.
        transports: The transports that the rule concerns; empty for all.

    Raises:
        KeyError: If no statement names the rule.
    """

    def build(body: Judge) -> Rule:
        stated = own_statements()[body.__name__.replace("_", "-")]
        # In the dictionary a later place replaces an earlier one of the same revision, so the places are reversed to
        # keep the first.
        sections = {place.revision: place.section for place in reversed(stated.places)}
        of_rule = tuple(revisions) or _revisions(sections, since or stated.since)
        newest = sections.get(of_rule[-1], "")
        legacy = sections.get(LISTED[0], newest)
        differs = LISTED[0] in of_rule and LISTED[1] in of_rule and legacy != newest
        return rule(
            level or ("MUST" if stated.keyword.startswith("MUST") else "SHOULD"),
            who or ("client" if stated.binds == "client" else "server"),
            newest if section is None else section,
            stated.text if sentence is None else sentence,
            older=(legacy if differs else "") if older is None else older,
            revisions=of_rule,
            moves=moves,
            transports=transports,
        )(body)

    return build


def _revisions(listed: Iterable[str], since: str) -> tuple[str, ...]:
    """Return a statement's revisions from ``since`` on: the listed ones, and the earlier ones of the legacy era."""
    # The tables list only the last revision of the legacy era, but most statements of that revision are in all earlier
    # ones, too.
    earlier = [each for each in REVISIONS if each < LISTED[0]] if LISTED[0] in listed else []
    return tuple(each for each in REVISIONS if (each in earlier or each in listed) and each >= since)
