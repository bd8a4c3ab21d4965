"""Defines moves: the named sequences of steps that plans are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import attrs
from hypothesis.strategies import SearchStrategy, nothing, sampled_from

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.steps import Plan
from trio_mcp.types.versions import REVISIONS

__all__ = ["Make", "Move", "move", "one_of"]

T = TypeVar("T")

Make: TypeAlias = Callable[[Facts], SearchStrategy[Plan]]


@attrs.frozen
class Move:
    """A named sequence of a few steps that test a server; plans are made of moves.

    Attributes:
        name: The name by which rules refer to the move.
        make: Returns a strategy for the move's steps, which keep their order when moves are interleaved.
        revisions: The revisions in which the move makes sense.
        needs: The features that the target must have; see `Facts.lacks`.
        weight: How often the move is made, compared with other moves.
        alone: Whether nothing else may happen at the same time, because the move ends the connection, makes it
            unusable, or measures something.
    """

    name: str
    make: Make
    revisions: tuple[str, ...] = REVISIONS
    needs: tuple[str, ...] = ()
    weight: float = 2
    alone: bool = False

    def lacks(self, facts: Facts) -> str:
        """Return why this move can't be made on a target; an empty string if it can."""
        if facts.revision not in self.revisions:
            return f"revision {facts.revision} does not have what this rule needs"
        return next(filter(None, map(facts.lacks, self.needs)), "")


def one_of(values: Sequence[T]) -> SearchStrategy[T]:
    """Return a strategy that draws one of these values; without values, it is empty, and the move is dropped."""
    return sampled_from(values) if values else nothing()


def move(
    *, revisions: Sequence[str] = REVISIONS, needs: Sequence[str] = (), weight: float = 2, alone: bool = False
) -> Callable[[Make], Move]:
    """Return a decorator that turns a function into the move of the same name."""
    return lambda make: Move(make.__name__.replace("_", "-"), make, tuple(revisions), tuple(needs), weight, alone)
