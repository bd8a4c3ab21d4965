"""Rules for servers with the tasks extension (``io.modelcontextprotocol/tasks``), which needs revision 2026-07-28."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs

from trio_mcp.conformance.members import items_of, member_of, object_of
from trio_mcp.conformance.rules.common import (
    MODERN,
    code_of,
    code_or_result,
    is_count,
    is_proper,
    lost,
    notifications,
    offering,
    subscribed,
    wrong_members,
)
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, params_of
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, about, answered, each
from trio_mcp.conformance.rules.questions import NEEDED
from trio_mcp.conformance.rules.shape import flaw
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.rules.tasks import ENDED, NO_TASK, SHORTEST_ID, is_next, is_time
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes, meta
from trio_mcp.types.tool_messages import CallToolResult

__all__ = ["CHANGED", "EXTENSION", "NO_KEY", "TASK_METHODS", "declares_tasks", "is_created"]

EXTENSION: Final = "io.modelcontextprotocol/tasks"
TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
CHANGED: Final = "notifications/tasks"
NO_KEY: Final = "no-such-key"
"""The key of an input response that answers nothing: the kit makes it up."""

STATUSES: Final = ("working", "input_required", *ENDED)

RUN: Final = ("ext-task-run", "ext-task-cancelled", "ext-task-listened")
COMPARED: Final = ("ext-task-compared",)
UNDECLARED: Final = ("ext-task-undeclared",)
UNKNOWN: Final = ("ext-task-unknown",)


@attrs.define(eq=False)
class _Task:
    """A task that a server created.

    Attributes:
        id: The task's id.
        asked: The call that became the task.
        made: The response that created the task.
        polls: The requests for the task's state, in order.
        states: What the server said of the task later, in order: the event, the request for it (None for a
            notification), and the state.
        end: The first of these states in which the task had ended, and its event; None if it was never seen.
    """

    id: str
    asked: RecordedRequest
    made: Event
    polls: list[RecordedRequest] = attrs.Factory(list)
    states: list[tuple[Event, RecordedRequest | None, dict[str, Any]]] = attrs.Factory(list)
    end: tuple[Event, dict[str, Any]] | None = None


def declares_tasks(asked: RecordedRequest) -> bool:
    """Return whether a request declares that its client supports the extension."""
    return EXTENSION in object_of(member_of(asked.meta, meta.CLIENT_CAPABILITIES, "extensions"))


def is_created(result: dict[str, Any] | None) -> bool:
    """Return whether a result says that it creates a task."""
    return result is not None and result.get("resultType") == "task"


def _about(*methods: str, declared: bool = True) -> Occasions[Connection, RecordedRequest]:
    """Return a function that yields the faultless requests of these methods to servers with the extension.

    Args:
        methods: The methods.
        declared: Whether the requests declare the extension.
    """

    def occasions(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
        for answer, connection, asked in about(*methods, extension=EXTENSION)(history):
            if declares_tasks(asked) == declared:
                yield answer, connection, asked

    return occasions


def _tasks_of(connection: Connection) -> dict[str, _Task]:
    """Return the tasks that a server created on a connection, by id."""
    # The tasks are kept because every rule needs them, and finding them takes a pass over all messages.
    return connection.kept("extension tasks", connection.events[0], lambda: _found(connection))


def _found(connection: Connection) -> dict[str, _Task]:
    found: dict[str, _Task] = {}
    for asked in connection.requests:
        if asked.method == "tools/call" and is_created(asked.result) and is_proper(connection, asked):
            task_id = (asked.result or {}).get("taskId")
            if isinstance(task_id, str):
                found.setdefault(task_id, _Task(task_id, asked, asked.answers[0]))
    for asked in connection.requests:
        # The id that was asked for counts: `ext_task_id_kept` judges the one in the result.
        if asked.method == "tasks/get" and (task := found.get(str(asked.params.get("taskId")))) is not None:
            task.polls.append(asked)
            if asked.result is not None:
                task.states.append((asked.answers[0], asked, asked.result))
    for event in notifications(connection, "server", CHANGED):
        if (task := found.get(str(params_of(event).get("taskId")))) is not None:
            task.states.append((event, None, params_of(event)))
    for task in found.values():
        task.states.sort(key=lambda each: connection.position(each[0]))
        task.end = next(((event, state) for event, _, state in task.states if state.get("status") in ENDED), None)
    return found


def _tasks(history: History) -> Iterator[tuple[Event, Connection, _Task]]:
    """Yield each task that a server with the extension created."""
    for connection in offering(history, EXTENSION):
        for task in _tasks_of(connection).values():
            yield task.made, connection, task


def _states(history: History) -> Iterator[tuple[Event, Connection, _Task, dict[str, Any]]]:
    """Yield each state of a task that a response or a notification told, except the one that created the task."""
    for _, connection, task in _tasks(history):
        for event, _, state in task.states:
            yield event, connection, task, state


def _call_key(asked: RecordedRequest) -> str:
    """Return a text that is the same for calls that differ at most in whether they declare the extension."""
    # The responses to a round of input, and the capabilities, may be what a server refuses.
    params = {name: value for name, value in asked.params.items() if name != "_meta"}
    capabilities = object_of(asked.meta.get(meta.CLIENT_CAPABILITIES))
    others = {name: value for name, value in capabilities.items() if name != "extensions"}
    return json.dumps([params, others], sort_keys=True)


def _plain_calls(history: History) -> dict[str, RecordedRequest]:
    """Return the calls that were made without the extension, by `_call_key`; of several the first."""
    found: dict[str, RecordedRequest] = {}
    for _, _, asked in _about("tools/call", declared=False)(history):
        found.setdefault(_call_key(asked), asked)
    return found


# --- creation ---------------------------------------------------------------------------------------------------------


@stated_rule(moves=COMPARED)
@each(_about("tools/call", declared=False))
def ext_task_consent(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    return "the client did not declare the extension, but the call became a task" if is_created(asked.result) else None


@stated_rule(moves=COMPARED)
def ext_task_required_refused(history: History) -> Iterator[Verdict]:
    completed = {
        _call_key(task.asked)
        for _, _, task in _tasks(history)
        if any(state.get("status") == "completed" for _, _, state in task.states)
    }
    for answer, _, asked in _about("tools/call", declared=False)(history):
        # Only a call that succeeds as a task shows that nothing else than the missing extension can be wrong with it.
        if asked.error is not None and _call_key(asked) in completed:
            problem = f"a call that needs a task was refused with {code_of(asked)}, not with -32021 and the extension"
            yield judged(_names_extension(asked), answer, problem)


def _names_extension(asked: RecordedRequest) -> bool:
    required = member_of(asked.error, "data", "requiredCapabilities", "extensions")
    missing = code_of(asked) == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY
    return missing and EXTENSION in object_of(required)


@stated_rule(moves=RUN)
@each(_about("tools/call"))
def ext_task_type_set(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    result = asked.result or {}
    if is_created(result):
        return None
    # An ordinary result may have any further members, but always has content.
    is_task = isinstance(result.get("taskId"), str) and result.get("status") in STATUSES and "content" not in result
    return (
        f"the result describes a task, but its resultType is {result.get('resultType')!r:.60}" if is_task else UNDECIDED
    )


@stated_rule(moves=(*RUN, "list-all", "get-prompt", "read-resource"))
def ext_task_type_reserved(history: History) -> Iterator[Verdict]:
    offers = {connection.number for connection in offering(history, EXTENSION)}
    for answer, connection, asked in answered()(history) if offers else ():
        if connection.number in offers and is_created(asked.result):
            kept = asked.method == "tools/call" and isinstance((asked.result or {}).get("taskId"), str)
            yield judged(kept, answer, f"the result of {asked.method} creates no task, but its resultType is 'task'")


@stated_rule(moves=RUN)
@each(_tasks)
def ext_task_durable(_: Event, connection: Connection, task: _Task) -> Opinion:
    proper = (asked for asked in task.polls if is_proper(connection, asked) and declares_tasks(asked))
    place = connection.position(task.made)
    first = next((asked for asked in proper if connection.position(asked.event) > place), None)
    if first is None or not first.answers:
        return UNDECIDED
    # Another error may have nothing to do with the task; a server may refuse polls that come too often, for example.
    missing = code_of(first) in (error_codes.INVALID_PARAMS, error_codes.METHOD_NOT_FOUND)
    return broken(first.answers[0], f"the new task was not found: {code_of(first)}") if missing else None


@stated_rule(moves=RUN)
def ext_task_id_unguessable(history: History) -> Iterator[Verdict]:
    seen: set[str] = set()
    before = ""
    for connection in offering(history, EXTENSION):
        for asked in connection.requests:
            task_id = (asked.result or {}).get("taskId")
            if asked.method != "tools/call" or not is_created(asked.result) or not isinstance(task_id, str):
                continue
            problem = "is too short" if len(task_id) < SHORTEST_ID else "is one more than that of the task before"
            kept = len(task_id) >= SHORTEST_ID and not is_next(before, task_id)
            if task_id in seen:
                kept, problem = False, "is that of another task"
            yield judged(kept, asked.answers[0], f"the task id {task_id!r:.60} {problem}")
            seen.add(task_id)
            before = task_id


# --- states -----------------------------------------------------------------------------------------------------------


def _described(history: History) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each description of a task, that of its creation included."""
    for made, _, task in _tasks(history):
        yield made, task.asked.result or {}
    for event, _, _, state in _states(history):
        yield event, state


@stated_rule(
    sentence="Describe a task by its id, its status, when it was made and last changed, and for how long it is kept.",
    moves=RUN,
)
@each(_described)
def ext_task_shape(_: Event, state: dict[str, Any]) -> Opinion:
    wrong = {
        "taskId": not isinstance(state.get("taskId"), str),
        "status": state.get("status") not in STATUSES,
        "createdAt": not is_time(state.get("createdAt")),
        "lastUpdatedAt": not is_time(state.get("lastUpdatedAt")),
        # null means that there is no limit, so the member must be there.
        "ttlMs": not (state.get("ttlMs", "missing") is None or is_count(state.get("ttlMs"))),
        "pollIntervalMs": "pollIntervalMs" in state and not is_count(state["pollIntervalMs"]),
        "statusMessage": not isinstance(state.get("statusMessage", ""), str),
    }
    return wrong_members(state, wrong)


@stated_rule(
    sentence="Tell with a task what its status calls for: its input requests, its final result, or its error.",
    moves=RUN,
)
@each(_states)
def ext_task_details(_: Event, _connection: Connection, _task: _Task, state: dict[str, Any]) -> Opinion:
    match state.get("status"):
        case "input_required":
            asked = state.get("inputRequests")
            kept = isinstance(asked, dict) and all(member_of(each, "method") in NEEDED for each in asked.values())
            return None if kept else "a task that needs input has no valid inputRequests"
        case "completed":
            return None if isinstance(state.get("result"), dict) else "a completed task has no result"
        case "failed":
            code, message = member_of(state, "error", "code"), member_of(state, "error", "message")
            kept = type(code) is int and isinstance(message, str)
            return None if kept else "a failed task has no JSON-RPC error"
    return UNDECIDED


@stated_rule(moves=(*COMPARED, *RUN))
def ext_task_failed_by_error(history: History) -> Iterator[Verdict]:
    plain = _plain_calls(history)
    for event, _, task, state in _states(history):
        # The same call without a task shows what kind of failure it is.
        other = plain.get(_call_key(task.asked))
        by_tool = member_of(state.get("result"), "isError") is True
        by_tool = by_tool or (other is not None and member_of(other.result, "isError") is True)
        if state.get("status") == "failed":
            yield judged(not by_tool, event, "a task has failed because of a tool's result with isError")
        elif state.get("status") == "completed" and by_tool:
            yield held(event)


@stated_rule(moves=RUN)
@each(_states)
def ext_task_result_valid(_: Event, connection: Connection, _task: _Task, state: dict[str, Any]) -> Opinion:
    result = state.get("result")
    if state.get("status") != "completed" or not isinstance(result, dict):
        return UNDECIDED
    if result.get("resultType", "complete") != "complete":
        return f"the result of a completed task has the resultType {result['resultType']!r:.60}"
    return flaw(CallToolResult, result, connection.revision, "result")


@stated_rule(moves=RUN)
@each(_states)
def ext_task_failure_explained(_: Event, _connection: Connection, _task: _Task, state: dict[str, Any]) -> Opinion:
    if state.get("status") != "failed":
        return UNDECIDED
    return None if state.get("statusMessage") else "a task has failed without a statusMessage"


@rule(
    "MUST",
    "server",
    "extensions/tasks#task-status",
    "Leave a task that has ended as it is.",
    revisions=MODERN,
    moves=RUN,
)
def ext_task_final(history: History) -> Iterator[Verdict]:
    for _, connection, task in _tasks(history):
        if task.end is None:
            continue
        place, status = connection.position(task.end[0]), task.end[1]["status"]
        for event, asked, state in task.states:
            # Over HTTP messages may overtake each other, so only requests that were sent after the end was known count.
            if asked is not None and connection.position(asked.event) > place:
                problem = f"the task was {status}, but later its status is {state.get('status')!r:.40}"
                yield judged(state.get("status") == status, event, problem)


@rule(
    "MUST",
    "server",
    "extensions/tasks#tasks-1",
    "Tell the state of the task that was asked for, under the id that it was created with.",
    revisions=MODERN,
    moves=RUN,
)
@each(_states)
def ext_task_id_kept(_: Event, _connection: Connection, task: _Task, state: dict[str, Any]) -> Opinion:
    found = state.get("taskId")
    return None if found == task.id else f"the state of the task {task.id!r:.60} has the id {found!r:.60}"


# --- input ------------------------------------------------------------------------------------------------------------


@stated_rule(moves=RUN)
def ext_task_input_keys_unique(history: History) -> Iterator[Verdict]:
    for _, connection, task in _tasks(history):
        used: dict[str, Any] = {}
        gone: dict[str, Event] = {}
        for event, asked, state in task.states:
            # Over HTTP notifications and responses overtake each other, so only polls have an order.
            if asked is None or not isinstance(state.get("inputRequests", {}), dict):
                continue
            now = object_of(state.get("inputRequests"))
            for key, request in now.items():
                again = key in gone and connection.position(asked.event) > connection.position(gone[key])
                problem = f"the key {key!r:.60} was used for another input request of the same task"
                yield judged(used.setdefault(key, request) == request and not again, event, problem)
            for key in used.keys() - now.keys():
                gone.setdefault(key, event)


@stated_rule(moves=RUN)
@each(_about("tasks/update", "tasks/cancel"))
def ext_task_acknowledged(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    if asked.result is None:
        return UNDECIDED
    more = sorted(asked.result.keys() - {"resultType", "_meta"})
    return f"the result of {asked.method} is not empty, but has {', '.join(more)}" if more else None


@stated_rule(moves=RUN)
def ext_task_other_keys_ignored(history: History) -> Iterator[Verdict]:
    for answer, connection, asked in _about("tasks/update")(history):
        task = _tasks_of(connection).get(str(asked.params.get("taskId")))
        if task is not None and NO_KEY in object_of(asked.params.get("inputResponses")):
            problem = f"a response to an input request that was never made was refused with {code_of(asked)}"
            yield judged(asked.error is None, answer, problem)


# --- methods ----------------------------------------------------------------------------------------------------------


@stated_rule(
    sentence="Give the results of `tasks/get`, `tasks/update` and `tasks/cancel` the `resultType` `complete`.",
    moves=RUN,
)
@each(_about(*TASK_METHODS))
def ext_task_responses_complete(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    if asked.result is None:
        return UNDECIDED
    kind = asked.result.get("resultType")
    return None if kind == "complete" else f"the resultType of the result of {asked.method} is {kind!r:.60}"


def _unknown(asked: RecordedRequest) -> Opinion:
    if not str(asked.params.get("taskId")).startswith(NO_TASK):
        return UNDECIDED
    kept = code_of(asked) == error_codes.INVALID_PARAMS
    problem = f"{asked.method} of a task that does not exist was answered with {code_or_result(asked)}, not -32602"
    return None if kept else problem


@stated_rule(moves=UNKNOWN)
@each(_about("tasks/get"))
def ext_task_unknown_get_refused(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    return _unknown(asked)


@stated_rule(moves=UNKNOWN)
@each(_about("tasks/update", "tasks/cancel"))
def ext_task_unknown_refused(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    return _unknown(asked)


@stated_rule(moves=UNDECLARED)
@each(_about(*TASK_METHODS, declared=False))
def ext_task_needs_capability(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    kept = code_of(asked) == error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY
    problem = f"{asked.method} of a client without the extension was answered with {code_or_result(asked)}, not -32021"
    return None if kept else problem


# --- listening --------------------------------------------------------------------------------------------------------


def _listens(history: History) -> Iterator[tuple[Connection, RecordedRequest]]:
    """Yield the requests to listen to tasks."""
    for connection in offering(history, EXTENSION):
        for asked in connection.requests:
            wants = asked.method == "subscriptions/listen" and items_of(asked.params, "notifications", "taskIds")
            if wants and is_proper(connection, asked):
                yield connection, asked


@stated_rule(moves=UNDECLARED)
def ext_task_listen_needs_capability(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        if declares_tasks(asked):
            continue
        heard = [*asked.answers, *subscribed(connection, asked)]
        if heard:
            problem = f"listening to tasks without the extension was answered with {code_or_result(asked)}"
            yield judged(_names_extension(asked), heard[0], f"{problem}, not with -32021 that names the extension")
        elif (mark := lost(asked)) is not None:
            yield broken(mark, "listening to tasks without the extension was not refused")


@stated_rule(moves=("ext-task-listened",))
def ext_task_quiet(history: History) -> Iterator[Verdict]:
    for connection, asked in _listens(history):
        heard = subscribed(connection, asked)
        exchange = connection.exchanges.get(asked.event.exchange or 0) if connection.transport == "http" else None
        told = [*heard, *(exchange.received if exchange is not None else ())]
        loud = [each for each in told if member_of(each.message, "method") in _LOUD]
        if loud:
            yield broken(loud[0], f"{loud[0].message['method']} came on the subscription of a task")
        elif heard:
            yield held(heard[0])


_LOUD: Final = ("notifications/progress", "notifications/message")
