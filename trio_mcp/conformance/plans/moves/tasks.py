"""Moves with tasks, which only 2025-11-25 has: they call tools as tasks, and query, cancel and list the tasks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import attrs
from hypothesis import strategies as st

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.plans.moves.model import move
from trio_mcp.conformance.plans.moves.odd_calls import calls
from trio_mcp.conformance.rules.tasks import ANOTHER, NO_TASK
from trio_mcp.conformance.rules.utilities import NO_CURSOR
from trio_mcp.conformance.steps import Ask, AwaitResponses, NextPage, OnTask, Pause, Plan, Step
from trio_mcp.types import meta

__all__: list[str] = []

_REVISIONS = ("2025-11-25",)
_NEEDS = ("callable_tools", "capability:tasks.requests.tools.call")
_TTL: st.SearchStrategy[dict[str, Any]] = st.sampled_from([{}, {"ttl": 60_000}, {"ttl": 600_000}])
_PAUSES = st.sampled_from([0.0, 0.0, 0.05, 0.2])


def _calls(facts: Facts, support: Collection[str], **more: Any) -> st.SearchStrategy[Ask]:
    """Return a strategy for valid calls, not yet as tasks, of tools with one of these kinds of task support."""
    usable = [name for name in facts.callable_tools if _support(facts, name) in support]
    return calls(attrs.evolve(facts, callable_tools=tuple(usable)), **more)


def _support(facts: Facts, name: str) -> str:
    # A tool without this field forbids tasks (2025-11-25 basic/utilities/tasks).
    return str(object_of(facts.tools[name].get("execution")).get("taskSupport", "forbidden"))


def _as_tasks(facts: Facts, support: Collection[str] = ("optional", "required")) -> st.SearchStrategy[Ask]:
    found = _calls(facts, support) | _calls(facts, support, token=True)
    return st.builds(_as_task, found, _TTL)


def _as_task(call: Ask, task: dict[str, Any]) -> Ask:
    return attrs.evolve(call, params={**(call.params or {}), "task": task})


@move(revisions=_REVISIONS, needs=_NEEDS, weight=4)
def task_run(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool as a task, query the task now and then, and fetch its result."""
    get, result, cancel = (OnTask(f"tasks/{name}", -1) for name in ("get", "result", "cancel"))

    def run(call: Ask, pause: float, before: list[Step], after: list[Step]) -> Plan:
        return (call, AwaitResponses(), *before, Pause(pause), result, AwaitResponses(), get, AwaitResponses(), *after)

    before = st.sampled_from([[], [get], [get, result]])
    # The result must stay available until the time to live is over, and the cancellation of a task that has ended must
    # be refused (2025-11-25 basic/utilities/tasks).
    after = st.sampled_from([[], [result, get], [cancel, AwaitResponses(), get]])
    return st.builds(run, _as_tasks(facts), _PAUSES, before, after)


@move(revisions=_REVISIONS, needs=(*_NEEDS, "capability:tasks.cancel"), weight=3)
def task_cancelled(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool as a task, cancel the task, and query it afterwards."""
    get, result, cancel = (OnTask(f"tasks/{name}", -1) for name in ("get", "result", "cancel"))

    def run(call: Ask, before: float, after: float, more: list[Step]) -> Plan:
        # Most tasks are cancelled at once: after a pause, a quick tool would have ended, and its task could not be
        # cancelled any more.
        waits = (Pause(before),) if before > 0.1 else ()
        return (
            call,
            AwaitResponses(),
            *waits,
            cancel,
            AwaitResponses(),
            get,
            AwaitResponses(),
            Pause(after),
            get,
            AwaitResponses(),
            *more,
        )

    more = st.sampled_from([[], [cancel], [result, cancel]])
    return st.builds(run, _as_tasks(facts), _PAUSES, _PAUSES, more)


@move(revisions=_REVISIONS, needs=(*_NEEDS, "capability:tasks.list"), weight=2)
def task_list(facts: Facts) -> st.SearchStrategy[Plan]:
    """Create tasks, list them, and query each."""

    def run(found: list[Ask], more: int) -> Plan:
        further = [step for _ in range(more) for step in (NextPage(-1), AwaitResponses())]
        gets = [OnTask("tasks/get", number) for number in range(len(found))]
        return (*found, AwaitResponses(), Ask("tasks/list"), AwaitResponses(), *further, *gets, AwaitResponses())

    return st.builds(run, st.lists(_as_tasks(facts), min_size=1, max_size=3), st.integers(1, 3))


@move(revisions=_REVISIONS, needs=_NEEDS, weight=1)
def task_misled(facts: Facts) -> st.SearchStrategy[Plan]:
    """Query a task, and name another one in ``_meta``, which the server must ignore there."""
    entry = {meta.RELATED_TASK: {"taskId": ANOTHER}}
    return _as_tasks(facts).map(lambda call: (call, AwaitResponses(), OnTask("tasks/get", -1, entry), AwaitResponses()))


@move(revisions=_REVISIONS, needs=("capability:tasks",), weight=1)
def task_unknown(facts: Facts) -> st.SearchStrategy[Plan]:
    """Query a task that never existed, or request the task list with a cursor that the server never gave."""
    words = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)
    methods = ["tasks/get", "tasks/result", *(["tasks/cancel"] if facts.declares("tasks.cancel") else [])]
    asked = st.builds(lambda method, word: Ask(method, {"taskId": f"{NO_TASK}{word}"}), st.sampled_from(methods), words)
    if facts.declares("tasks.list"):
        asked |= words.map(lambda word: Ask("tasks/list", {"cursor": f"{NO_CURSOR}{word}"}))
    return asked.map(lambda ask: (ask,))


@move(revisions=_REVISIONS, needs=_NEEDS, weight=1)
def task_unsupported(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call a tool as a task although it forbids that, or not as a task although it requires one."""
    found = st.builds(_as_task, _calls(facts, ["forbidden"]), _TTL) | _calls(facts, ["required"])
    return found.map(lambda call: (call,))


@move(revisions=_REVISIONS, needs=("callable_tools",), weight=1)
def task_metadata(facts: Facts) -> st.SearchStrategy[Plan]:
    """Call tools as tasks although the server does not declare that it supports them."""
    if facts.declares("tasks.requests.tools.call"):
        return st.nothing()
    return st.builds(
        lambda call, task: (call, AwaitResponses(), _as_task(call, task), AwaitResponses()), calls(facts), _TTL
    )
