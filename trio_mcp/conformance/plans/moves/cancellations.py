"""Moves that cancel requests: open ones, finished ones, and ones that were never sent."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.plans.moves.odd_calls import calls
from trio_mcp.conformance.steps import Ask, AwaitResponses, Cancel, Pause, Plan, Tell

__all__: list[str] = []

_REASONS = st.sampled_from([None, "no longer needed", ""])


@move(needs=["callable_tools"], weight=3)
def cancel_open(facts: Facts) -> st.SearchStrategy[Plan]:
    """Cancel a call while it runs; the response to a later request shows that the cancellation was read."""

    def cancel(call: Ask, pause: float, reason: str | None, twice: bool) -> Plan:
        cancels = (Cancel(-1, reason),) * (2 if twice else 1)
        waits = (Pause(pause),) if pause else ()
        # The last pause and the last request leave time for late messages: a response to the cancelled call, which
        # should not be sent, may come only after the response to the request that follows the cancellation.
        return (call, *waits, *cancels, alive(facts), AwaitResponses(), Pause(0.1), alive(facts))

    # The cancellation is sent at once, so that it may overtake the start of the tool, or a little later, when the tool
    # is running or has just ended.
    pauses = st.sampled_from([0.0, 0.0, 0.02, 0.1])
    return st.builds(cancel, st.one_of(calls(facts), calls(facts, token=True)), pauses, _REASONS, st.booleans())


@move(needs=["callable_tools"], weight=1)
def cancel_one_of_many(facts: Facts) -> st.SearchStrategy[Plan]:
    """Cancel one of several calls; the others must continue."""
    return st.builds(
        lambda found, which: (*found, Cancel(which), alive(facts), AwaitResponses()),
        st.lists(calls(facts), min_size=2, max_size=4),
        st.integers(0, 3),
    )


@move()
def cancel_finished(facts: Facts) -> st.SearchStrategy[Plan]:
    """Cancel a request that has already received its response."""
    return st.builds(
        lambda reason: (alive(facts), AwaitResponses(), Cancel(-1, reason, answered=True), alive(facts)), _REASONS
    )


@move(weight=1)
def cancel_unknown(facts: Facts) -> st.SearchStrategy[Plan]:
    """Cancel a request that was never sent."""
    ids = st.sampled_from(["never asked", 10**9, -1, ""])
    return ids.map(lambda found: (Tell("notifications/cancelled", {"requestId": found}), alive(facts)))


_MALFORMED: tuple[dict[str, Any] | None, ...] = (
    None,
    {},
    {"requestId": None},
    {"requestId": 1.5},
    {"requestId": []},
    {"requestId": {"a": 1}},
    {"requestId": "never asked", "reason": 5},
)


@move(weight=1)
def cancel_malformed(facts: Facts) -> st.SearchStrategy[Plan]:
    """Send cancellations with missing or malformed parameters."""
    return st.sampled_from(_MALFORMED).map(lambda params: (Tell("notifications/cancelled", params), alive(facts)))
