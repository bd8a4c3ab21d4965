"""The behaviours that the specification requires, as data: the text, its section, and what checks it."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from tests.requirements import rows
from trio_mcp import Server
from trio_mcp.types import error_codes
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

if TYPE_CHECKING:
    from tests.peer import Peer
    from tests.requirements.case import Case

__all__ = [
    "ALL",
    "ALONE",
    "LEGACY",
    "MODERN",
    "REFUSED",
    "SECRET",
    "NotOverHttp",
    "Requirement",
    "Topic",
    "since",
    "topics",
    "until",
]

ALL, LEGACY, MODERN = REVISIONS, LEGACY_REVISIONS, MODERN_REVISIONS
OUTERMOST = {LEGACY[0], LEGACY[-1], MODERN[0], MODERN[-1]}
SECRET = "hunter2"
"""What servers here raise, and no refusal may show."""

Exchange = Callable[["Peer"], Awaitable[None]]
Scenario = Callable[["Case"], Awaitable[None]]
ScenarioT = TypeVar("ScenarioT", bound=Callable[..., Awaitable[None]])


def since(revision: str) -> tuple[str, ...]:
    """Return the revisions from this one on."""
    return REVISIONS[REVISIONS.index(revision) :]


def until(revision: str) -> tuple[str, ...]:
    """Return the revisions up to this one."""
    return REVISIONS[: REVISIONS.index(revision) + 1]


@attrs.frozen
class NotOverHttp:
    """Why a scenario makes no sense over HTTP, and in which revisions."""

    why: str
    revisions: Sequence[str] = ALL


# What happens there instead is in tests/protocol/test_http_rules.py.
REFUSED = NotOverHttp("HTTP refuses it with a status, before it is a message")
ALONE = NotOverHttp("a modern POST stands alone, and holds a request of the revision that its headers name", MODERN)


@attrs.frozen
class Requirement:
    """One behaviour, checked by an exchange, a scenario or a test.

    Attributes:
        name: Unique within its topic.
        text: The behaviour, in a sentence.
        section: The page of the newest revision that has it, below ``specification/<revision>/``, and the anchor;
            or a page below ``extensions/``.
        revisions: Those that require it.
        not_over_http: Where it does not run over HTTP, and why; None if it runs over every transport.
        exchange: Requests and their answers, on a connection that other exchanges share.
        scenario: What needs a connection of its own, or more than one.
        test: The node id of the test, for a behaviour that does not depend on a transport.
    """

    name: str
    text: str
    section: str
    revisions: Sequence[str] = attrs.field(converter=tuple)
    not_over_http: NotOverHttp | None = None
    exchange: Exchange | None = None
    scenario: Scenario | None = None
    test: str | None = None

    def runs_over(self, transport: str, revision: str) -> bool:
        """Whether it runs there: where a difference between revisions, or between transports, may show."""
        if revision not in self.revisions:
            return False
        if transport == "memory":  # a span that ends within an era is tried in each revision, another at its ends
            return self.exchange is not None or self.revisions not in (ALL, LEGACY, MODERN) or revision in OUTERMOST
        if transport.startswith("http"):
            return self.not_over_http is None or revision not in self.not_over_http.revisions
        # The others carry every revision in the same way.
        return self.exchange is not None or revision == self.revisions[-1]


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
        """Add a requirement that the decorated scenario checks; one of that name is known by its text.

        A scenario takes a `Case`, or as ``hand`` its hand-driven client.
        """

        def decorate(scenario: ScenarioT) -> ScenarioT:
            name = _slug(text) if scenario.__name__ == "scenario" else scenario.__name__
            run = _by_hand(scenario) if "hand" in inspect.signature(scenario).parameters else scenario
            self._add(Requirement(name, text, section, revisions, not_over_http, scenario=run))
            return scenario

        return decorate

    def gives(
        self, section: str, text: str, asked: tuple[Any, ...], expected: Any, revisions: Sequence[str] = ALL
    ) -> None:
        """Add a requirement on the result of a request.

        Args:
            section: Where it is written.
            text: The requirement, in one sentence.
            asked: Method and parameters, and the way to a part of the result: keys, indexes and functions.
            expected: The value at that place; None if there must be none.
            revisions: Those that require it.
        """
        method, params, *path = asked

        async def exchange(hand: Peer) -> None:
            found: Any = await hand.result(method, params)
            for step in path:
                found = step(found) if callable(step) else found.get(step) if isinstance(found, dict) else found[step]
            assert found == expected
            assert type(found) is type(expected)

        self._add(Requirement(_slug(text), text, section, revisions, exchange=exchange))

    def refuses(
        self,
        section: str,
        text: str,
        method: str,
        *params: dict[str, Any],
        code: int = error_codes.INVALID_PARAMS,
        says: str = "",
        revisions: Sequence[str] = ALL,
    ) -> None:
        """Add a requirement that requests of a method with any of these parameters are refused."""

        async def exchange(hand: Peer) -> None:
            for given in params:
                error = await hand.error(method, given)
                assert error.code == code, given
                assert says in error.message
                assert SECRET not in f"{error.message} {error.data}"

        self._add(Requirement(_slug(text), text, section, revisions, exchange=exchange))

    def held(self, table: str, tests: str = "tests/") -> None:
        """Add requirements that tests elsewhere check, because they do not involve a transport.

        Args:
            table: For each a line with the text; below, indented, its section and the node id of the test; where not
                every revision requires it, then ``legacy``, ``modern``, a revision, or one with ``+`` for it and later.
            tests: What the node ids begin with.
        """
        for row in re.split(r"\n(?! )", textwrap.dedent(table).strip()):
            text, where = row.split("\n", 1)
            section, test, *span = where.split()
            self._add(Requirement(_slug(text), text, section, _revisions(*span), test=tests + test))

    def _add(self, row: Requirement) -> None:
        if row.name in self.rows:
            raise ValueError(f"{row.name!r} is there twice")
        self.rows[row.name] = row


def _by_hand(scenario: Exchange) -> Scenario:
    async def run(case: Case) -> None:
        async with case.hand() as hand:
            await scenario(hand)

    return run


def _slug(text: str) -> str:
    return "_".join(re.findall(r"\w+", text.lower()))


def _revisions(span: str = "") -> tuple[str, ...]:
    named = {"": ALL, "legacy": LEGACY, "modern": MODERN}
    return named[span] if span in named else since(span[:-1]) if span.endswith("+") else (span,)


def topics() -> Iterator[Topic]:
    """Every topic, in the order of their modules' names."""
    for found in sorted(pkgutil.iter_modules(rows.__path__), key=lambda each: each.name):
        module = importlib.import_module(f"{rows.__name__}.{found.name}")
        topic: Topic = module.topic
        topic.module = found.name
        yield topic
