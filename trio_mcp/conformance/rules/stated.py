"""The rules of the kit: each finds its level, side, section and sentence in the statements of the specification."""

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

    If several statements name a rule, that is the one with a star behind the rule's id, or else the first.
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
    """Return a decorator that turns a function into the rule that the statements have under its name.

    Args:
        level: The level, where it is not that of the statement.
        who: The side, where the statement binds both and the rule is not about the server.
        section: The file and anchor, where they are not those of the statement's first place.
        older: The file and anchor in the revisions of the legacy era, where they are not those of the statement.
        sentence: The rule in one sentence, where it checks more or less than its statement.
        since: The first revision of the legacy era that has the rule, where it is not that of the statement.
        revisions: The revisions, where they are not those of the statement.
        moves: The moves that give the rule its occasions.
        transports: The transports that it concerns; empty for all.

    Raises:
        KeyError: If no statement names the rule.
    """

    def build(body: Judge) -> Rule:
        stated = own_statements()[body.__name__.replace("_", "-")]
        # The places are reversed, so that the first one of a revision counts.
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
    """Return the revisions of a statement: those that are listed, and the earlier ones of the legacy era."""
    # The statements list only the last revision of the legacy era, but most of them are in all earlier ones, too.
    earlier = [each for each in REVISIONS if each < LISTED[0]] if LISTED[0] in listed else []
    return tuple(each for each in REVISIONS if (each in earlier or each in listed) and each >= since)
