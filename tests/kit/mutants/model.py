"""What a mutant is: a healthy server with one habit overridden, and the rule that this breaks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

import attrs

from tests.kit.mutants.server import LEGACY, MODERN, Session, Twin
from tests.kit.mutants.web import Web

Over: TypeAlias = Literal["lines", "http", "stdio", "ws"]
Habit = TypeVar("Habit", bound=type[Session] | type[Web])
HabitT = TypeVar("HabitT", bound=type)

LATEST: Final = LEGACY[-1]


@attrs.frozen
class Mutant:
    """A server with a fault.

    Attributes:
        name: What it does wrong.
        rule: The rule that it breaks.
        also: Rules that this breaks, too, at times.
        over: What it is checked over: lines or HTTP, in memory; or stdio or a WebSocket, which are not.
        revision: The revision that is spoken.
        habit: The class that overrides a habit of `Session` or `Web`.
        messages: The number of messages that show it, at most.
    """

    name: str
    rule: str
    also: frozenset[str]
    over: Over
    revision: str
    habit: type[Session | Web]
    messages: int = 6

    def twin(self) -> Twin:
        """Return the server."""
        if issubclass(self.habit, Web):
            return Twin(self.habit.session, web=self.habit)
        return Twin(self.habit)


MUTANTS: dict[str, Mutant] = {}
"""By name."""


def name_of(habit: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", habit.__name__).lower()


@attrs.frozen
class ClientMutant(Generic[HabitT]):
    """A client with a fault.

    Attributes:
        rule: The rule that it breaks.
        also: Rules that this breaks, too, at times.
        habit: The class that overrides a habit.
    """

    rule: str
    also: frozenset[str]
    habit: HabitT


def registering(
    table: dict[str, ClientMutant[HabitT]],
) -> Callable[..., Callable[[HabitT], HabitT]]:
    """Return a decorator that registers a mutant of a client in a table: ``@breaks(rule, *also)``."""

    def breaks(rule: str, *also: str) -> Callable[[HabitT], HabitT]:
        def register(habit: HabitT) -> HabitT:
            table[name_of(habit)] = ClientMutant(rule, frozenset(also), habit)
            return habit

        return register

    return breaks


def breaks(
    rule: str, *also: str, over: Over | None = None, revision: str = LATEST, messages: int = 6
) -> Callable[[Habit], Habit]:
    """Register a mutant, which is called as its class."""

    def register(habit: Habit) -> Habit:
        name = name_of(habit)
        chosen: Over = over or ("http" if issubclass(habit, Web) else "lines")
        assert name not in MUTANTS, name
        MUTANTS[name] = Mutant(name, rule, frozenset(also), chosen, revision, habit, messages)
        return habit

    return register


def is_response(message: Any) -> bool:
    return isinstance(message, dict) and "method" not in message


def is_result(message: Any) -> bool:
    return is_response(message) and "result" in message


__all__ = [
    "LATEST",
    "LEGACY",
    "MODERN",
    "MUTANTS",
    "ClientMutant",
    "Mutant",
    "Session",
    "Twin",
    "Web",
    "breaks",
    "is_response",
    "is_result",
    "name_of",
    "registering",
]
