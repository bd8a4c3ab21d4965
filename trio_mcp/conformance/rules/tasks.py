"""Rules for servers that let tools be called as tasks, which only revision 2025-11-25 has."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from trio_mcp.conformance.members import object_of, objects_of
from trio_mcp.conformance.rules.common import (
    code_of,
    declares,
    first_after,
    is_ordered,
    is_proper,
    named,
    notifications,
    pages,
)
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, params_of
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, about, each
from trio_mcp.conformance.rules.shape import flaw
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.rules.utilities import NO_CURSOR
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes, meta
from trio_mcp.types.tool_messages import CallToolResult

__all__ = ["ANOTHER", "ENDED", "NO_TASK", "SHORTEST_ID", "is_next", "is_time"]

NO_TASK: Final = "no-such-task-"
"""The prefix of the task ids that the kit makes up."""
ANOTHER: Final = f"{NO_TASK}another"
"""The made-up task id that the kit puts into the ``_meta`` of requests about real tasks, to mislead a server."""

ONLY: Final = ("2025-11-25",)
ENDED: Final = ("completed", "failed", "cancelled")
CALLS: Final = "tasks.requests.tools.call"
ASKS: Final = ("elicitation/create", "sampling/createMessage", "roots/list")
ABOUT: Final = ("tasks/get", "tasks/result", "tasks/cancel")

RUN: Final = ("task-run", "task-cancelled")
SHORTEST_ID: Final = 8
"""The minimum length, in characters, of a task id that can't be guessed (an arbitrary choice: 48 bits in Base64)."""

# The format of RFC 3339, section 5.6, which the specification links to. The offset is optional, because the
# specification's text names ISO 8601, which does not require it.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?")


@attrs.define(eq=False)
class _Task:
    """A task that a server created.

    Attributes:
        id: The task's id.
        asked: The tool call that became the task.
        made: The response that created the task.
        first: The task as described in the response that created it.
        ended: The first event that showed that the task had ended, and its final status; None if no event showed that.
    """

    id: str
    asked: RecordedRequest
    made: Event
    first: dict[str, Any]
    ended: tuple[Event, str] | None = None


def _offers(connection: Connection, capability: str) -> bool:
    """Return whether a server speaks 2025-11-25 and has declared a capability."""
    return connection.revision in ONLY and declares(connection.server_capabilities, capability)


def _calls(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield the tool calls in revision 2025-11-25 that got a response."""
    return (call for call in about("tools/call")(history) if call[1].revision in ONLY)


def _tasks(history: History) -> Iterator[tuple[Event, Connection, _Task]]:
    """Yield each task that a server created: the response that created it, the connection, and the task."""
    for connection in history:
        if _offers(connection, CALLS):
            for task in _of(connection).values():
                yield task.made, connection, task


def _of(connection: Connection) -> dict[str, _Task]:
    found: dict[str, _Task] = {}
    for asked in connection.requests:
        task = (asked.result or {}).get("task") if asked.method == "tools/call" and "task" in asked.params else None
        if isinstance(task, dict) and isinstance(task.get("taskId"), str) and is_proper(connection, asked):
            # `task_id_unique` judges duplicate ids, so the first task simply keeps the id.
            found.setdefault(task["taskId"], _Task(task["taskId"], asked, asked.answers[0], task))
    # The states are sorted because `_states` yields all notifications last, but a notification may report the task's
    # end before any response does.
    for event, state in sorted(_states(connection), key=lambda each: connection.position(each[0])):
        task = found.get(str(state.get("taskId")))
        if task is not None and task.ended is None and state.get("status") in ENDED:
            task.ended = event, state["status"]
    return found


def _states(connection: Connection) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield each state of a task that the server reported, preceded by the event that reports it."""
    for asked in connection.requests:
        result = asked.result
        if result is None:
            continue
        if asked.method in ("tasks/get", "tasks/cancel"):
            yield asked.answers[0], result
        elif asked.method == "tools/call" and isinstance(result.get("task"), dict):
            yield asked.answers[0], result["task"]
        elif asked.method == "tasks/list":
            yield from ((asked.answers[0], each) for each in objects_of(result.get("tasks")))
    for event in notifications(connection, "server", "notifications/tasks/status"):
        if isinstance(event.message.get("params"), dict):
            yield event, event.message["params"]


def _said(history: History) -> Iterator[tuple[Event, Connection, dict[str, Any]]]:
    """Yield each task state that a server reported in revision 2025-11-25, with its event and connection."""
    for connection in history:
        if connection.revision in ONLY:
            yield from ((event, connection, state) for event, state in _states(connection))


def _about(*methods: str) -> Occasions[Connection, RecordedRequest, _Task]:
    """Return a function that yields each request with these methods about a server's task, if it has a response."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest, _Task]]:
        # Tasks are found once for each connection: finding them for each request would take a pass over all requests
        # each time.
        known = {connection.number: _of(connection) for connection in history if _offers(connection, CALLS)}
        for answer, connection, asked in about(*methods)(history):
            task = known.get(connection.number, {}).get(asked.params.get("taskId", ""))
            if task is not None:
                yield answer, connection, asked, task

    return occasions


def _after(connection: Connection, asked: RecordedRequest, event: Event) -> bool:
    """Return whether a request was sent after an event."""
    return connection.position(asked.event) > connection.position(event)


def _support(connection: Connection, asked: RecordedRequest) -> str | None:
    """Return the ``taskSupport`` of the called tool, as the server lists it; None if the tool was not listed."""
    tool = connection.tools.get(asked.params.get("name", ""))
    if tool is None:
        return None
    # A tool without `taskSupport` forbids tasks (Tool-Level Negotiation).
    execution = object_of(tool.get("execution"))
    return str(execution.get("taskSupport", "forbidden"))


# --- creating tasks ---------------------------------------------------------------------------------------------------


@stated_rule(moves=RUN)
@each(_calls)
def task_created(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # A server may refuse the arguments before it creates a task.
    if not isinstance(asked.params.get("task"), dict) or asked.result is None or asked.result.get("isError") is True:
        return UNDECIDED
    # A server only SHOULD refuse a task if the tool forbids tasks, so a plain result may be right for such a tool, and
    # for one that was not listed.
    if not _offers(connection, CALLS) or _support(connection, asked) not in ("optional", "required"):
        return UNDECIDED
    made = isinstance(asked.result.get("task"), dict)
    return None if made else "a tool was called as a task, but the result does not describe a task"


@stated_rule(moves=RUN)
@each(_tasks)
def task_begins_working(_: Event, _connection: Connection, task: _Task) -> Opinion:
    if task.first.get("status") == "working":
        return None
    # If the task was updated before the response was sent, its status may have changed already.
    updated = task.first.get("createdAt") != task.first.get("lastUpdatedAt")
    return UNDECIDED if updated else f"a new task, never updated, has the status {task.first.get('status')!r}"


@stated_rule(moves=RUN)
def task_id_unique(history: History) -> Iterator[Verdict]:
    # Ids are compared across all connections: they must be unique "among all tasks controlled by the receiver".
    seen: set[str] = set()
    for answer, _, asked in _calls(history):
        task_id = object_of((asked.result or {}).get("task")).get("taskId")
        if isinstance(task_id, str):
            yield judged(task_id not in seen, answer, f"a second task has the id {task_id!r}")
            seen.add(task_id)


@stated_rule(moves=RUN)
def task_id_unpredictable(history: History) -> Iterator[Verdict]:
    before: dict[int, str] = {}
    for event, connection, task in _tasks(history):
        # A server that identifies its clients may bind tasks to them, and then the task ids need not be secret.
        exchange = connection.exchanges.get(event.exchange or 0)
        if exchange is not None and "authorization" in exchange.request.headers:
            continue
        short = len(task.id) < SHORTEST_ID
        # Ids that are ordered by time, such as UUIDs of version 7, still can't be guessed; only ids from a counter can.
        counted = is_next(before.get(connection.number, ""), task.id)
        problem = f"the task id {task.id!r} is too short" if short else f"the task id {task.id!r} is predictable"
        yield judged(not short and not counted, event, problem)
        before[connection.number] = task.id


def is_next(one: str, other: str) -> bool:
    """Return whether two ids differ only in the number at their end, which is one greater in the second."""
    # The server chooses the id, and Python refuses to convert more than 4300 digits, so only the last fifteen are read,
    # and these are enough for any counter.
    found, following = re.search(r"\d{1,15}$", one), re.search(r"\d{1,15}$", other)
    if found is None or following is None:
        return False
    return one[: found.start()] == other[: following.start()] and int(following[0]) - int(found[0]) == 1


@stated_rule(
    sentence="Tell with each task when it was made and when it last changed, as ISO 8601, and for how long it is kept.",
    moves=RUN,
)
@each(_said)
def task_shape(_: Event, connection: Connection, state: dict[str, Any]) -> Opinion:
    if not declares(connection.server_capabilities, "tasks"):
        return UNDECIDED
    problems = [f"{name} is {state.get(name)!r}" for name in _TIMES if not is_time(state.get(name))]
    # The schema requires an id; this rule only requires it to be a string (Task ID Requirements).
    if "taskId" in state and not isinstance(state["taskId"], str):
        problems.append(f"taskId is {state['taskId']!r}")
    # null means unlimited, so a missing `ttl` needs a stand-in that isn't None.
    if not _is_ttl(state.get("ttl", "missing")):
        problems.append(f"ttl is {state.get('ttl', 'missing')!r}")
    return "; ".join(problems) or None


_TIMES: Final = ("createdAt", "lastUpdatedAt")


def _is_ttl(value: Any) -> bool:
    # The specification says "number", not "integer", so fractions are allowed. In Python a bool is an int; in JSON it
    # isn't a number.
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def is_time(value: Any) -> bool:
    """Return whether a value is a time in ISO 8601."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    # The pattern accepts a thirteenth month, or the 31st of June; only a calendar shows that such a date does not
    # exist.
    try:
        datetime.datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


# --- who may call what as a task ----------------------------------------------------------------------------------


@stated_rule(moves=["task-unsupported"])
@each(_calls)
def task_tool_support_enforced(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    return _refused(connection, asked, "required", as_task=False)


@stated_rule(moves=["task-unsupported"])
@each(_calls)
def task_tool_forbidden_refused(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    return _refused(connection, asked, "forbidden", as_task=True)


def _refused(connection: Connection, asked: RecordedRequest, support: str, *, as_task: bool) -> Opinion:
    # These two codes excuse the server: -32602 may be about the arguments, and -32600 may say that the server wants
    # every call to be a task (Protocol Errors).
    excused = code_of(asked) in (error_codes.INVALID_PARAMS, error_codes.INVALID_REQUEST)
    if excused or not _offers(connection, CALLS):
        return UNDECIDED
    if _support(connection, asked) != support or ("task" in asked.params) != as_task:
        return UNDECIDED
    what = "as a task" if as_task else "without a task"
    problem = f"a tool with taskSupport {support!r} was called {what}, but the response is {_shown(asked)}"
    return None if code_of(asked) == error_codes.METHOD_NOT_FOUND else problem


def _shown(asked: RecordedRequest) -> str:
    return f"the error {code_of(asked)}" if asked.error is not None else "a result"


@stated_rule(moves=["task-metadata"])
def task_metadata_ignored(history: History) -> Iterator[Verdict]:
    plain: dict[tuple[int, str], RecordedRequest] = {}
    for answer, connection, asked in _calls(history):
        if declares(connection.server_capabilities, CALLS):
            continue
        # Only the same call without a task shows whether the tool itself refuses these arguments.
        key = connection.number, repr((asked.params.get("name"), asked.params.get("arguments")))
        if "task" not in asked.params:
            plain[key] = asked
        elif asked.result is not None:
            made = isinstance(asked.result.get("task"), dict)
            yield judged(not made, answer, "the call became a task, though the server does not declare tasks")
        # An error that doesn't look like a refusal of the task may come from the tool itself.
        elif _refuses_task(asked) and (other := plain.get(key)) is not None and other.result is not None:
            # Version 1 of the TypeScript SDK refuses the task, and with it the reference servers `filesystem` and
            # `memory`.
            yield broken(answer, f"the call gave a result, but the same call as a task gave the error {code_of(asked)}")


_REFUSALS: Final = (error_codes.INVALID_REQUEST, error_codes.METHOD_NOT_FOUND, error_codes.INVALID_PARAMS)


def _refuses_task(asked: RecordedRequest) -> bool:
    # The specification forbids refusing a task, so it defines no error code for a refusal; peers use one of these
    # codes, or mention the task in the error's message.
    return asked.error is not None and (
        code_of(asked) in _REFUSALS or "task" in str(asked.error.get("message")).lower()
    )


@stated_rule(moves=["task-metadata", *RUN])
@each(_said)
def task_capability_declared(_: Event, connection: Connection, _state: dict[str, Any]) -> Opinion:
    if connection.hello is None:
        return UNDECIDED
    declared = declares(connection.server_capabilities, "tasks")
    return None if declared else "the server runs tasks, but does not declare the capability tasks"


# --- what becomes of tasks ----------------------------------------------------------------------------------------


@stated_rule(moves=RUN)
@each(_about("tasks/get"))
def task_transitions(_: Event, connection: Connection, asked: RecordedRequest, task: _Task) -> Opinion:
    # Over HTTP responses may overtake each other, so a request counts only if it was sent after another message had
    # shown the task's end.
    if task.ended is None or asked.result is None or not _after(connection, asked, task.ended[0]):
        return UNDECIDED
    status = asked.result.get("status")
    return None if status == task.ended[1] else f"the task was already {task.ended[1]}, but now it is {status}"


@stated_rule(moves=["task-cancelled"])
@each(_about("tasks/cancel"))
def task_cancelled(_: Event, connection: Connection, asked: RecordedRequest, task: _Task) -> Opinion:
    # `task_cancel_ended_refused` judges the cancellation of a task that had already ended.
    if asked.result is None or (task.ended is not None and _after(connection, asked, task.ended[0])):
        return UNDECIDED
    status = asked.result.get("status")
    return None if status == "cancelled" else f"the task was cancelled, but its status is {status!r}"


@stated_rule(moves=RUN)
@each(_about("tasks/cancel"))
def task_cancel_ended_refused(_: Event, connection: Connection, asked: RecordedRequest, task: _Task) -> Opinion:
    # If the server doesn't declare the capability, the method need not exist, so -32601 is also right.
    supported = declares(connection.server_capabilities, "tasks.cancel")
    if not supported or task.ended is None or not _after(connection, asked, task.ended[0]):
        return UNDECIDED
    problem = f"the task was already {task.ended[1]}, but the response to tasks/cancel is {_shown(asked)}"
    return None if code_of(asked) == error_codes.INVALID_PARAMS else problem


@stated_rule(moves=RUN)
@each(_about("tasks/get"))
def task_failure_explained(_: Event, _connection: Connection, asked: RecordedRequest, _task: _Task) -> Opinion:
    if asked.result is None or asked.result.get("status") != "failed":
        return UNDECIDED
    return None if asked.result.get("statusMessage") else "a task has failed without a statusMessage"


@stated_rule(moves=RUN)
@each(_about("tasks/get"))
def task_get_without_stream(answer: Event, connection: Connection, _asked: RecordedRequest, _task: _Task) -> Opinion:
    # The specification adds "where possible" (Input Required Status). No message shows what was not possible, so the
    # exception is ignored.
    exchange = connection.exchanges.get(answer.exchange or 0)
    if exchange is None or exchange.response is None or connection.transport != "http":
        return UNDECIDED
    return "the response to tasks/get is a stream" if exchange.is_stream else None


# --- results ----------------------------------------------------------------------------------------------------------


@stated_rule(moves=RUN)
def task_result_blocks(history: History) -> Iterator[Verdict]:
    given: dict[tuple[int, str], Event] = {}
    for answer, connection, asked, task in _about("tasks/result")(history):
        # A request that the client has cancelled doesn't count: it may get an error at once, while the task continues.
        if asked.cancelled is None and asked.overdue is None:
            given.setdefault((connection.number, task.id), answer)
    for answer, connection, asked, task in _about("tasks/get")(history):
        result = given.get((connection.number, task.id))
        if result is not None and asked.result is not None and _after(connection, asked, result):
            status = asked.result.get("status")
            yield judged(status in ENDED, answer, f"tasks/result was answered while the task was still {status}")


@stated_rule(moves=RUN)
def task_result_final(history: History) -> Iterator[Verdict]:
    given: dict[tuple[int, str], dict[str, Any]] = {}
    for answer, connection, asked, task in _about("tasks/result")(history):
        if asked.result is None:
            # The task may have expired since, or its call may have ended in an error.
            completed = task.ended is not None and task.ended[1] == "completed"
            waited_for = asked.cancelled is None and asked.overdue is None
            if completed and code_of(asked) != error_codes.INVALID_PARAMS and waited_for:
                yield broken(answer, f"the task was completed, but tasks/result gave the error {code_of(asked)}")
            continue
        problem = flaw(CallToolResult, asked.result, connection.revision)
        # The content of `_meta`, such as the related task or a trace, belongs to the response itself, and may differ
        # each time.
        plain = {name: value for name, value in asked.result.items() if name != "_meta"}
        first = given.setdefault((connection.number, task.id), plain)
        if problem is None and first != plain:
            problem = "it differs from the previous result"
        yield judged(problem is None, answer, f"the result of a call as a task: {problem}")


@stated_rule(moves=RUN)
@each(_about("tasks/result"))
def related_task_present(_: Event, _connection: Connection, asked: RecordedRequest, task: _Task) -> Opinion:
    if asked.result is None:
        return UNDECIDED
    related = _related(asked.result)
    return None if related == task.id else f"the result names the related task {related!r}, not {task.id!r}"


@stated_rule(sentence="Name the task in the `_meta` of questions that belong to it.", moves=RUN)
def task_questions_related(history: History) -> Iterator[Verdict]:
    """Judge the questions asked while one task runs and no request is open that could ask, too."""
    for connection in history:
        tasks = list(_of(connection).values()) if _offers(connection, CALLS) else []
        for asked in connection.questions if tasks else ():
            at = connection.position(asked.event)
            running = [
                task.id
                for task in tasks
                if connection.position(task.made) < at
                and (task.ended is None or connection.position(task.ended[0]) > at)
            ]
            if asked.method in ASKS and len(running) == 1 and not _others_open(connection, at):
                related = _related(asked.params)
                problem = f"the question names the related task {related!r}, not {running[0]!r}"
                yield judged(related == running[0], asked.event, problem)


def _others_open(connection: Connection, at: int) -> bool:
    """Return whether a request other than those about tasks has no response yet at a position."""
    return any(
        not asked.method.startswith("tasks/")
        and connection.position(asked.event) < at
        and not (asked.answers and connection.position(asked.answers[0]) < at)
        for asked in connection.requests
    )


@stated_rule(
    sentence="Don't name the task in the `_meta` of what contains its id: status notifications, results of "
    "requests about it.",
    moves=[*RUN, "task-list"],
)
@each(_said)
def related_task_absent(event: Event, connection: Connection, state: dict[str, Any]) -> Opinion:
    if not declares(connection.server_capabilities, "tasks"):
        return UNDECIDED
    owner = event.message.get("result", state)
    if "result" in event.message and "task" in object_of(owner):
        return UNDECIDED  # the rule doesn't apply to a CreateTaskResult
    return None if _related(owner) is None else "a message that contains the task's id also names the task in its _meta"


def _related(holder: Any) -> Any:
    entry = object_of(object_of(holder).get("_meta")).get(meta.RELATED_TASK)
    # A malformed entry is returned as it is, so that it counts as present, but matches no task.
    return entry.get("taskId") if isinstance(entry, dict) else entry


@stated_rule(
    sentence="Go by the parameter `taskId` in requests about a task, and not by a task that their `_meta` names.",
    moves=["task-misled"],
)
@each(_about("tasks/get"))
def task_id_parameter_wins(_: Event, _connection: Connection, asked: RecordedRequest, task: _Task) -> Opinion:
    # Only a result shows which task the server went by. An error doesn't: the task may have expired.
    if meta.RELATED_TASK not in asked.meta or asked.result is None:
        return UNDECIDED
    if asked.result.get("taskId") == task.id:
        return None
    return f"tasks/get for {task.id!r} gave {_shown(asked)} for {asked.result.get('taskId')!r}"


@stated_rule(
    sentence="Answer -32602 for a task, or a cursor of the list of tasks, that doesn't exist.",
    moves=["task-unknown"],
)
@each(about(*ABOUT, "tasks/list"))
def task_errors(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    capability = {"tasks/cancel": "tasks.cancel", "tasks/list": "tasks.list"}.get(asked.method, "tasks")
    key, made_up = ("cursor", NO_CURSOR) if asked.method == "tasks/list" else ("taskId", NO_TASK)
    # Any other id may belong to a task made before the transcript began, but the kit's made-up ids can't belong to any
    # task.
    if not _offers(connection, capability) or not str(asked.params.get(key)).startswith(made_up):
        return UNDECIDED
    problem = f"{asked.method} with an unknown {key} was answered with {_shown(asked)}, not with -32602"
    return None if code_of(asked) == error_codes.INVALID_PARAMS else problem


# --- the list, and progress ---------------------------------------------------------------------------------------


@stated_rule(sentence="List every task that can be fetched, in pages if need be.", moves=["task-list"])
def task_listed(history: History) -> Iterator[Verdict]:
    gets = [*_about("tasks/get")(history)]
    for connection in history:
        for chain in pages(connection, "tasks/list") if _offers(connection, "tasks.list") else ():
            # A list of several pages is not judged: if a task is deleted between two pages, the tasks after it move up,
            # and one of those may be on neither page.
            if len(chain) > 1 or (chain[0].result or {}).get("nextCursor") is not None:
                continue
            listed, last = set(named(chain, "tasks", "taskId")), chain[0].answers[0]
            for _, other, asked, task in gets:
                # The task must have existed before the list was read, and afterwards.
                there = other is connection and asked.result is not None and _after(connection, asked, last)
                if there and _after(connection, chain[0], task.made):
                    yield judged(task.id in listed, last, f"the task {task.id!r} can be fetched, but is not listed")


@stated_rule(moves=RUN)
@each(_tasks)
def task_progress_ends(_: Event, connection: Connection, task: _Task) -> Opinion:
    # Over HTTP, progress and the response that shows the end come on different streams, and may overtake each other.
    if task.ended is None or not is_ordered(connection) or meta.PROGRESS_TOKEN not in task.asked.meta:
        return UNDECIDED
    late = first_after(connection, task.ended[0], task.asked.progress)
    return held(task.ended[0]) if late is None else broken(late, "progress was reported for a task after its end")


@stated_rule(
    sentence="Report a task's progress under the token of the request that made it, until the task ends.",
    moves=RUN,
)
def task_progress_token(history: History) -> Iterator[Verdict]:
    for _, connection, task in _tasks(history):
        token = task.asked.meta.get(meta.PROGRESS_TOKEN)
        for event in notifications(connection, "server", "notifications/progress"):
            params = params_of(event)
            # If the token is wrong, only the related task in `_meta` still tells which task the progress belongs to.
            if _related(params) == task.id:
                problem = f"progress of task {task.id!r} has the token {params.get('progressToken')!r}, not {token!r}"
                yield judged(params.get("progressToken") == token, event, problem)
        # Progress that names no related task was found by its token, so the token is right.
        yield from (held(event) for event in task.asked.progress if _related(params_of(event)) is None)
