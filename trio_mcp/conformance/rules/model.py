"""The data model of rules: a rule of the specification, and a verdict on one occasion to which a rule applies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

import attrs

from trio_mcp.conformance.statements.model import link_to
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS

if TYPE_CHECKING:
    from trio_mcp.conformance.rules.history import History

__all__ = ["LEVELS", "Judge", "Level", "Rule", "Verdict", "Who", "broken", "expected", "held", "judged", "rule"]

Level: TypeAlias = Literal["MUST", "SHOULD", "EXPECTED"]
"""How much a rule binds: ``EXPECTED`` is for what no sentence of the specification demands, and users still expect."""
Who: TypeAlias = Literal["server", "client", "transport", "issuer"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""The levels, the gravest first."""

Judge: TypeAlias = Callable[["History"], Iterator["Verdict"]]


@attrs.frozen
class Verdict:
    """A rule's verdict on one occasion, such as a single message to which the rule applies.

    Attributes:
        event: The event that decided the verdict.
        problem: What is wrong, in one line; None if the rule was kept.
    """

    event: Event
    problem: str | None = None


def held(event: Event) -> Verdict:
    """Return the verdict that the rule was kept."""
    return Verdict(event)


def broken(event: Event, problem: str) -> Verdict:
    """Return the verdict that the rule was broken."""
    return Verdict(event, problem)


def judged(kept: bool, event: Event, problem: str) -> Verdict:
    """Return the verdict that the rule was kept if ``kept`` is true, or else that it was broken."""
    return Verdict(event, None if kept else problem)


@attrs.frozen
class Rule:
    """A rule of the specification, with the function that checks it.

    Attributes:
        id: The rule's name.
        level: ``MUST`` or ``SHOULD``, which include MUST NOT and SHOULD NOT, or ``EXPECTED``.
        sentence: The requirement, in our own words.
        section: The page and anchor in the newest revision that has the rule; empty if none is about it.
        older: The page and anchor in the revisions of the legacy era; empty if they are the same.
        revisions: The revisions that have the rule.
        who: The side that is checked.
        moves: The names of the moves that give the rule something to judge (`trio_mcp.conformance.plans.moves`).
        judge: Yields a verdict for each occasion in a history. The function sees only what passed between the two
            sides, and yields no verdict on an occasion where that does not show whether the rule was kept.
        transports: The transports that the rule concerns; empty for all.
        reason: For ``EXPECTED``, why the rule is one although no sentence demands it.
    """

    id: str
    level: Level
    sentence: str
    section: str
    older: str
    revisions: tuple[str, ...]
    who: Who
    moves: tuple[str, ...]
    judge: Judge
    transports: tuple[str, ...] = ()
    reason: str = ""

    def link(self, revision: str | None = None) -> str:
        """Return the URL of the rule's section: in this revision if it has the rule, else in the newest that does.

        The URL is empty if no section is about the rule.
        """
        if not self.section:
            return ""
        # A verdict may be about a connection that never agreed on a revision, and the report still needs a link that
        # works.
        revision = revision if revision in self.revisions else self.revisions[-1]
        section = self.older if self.older and revision in LEGACY_REVISIONS else self.section
        return link_to(revision, section)


def rule(
    level: Level,
    who: Who,
    section: str,
    sentence: str,
    *,
    older: str = "",
    revisions: Sequence[str] = REVISIONS,
    moves: Sequence[str] = (),
    transports: Sequence[str] = (),
    reason: str = "",
) -> Callable[[Judge], Rule]:
    """Return a decorator that turns a judge function into the rule of the same name."""
    return lambda judge: Rule(
        judge.__name__.replace("_", "-"),
        level,
        sentence,
        section,
        older,
        tuple(revisions),
        who,
        tuple(moves),
        judge,
        tuple(transports),
        reason,
    )


def expected(
    sentence: str,
    reason: str,
    *,
    section: str = "",
    moves: Sequence[str] = (),
    transports: Sequence[str] = (),
) -> Callable[[Judge], Rule]:
    """Return a decorator that turns a judge function into a rule for servers that no sentence states.

    Args:
        sentence: What is expected.
        reason: Why every user expects it.
        section: The page and anchor that show it without a keyword; empty if no page does.
        moves: The moves that give the rule something to judge.
        transports: The transports that the rule concerns; empty for all.
    """
    return rule("EXPECTED", "server", section, sentence, reason=reason, moves=moves, transports=transports)
