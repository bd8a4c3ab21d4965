"""A rule of the specification, and a verdict on one occasion."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS

if TYPE_CHECKING:
    from trio_mcp.conformance.rules.history import History

__all__ = ["SKIP", "Judge", "Level", "Rule", "Skip", "Verdict", "Who", "broken", "held", "judged", "rule", "unless"]

Level: TypeAlias = Literal["MUST", "SHOULD"]
Who: TypeAlias = Literal["server", "client", "transport"]
Judge: TypeAlias = Callable[["History"], Iterator["Verdict"]]

SPECIFICATION = "https://modelcontextprotocol.io/specification"


@attrs.frozen
class Verdict:
    """A verdict on one occasion on which a rule applied.

    Attributes:
        event: The event that decided it.
        problem: What is wrong, in a line; None if the rule was kept.
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
    """Return a verdict: held if ``kept``, else broken."""
    return Verdict(event, None if kept else problem)


@attrs.frozen
class Rule:
    """A rule of the specification.

    Attributes:
        id: Its name.
        level: MUST (NOT) or SHOULD (NOT).
        sentence: What it asks, in our words.
        section: The file and anchor in the newest revision that has it.
        older: The file and anchor in the revisions of the legacy era, where that differs.
        revisions: The revisions that have it.
        who: Who is checked.
        moves: The names of the moves that give it occasions (`trio_mcp.conformance.plans.moves`).
        judge: Yields a verdict for each occasion in a history. It sees only what passed between the two sides, and is
            silent where that does not decide.
        transports: The transports that it is about; empty for all.
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

    def link(self, revision: str | None = None) -> str:
        """Return the URL of its section, in a revision or the newest one that has it."""
        # A verdict may be about a connection that never agreed on a revision, and the report still needs a link that
        # leads somewhere.
        revision = revision if revision in self.revisions else self.revisions[-1]
        section = self.older if self.older and revision in LEGACY_REVISIONS else self.section
        return f"{SPECIFICATION}/{revision}/{section}"


class Skip(enum.Enum):
    """The type of `SKIP`."""

    SKIP = enum.auto()


SKIP: Final = Skip.SKIP
"""The result of a rule's body for what gives the rule no occasion, or doesn't decide it."""

Each: TypeAlias = Callable[["History"], Iterable[tuple[Any, ...]]]


def unless(kept: bool, problem: str) -> str | None:
    """Return the problem, or None if the rule was kept."""
    return None if kept else problem


def rule(
    level: Level,
    who: Who,
    section: str,
    sentence: str,
    *,
    each: Each | None = None,
    older: str = "",
    revisions: Sequence[str] = REVISIONS,
    moves: Sequence[str] = (),
    transports: Sequence[str] = (),
) -> Callable[[Callable[..., Any]], Rule]:
    """Turn a function into the rule of its name.

    Without ``each`` the function takes a history and yields a verdict for each occasion. With it, the function judges
    one occasion: it returns the problem, None if the rule was kept, or `SKIP`.

    Args:
        level: MUST (NOT) or SHOULD (NOT).
        who: Who is checked.
        section: The file and anchor in the newest revision that has it.
        sentence: What it asks, in a sentence.
        each: Yields the occasions in a history: the event that a verdict is about, then the arguments of the function.
        older: The file and anchor in the revisions of the legacy era, where that differs.
        revisions: The revisions that have it.
        moves: The names of the moves that give it occasions.
        transports: The transports that it is about; empty for all.
    """

    def build(body: Callable[..., Any]) -> Rule:
        return Rule(
            body.__name__.replace("_", "-"),
            level,
            sentence,
            section,
            older,
            tuple(revisions),
            who,
            tuple(moves),
            body if each is None else partial(_judge_each, each, body),
            tuple(transports),
        )

    return build


def _judge_each(each: Each, body: Callable[..., str | Skip | None], history: History) -> Iterator[Verdict]:
    for event, *arguments in each(history):
        if not isinstance(problem := body(*arguments), Skip):
            yield Verdict(event, problem)
