"""Moves that request lists and their pages, sometimes with cursors that the server never gave."""

from __future__ import annotations

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.model import move, one_of
from trio_mcp.conformance.rules.history import LISTS
from trio_mcp.conformance.rules.utilities import NO_CURSOR
from trio_mcp.conformance.steps import Ask, AwaitResponses, NextPage, Open, Plan

__all__ = ["declared_lists"]


def declared_lists(facts: Facts) -> list[str]:
    """Return the list methods whose capability the server declares."""
    return [method for method in LISTS if facts.declares(method.split("/")[0])]


@move(weight=1)
def list_undeclared(facts: Facts) -> st.SearchStrategy[Plan]:
    """Request a list that the server has not declared."""
    methods = [method for method in LISTS if method not in declared_lists(facts)]
    return one_of(methods).map(lambda method: (Ask(method),))


@move(weight=1)
def list_twice(facts: Facts) -> st.SearchStrategy[Plan]:
    """Request the same list twice."""
    return one_of(declared_lists(facts)).map(lambda method: (Ask(method), AwaitResponses(), Ask(method)))


@move(needs=["paged"], weight=2)
def next_page(facts: Facts) -> st.SearchStrategy[Plan]:
    """Read the pages of a list, and perhaps one of them twice."""

    def read(method: str, again: bool) -> Plan:
        more = (AwaitResponses(), NextPage(-1))
        return (Ask(method), *more * 3, *((NextPage(),) if again else ()))

    return st.builds(read, st.sampled_from(facts.paged), st.booleans())


_CURSORS = st.one_of(
    # Cursors are opaque, so any text might be a valid one. Only cursors that begin with `NO_CURSOR` are judged; the
    # others may reveal a server that crashes on them.
    st.text("abcdefghijklmnopqrstuvwxyz0123456789", max_size=6).map(NO_CURSOR.__add__),
    st.sampled_from(["", "\x00", "../..", "🙂"]),
)


@move()
def garbage_cursor(facts: Facts) -> st.SearchStrategy[Plan]:
    """Request a list with a cursor that the server never gave."""
    methods = one_of(declared_lists(facts))
    return st.builds(lambda method, cursor: (Ask(method, {"cursor": cursor}),), methods, _CURSORS)


@move(weight=1)
def list_everywhere(facts: Facts) -> st.SearchStrategy[Plan]:
    """Request the same list on two connections in turn."""

    def read(method: str) -> Plan:
        # The first connection requests the list once more at the end: a list that changes over time then differs on
        # that connection, too, and the server is not blamed.
        asks = [step for turn in (0, -1, 0) for step in (Ask(method, connection=turn), AwaitResponses())]
        return (Open(), *asks)

    return one_of(declared_lists(facts)).map(read)
