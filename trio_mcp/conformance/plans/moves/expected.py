"""Moves for what users expect of a server: that its calls leave nothing behind, and refused ones even less."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.lists import declared_lists
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import move, one_of
from trio_mcp.conformance.plans.moves.odd_calls import call_near_valid
from trio_mcp.conformance.steps import Ask, Compare, Plan, Repeat
from trio_mcp.testing.strategies.schemas import CannotGenerate, simplest

__all__: list[str] = []

AT_ONCE: Final = 6
"""How many requests are repeated, or compared, in one plan at most (arbitrary)."""

Request: TypeAlias = tuple[str, Mapping[str, Any] | None]


def _calls(facts: Facts) -> list[Request]:
    """Return the simplest call of each tool, resource and prompt that may be used."""
    found: list[Request] = []
    for name in facts.callable_tools:
        with contextlib.suppress(CannotGenerate):
            arguments = simplest(facts.tools[name].get("inputSchema"))
            found.append(("tools/call", {"name": name, "arguments": arguments}))
    found += [("resources/read", {"uri": uri}) for uri in sorted(facts.resources)]
    found += [
        ("prompts/get", {"name": name}) for name, each in sorted(facts.prompts.items()) if not each.get("arguments")
    ]
    return found


@move(needs=["process"], weight=0.3, alone=True)
def repeat_calls(facts: Facts) -> st.SearchStrategy[Plan]:
    """Make the same request many times, and measure what the process uses."""
    requests: list[Request] = [*_calls(facts), *((each, None) for each in declared_lists(facts))]
    requests.append((alive(facts).method, None))
    some = [requests[at : at + AT_ONCE] for at in range(0, len(requests), AT_ONCE)]
    return one_of([tuple(Repeat(*each) for each in found) for found in some])


@move(needs=["callable_tools"], weight=0.5, alone=True)
def compare_after_refusal(facts: Facts) -> st.SearchStrategy[Plan]:
    """Look at the server, make a call that it should refuse, and look again."""
    looks: list[Request] = [*((each, None) for each in declared_lists(facts)), *_calls(facts)]
    # Each look is made many times, so there are few of them, but other ones in each plan.
    some = st.permutations(looks).map(lambda order: tuple(order[:AT_ONCE]))
    calls = st.lists(call_near_valid.make(facts), min_size=AT_ONCE // 2, max_size=AT_ONCE)

    def compare(chosen: tuple[Request, ...], plans: list[Plan]) -> Plan:
        refused = [(step.method, step.params) for plan in plans for step in plan if isinstance(step, Ask)]
        return (Compare(chosen, tuple(refused)),)

    return st.builds(compare, some, calls)
