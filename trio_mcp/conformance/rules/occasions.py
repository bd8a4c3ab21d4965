"""The loop that rules share: the functions of this module find the occasions for a rule, whose body judges each one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Final, TypeAlias, TypeVarTuple

from trio_mcp.conformance.rules.common import asked_about, notifications, offering
from trio_mcp.conformance.rules.history import Connection, Exchange, History, RecordedRequest
from trio_mcp.conformance.rules.model import Judge, Verdict
from trio_mcp.conformance.transcript.events import Event, Sender

__all__ = ["UNDECIDED", "Occasions", "Opinion", "about", "answered", "each", "exchanged", "notified"]


class Undecided(enum.Enum):
    """The type of `UNDECIDED`, which is its only value."""

    IT = enum.auto()


UNDECIDED: Final = Undecided.IT
"""The opinion of a rule's body where the occasion doesn't show whether the rule was kept."""

Ts = TypeVarTuple("Ts")
Occasions: TypeAlias = Callable[[History], Iterator[tuple[Event, *Ts]]]
"""A function that yields the occasions in a history: for each, the event to blame, and any other values that the body
needs."""
Opinion: TypeAlias = str | Verdict | Undecided | None
"""The opinion of a rule's body: None if the rule was kept, a line about the problem, or `UNDECIDED`.

An opinion may also be a verdict, which blames an event other than that of the occasion."""


def each(occasions: Occasions[*Ts]) -> Callable[[Callable[[Event, *Ts], Opinion]], Judge]:
    """Return a decorator that turns a function that judges one occasion into one that judges a whole history."""

    def build(body: Callable[[Event, *Ts], Opinion]) -> Judge:
        @wraps(body)
        def judge(history: History) -> Iterator[Verdict]:
            for occasion in occasions(history):
                opinion = body(*occasion)
                if opinion is not UNDECIDED:
                    yield opinion if isinstance(opinion, Verdict) else Verdict(occasion[0], opinion)

        return judge

    return build


def about(*methods: str, extension: str = "") -> Occasions[Connection, RecordedRequest]:
    """Return a function that yields each faultless request that has a response.

    Args:
        methods: The methods; all if there are none.
        extension: An extension that the server declares; empty for any server.
    """

    def occasions(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
        offers = {connection.number for connection in offering(history, extension)} if extension else None
        # Most servers don't have the extension, and then there is nothing to look for.
        for connection, asked, answer in () if offers == set() else asked_about(history, *methods):
            if offers is None or connection.number in offers:
                yield answer, connection, asked

    return occasions


def exchanged(*methods: str) -> Occasions[Connection, Exchange]:
    """Return a function that yields each Streamable HTTP exchange with a response, for these HTTP methods or all."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
        for connection in history:
            for exchange in connection.exchanges.values() if connection.transport == "http" else ():
                # An exchange without a response lost its connection, which says nothing about how the server treats
                # requests of this kind.
                # A request to another path of the server, such as its metadata's, says nothing about its endpoint.
                is_wanted = not methods or exchange.method in methods
                if exchange.response is not None and is_wanted and not exchange.request.facts.get("aside"):
                    yield exchange.response, connection, exchange

    return occasions


def answered(*methods: str) -> Occasions[Connection, RecordedRequest]:
    """Return a function that yields each request with a response, faulty or not, for these methods or for all."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
        for connection, asked in history.requests(*methods):
            if asked.answers:
                yield asked.answers[0], connection, asked

    return occasions


def notified(sender: Sender, *methods: str) -> Occasions[Connection]:
    """Return a function that yields each notification from one side, for these methods or for all methods."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection]]:
        for connection in history:
            for event in notifications(connection, sender, *methods):
                yield event, connection

    return occasions
