"""A rule of the contract, and what a transport may leave out of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import attrs

from trio_mcp.testing.contract.stage import Stage

__all__ = ["TRAITS", "ContractRule", "Needs", "Trait", "rule"]

Check: TypeAlias = Callable[[Stage], Awaitable[None]]
Needs: TypeAlias = Literal["raw", "cut", "max_message_size"]
Trait: TypeAlias = Literal["unordered", "calls_only", "no_backpressure", "no_end", "one_at_a_time"]

TRAITS: Final[dict[Trait, str]] = {
    "unordered": "messages may overtake each other",
    "calls_only": "the client gets messages only while one of its requests is open",
    "no_backpressure": "a writer does not wait for its reader: what finds no room is refused or dropped",
    "no_end": "an end does not learn that the other one has closed `write`",
    "one_at_a_time": "only one connection can be open at a time",
}
"""A promise that a transport may not be able to make."""


@attrs.frozen
class ContractRule:
    """A rule of the contract.

    Attributes:
        name: Its name.
        sentence: The promise that it asks of a transport.
        check: Checks it; raises `Broken`, or anything that a transport raises that breaks it.
        needs: The argument of `check_transport` that it needs besides the pair, if any.
        unless: The trait of transports that don't keep it, if there may be any.
    """

    name: str
    sentence: str
    check: Check
    needs: Needs | None
    unless: Trait | None


def rule(sentence: str, *, needs: Needs | None = None, unless: Trait | None = None) -> Callable[[Check], ContractRule]:
    """Turn a function into the rule of its name."""
    return lambda check: ContractRule(check.__name__, sentence, check, needs, unless)
