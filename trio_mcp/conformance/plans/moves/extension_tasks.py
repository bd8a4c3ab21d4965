"""Moves with the tasks extension: they declare it, call tools, and follow, cancel and listen to the tasks."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from trio_mcp.conformance.answers import capabilities_of
from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.plans.moves.messages import alive
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.plans.moves.odd_calls import calls
from trio_mcp.conformance.rules.extension_tasks import EXTENSION, NO_KEY, TASK_METHODS
from trio_mcp.conformance.rules.tasks import NO_TASK
from trio_mcp.conformance.steps import Ask, AwaitResponses, Cancel, Continue, Follow, OnTask, Pause, Plan, Step
from trio_mcp.types import meta
from trio_mcp.types.versions import LATEST_MODERN, MODERN_REVISIONS

__all__: list[str] = []

_CALLS: Final = (f"extension:{EXTENSION}", "callable_tools")
# Only these moves declare the extension: with it, a server may make a task of any call, and the rules for results would
# see none.
_DECLARED: Final[dict[str, Any]] = {
    meta.CLIENT_CAPABILITIES: {**capabilities_of(LATEST_MODERN), "extensions": {EXTENSION: {}}}
}
_PAUSES: Final = st.sampled_from([0.0, 0.0, 0.05, 0.2])
_FOLLOW: Final = Follow(-1, _DECLARED)
_AWAIT: Final = AwaitResponses()


def _on(method: str, **more: Any) -> OnTask:
    return OnTask(method, -1, _DECLARED, **more)


def _several(facts: Facts, least: int = 1) -> st.SearchStrategy[list[Ask]]:
    """Return a strategy for several calls that may become tasks: only trying shows which tools make tasks."""
    return st.lists(calls(facts, meta=_DECLARED) | calls(facts, meta=_DECLARED, token=True), min_size=least, max_size=4)


@move(revisions=MODERN_REVISIONS, needs=_CALLS, weight=6)
def ext_task_run(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call tools that may become tasks, follow a task to its end, and ask about it afterwards."""

    def run(called: list[Ask], before: list[Step], after: list[Step]) -> Plan:
        return (*called, _AWAIT, *before, _FOLLOW, *after, _AWAIT)

    more, get, cancel = _on("tasks/update", more={NO_KEY: {"action": "decline"}}), _on("tasks/get"), _on("tasks/cancel")
    # A call may ask in rounds before it becomes a task.
    before = st.sampled_from([[], [Continue(-1), _AWAIT], [more, _AWAIT]])
    after = st.sampled_from([[get], [cancel, _AWAIT, get], [more, _AWAIT, get]])
    return st.builds(run, _several(facts), before, after)


@move(revisions=MODERN_REVISIONS, needs=_CALLS, weight=3)
def ext_task_cancelled(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call tools that may become tasks, cancel a task, and ask about it afterwards."""

    def run(called: list[Ask], pause: float) -> Plan:
        cancel, get = _on("tasks/cancel"), _on("tasks/get")
        return (*called, _AWAIT, Pause(pause), cancel, _AWAIT, get, _AWAIT, Pause(pause), get, _AWAIT)

    return st.builds(run, _several(facts), _PAUSES)


@move(revisions=MODERN_REVISIONS, needs=_CALLS, weight=3)
def ext_task_listened(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call tools that may become tasks, listen to a task, and follow it."""
    listen = _on("subscriptions/listen")
    end = (Pause(0.05), Cancel(-1), alive(facts))
    return _several(facts).map(lambda called: (*called, _AWAIT, listen, _AWAIT, _FOLLOW, *end))


@move(revisions=MODERN_REVISIONS, needs=_CALLS, weight=3)
def ext_task_undeclared(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ask about a task, and listen to it, in requests that do not declare the extension."""
    listen = OnTask("subscriptions/listen", -1)

    def ask(called: list[Ask], method: str) -> Plan:
        return (*called, _AWAIT, OnTask(method, -1), listen, _AWAIT)

    return st.builds(ask, _several(facts), st.sampled_from(TASK_METHODS))


@move(revisions=MODERN_REVISIONS, needs=_CALLS, weight=3)
def ext_task_compared(facts: Facts) -> st.SearchStrategy[Plan]:
    """Make the same calls with the extension and without it."""

    def compare(called: list[Ask]) -> Plan:
        plain = [Ask("tools/call", call.params) for call in called]
        follow = [Follow(number, _DECLARED) for number in range(len(called))]
        return (*plain, _AWAIT, *called, _AWAIT, *follow, _AWAIT)

    return _several(facts, 3).map(compare)


@move(revisions=MODERN_REVISIONS, needs=_CALLS[:1], weight=2)
def ext_task_unknown(facts: Facts) -> st.SearchStrategy[Plan]:
    """Ask about a task that never existed."""
    words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)

    def ask(method: str, word: str) -> Plan:
        more: dict[str, Any] = {"inputResponses": {}} if method == "tasks/update" else {}
        return (Ask(method, {"taskId": f"{NO_TASK}{word}", **more}, meta=_DECLARED),)

    return st.builds(ask, st.sampled_from(TASK_METHODS), words)
