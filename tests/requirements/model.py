"""The behaviours that the specification requires, as data: what, where it is written, and which test holds it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs

from tests.requirements import rows
from trio_mcp import Server
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

if TYPE_CHECKING:
    from tests.requirements.case import Case

__all__ = [
    "ALL",
    "ALONE",
    "LEGACY",
    "MODERN",
    "REFUSED",
    "NotOverHttp",
    "Requirement",
    "Topic",
    "since",
    "topics",
    "until",
]

ALL, LEGACY, MODERN = REVISIONS, LEGACY_REVISIONS, MODERN_REVISIONS
Scenario = Callable[["Case"], Awaitable[None]]
ScenarioT = TypeVar("ScenarioT", bound=Scenario)


def since(revision: str) -> tuple[str, ...]:
    """Return the revisions from this one on."""
    return REVISIONS[REVISIONS.index(revision) :]


def until(revision: str) -> tuple[str, ...]:
    """Return the revisions up to this one."""
    return REVISIONS[: REVISIONS.index(revision) + 1]


@attrs.frozen
class NotOverHttp:
    """Why a scenario is senseless over HTTP, and in which revisions."""

    why: str
    revisions: Sequence[str] = ALL


# What happens there instead is in tests/protocol/test_http_rules.py.
REFUSED = NotOverHttp("HTTP refuses it with a status, before it is a message")
ALONE = NotOverHttp("a modern POST stands alone, and holds a request of the revision that its headers name", MODERN)


@attrs.frozen
class Requirement:
    """One behaviour.

    Attributes:
        name: Unique: the topic's and its own.
        text: The behaviour, in a sentence.
        section: The page of the newest revision that has it, below ``specification/<revision>/``, and the anchor.
        revisions: Those that require it.
        not_over_http: Where it does not run over HTTP, and why; None if it runs over every transport.
        scenario: The test that holds it, run over every transport and revision; or
        test: that of a behaviour which no transport has to do with, by its node id.
    """

    name: str
    text: str
    section: str
    revisions: Sequence[str]
    not_over_http: NotOverHttp | None = None
    scenario: Scenario | None = None
    test: str | None = None

    def runs_over(self, transport: str, revision: str) -> bool:
        """Whether the scenario makes sense there."""
        return transport != "http" or self.not_over_http is None or revision not in self.not_over_http.revisions


class Topic:
    """The requirements of one module in `tests.requirements.rows`.

    Args:
        name: For people.
        server: Makes the server that the scenarios of this topic talk to; none if they bring a scripted one.
    """

    def __init__(self, name: str, server: Callable[[], Server] | None = None) -> None:
        self.name = name
        self.server = server
        self.rows: dict[str, Requirement] = {}
        self.module = ""

    def row(
        self, section: str, text: str, revisions: Sequence[str] = ALL, not_over_http: NotOverHttp | None = None
    ) -> Callable[[ScenarioT], ScenarioT]:
        """Add a requirement that the decorated scenario checks."""

        def decorate(scenario: ScenarioT) -> ScenarioT:
            self._add(scenario.__name__, text, section, revisions, not_over_http, scenario=scenario)
            return scenario

        return decorate

    def held(self, name: str, section: str, text: str, test: str, revisions: Sequence[str] = ALL) -> None:
        """Add a requirement that a test elsewhere checks, because it does not involve a transport."""
        self._add(name, text, section, revisions, None, test=test)

    def _add(
        self,
        name: str,
        text: str,
        section: str,
        revisions: Sequence[str],
        not_over_http: NotOverHttp | None,
        scenario: Scenario | None = None,
        test: str | None = None,
    ) -> None:
        if name in self.rows:
            raise ValueError(f"{name!r} is there twice")
        self.rows[name] = Requirement(name, text, section, tuple(revisions), not_over_http, scenario, test)


def topics() -> Iterator[Topic]:
    """Every topic, in the order of their modules' names."""
    for found in sorted(pkgutil.iter_modules(rows.__path__), key=lambda each: each.name):
        module = importlib.import_module(f"{rows.__name__}.{found.name}")
        topic: Topic = module.topic
        topic.module = found.name
        yield topic
