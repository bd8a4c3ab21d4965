"""Defines the type of the transport contract's rules, and the traits that excuse a transport from some of them."""

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
    "no_backpressure": "a writer does not wait for its reader: messages that find no room are refused or dropped",
    "no_end": "an end does not learn that the other one has closed `write`",
    "one_at_a_time": "only one connection can be open at a time",
}
"""The traits, each with what a transport that has it does instead of keeping the promise of the rule concerned."""


@attrs.frozen
class ContractRule:
    """A rule of the transport contract.

    Attributes:
        name: The name of the rule.
        sentence: The promise that the rule requires of a transport.
        check: Checks the rule; if it is broken, raises `Broken`, or whatever the transport raises.
        needs: The argument of `check_transport` that the rule needs besides the pair, if any.
        unless: The trait with which a transport need not keep the rule, if any.
    """

    name: str
    sentence: str
    check: Check
    needs: Needs | None
    unless: Trait | None


def rule(sentence: str, *, needs: Needs | None = None, unless: Trait | None = None) -> Callable[[Check], ContractRule]:
    """Return a decorator that turns a check into a rule, named after the function."""
    return lambda check: ContractRule(check.__name__, sentence, check, needs, unless)
