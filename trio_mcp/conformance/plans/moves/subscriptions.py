"""Moves that subscribe: to streams of notifications in the modern era, to single resources in the legacy era."""

from __future__ import annotations

import json
from typing import Any

import attrs
from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.plans.moves.odd_calls import NOWHERE, calls
from trio_mcp.conformance.steps import Ask, AwaitResponses, Cancel, Open, Pause, Plan, Step
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

__all__: list[str] = []

_FLAGS = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")


def _listens(facts: Facts, connection: int = 0) -> st.SearchStrategy[Ask]:
    # One of the resources does not exist: a server may leave it out of what it acknowledges, but must not fail.
    uris = [*sorted(facts.resources)[:20], f"{NOWHERE}://x"]
    choices: dict[str, st.SearchStrategy[Any]] = {flag: st.booleans() for flag in _FLAGS}
    choices["resourceSubscriptions"] = st.lists(st.sampled_from(uris), max_size=3, unique=True)
    # Each key is optional: false and absent mean the same, but servers sometimes treat them differently.
    filters = st.fixed_dictionaries({}, optional=choices)
    return filters.map(lambda found: Ask("subscriptions/listen", {"notifications": found}, connection=connection))


def _something(facts: Facts) -> st.SearchStrategy[Ask]:
    """Return a strategy for requests that may cause a notification, such as calls of tools that mention a resource."""
    if not facts.callable_tools:
        return st.just(alive(facts))
    schemas = {name: json.dumps(facts.tools[name].get("inputSchema")) for name in facts.callable_tools}
    touching = tuple(name for name, text in schemas.items() if any(uri in text for uri in facts.resources))
    # Half of the calls are calls of tools that mention a resource: tools don't declare whether they change a resource,
    # and most change none.
    return st.one_of(calls(facts), calls(attrs.evolve(facts, callable_tools=touching))) if touching else calls(facts)


@move(revisions=MODERN_REVISIONS, weight=3)
def listen(facts: Facts) -> st.SearchStrategy[Plan]:
    """Open a subscription stream, do something that may cause a notification, and perhaps cancel the stream."""

    def heard(subscription: Ask, done: list[Ask], stop: bool) -> Plan:
        return (subscription, *done, AwaitResponses(), *((Cancel(-1), alive(facts), Pause(0.05)) if stop else ()))

    return st.builds(heard, _listens(facts), st.lists(_something(facts), max_size=2), st.booleans())


@move(revisions=MODERN_REVISIONS, weight=1)
def listen_twice(facts: Facts) -> st.SearchStrategy[Plan]:
    """Keep two subscription streams open at the same time, on one connection or on two."""

    def heard(one: Ask, other: Ask, done: Ask, apart: bool) -> Plan:
        return (
            *((Open(),) if apart else ()),
            one,
            other,
            AwaitResponses(),
            done,
            AwaitResponses(),
            Cancel(),
            alive(facts),
        )

    return st.builds(heard, _listens(facts), _listens(facts, -1), _something(facts), st.booleans())


@move(revisions=LEGACY_REVISIONS, needs=["capability:resources.subscribe", "resources"])
def subscribe(facts: Facts) -> st.SearchStrategy[Plan]:
    """Subscribe to a resource, do something, and perhaps unsubscribe."""

    def watched(uri: str, done: list[Ask], stop: bool) -> Plan:
        # A tool that is given the URI of a resource may change the resource, so the plan subscribes to it.
        given = [value for call in done for value in ((call.params or {}).get("arguments") or {}).values()]
        params = {"uri": next((value for value in given if isinstance(value, str) and value in facts.resources), uri)}
        plan: list[Step] = [Ask("resources/subscribe", params), AwaitResponses(), *done, AwaitResponses()]
        return (*plan, Ask("resources/unsubscribe", params), AwaitResponses(), *done) if stop else tuple(plan)

    some = st.lists(_something(facts), min_size=1, max_size=4)
    return st.builds(watched, st.sampled_from(sorted(facts.resources)), some, st.booleans())
