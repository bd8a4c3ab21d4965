"""Rules for tasks, which only 2025-11-25 has: for a server that lets tools be called as tasks."""

from __future__ import annotations

import datetime
import itertools
import re
from collections.abc import Iterator
from typing import Any, Final

import attrs

from trio_mcp.conformance.rules.common import (
    answer_of,
    asked_about,
    code_of,
    declares,
    is_ordered,
    is_proper,
    named,
    notifications,
    pages,
)
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.shape import flaw
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.rules.utilities import NO_CURSOR
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types import error_codes, meta
from trio_mcp.types.tool_messages import CallToolResult

__all__ = ["ANOTHER", "NO_TASK"]

NO_TASK: Final = "no-such-task-"
"""How task ids begin that the kit makes up."""
ANOTHER: Final = f"{NO_TASK}another"
"""The id that the kit names in the ``_meta`` of requests about other tasks."""

ONLY: Final = ("2025-11-25",)
ENDED: Final = ("completed", "failed", "cancelled")
CALLS: Final = "tasks.requests.tools.call"
ABOUT: Final = ("tasks/get", "tasks/result", "tasks/cancel")

RUN: Final = ("task-run", "task-cancelled")
SHORTEST_ID: Final = 8
"""Characters of a task's id that can't be guessed, at least (chosen: 48 bits in base64)."""

# RFC 3339, section 5.6, which the specification links to; but it names ISO 8601, which does not demand the offset.
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?")


@attrs.define(eq=False)
class _Task:
    """A task that a server made.

    Attributes:
        id: Its id.
        asked: The request that became it.
        made: The response that says so.
        first: What that response says of it.
        ended: The first event that showed that it has ended, and the status then.
    """

    id: str
    asked: RecordedRequest
    made: Event
    first: dict[str, Any]
    ended: tuple[Event, str] | None = None


def _tasks(history: History) -> Iterator[tuple[Connection, _Task]]:
    """Yield the tasks that were made of calls, with what is known of their ends."""
    for connection in history:
        if connection.revision in ONLY and declares(connection.server_capabilities, CALLS):
            for task in _of(connection).values():
                yield connection, task


def _of(connection: Connection) -> dict[str, _Task]:
    found: dict[str, _Task] = {}
    for asked in connection.requests:
        task = (asked.result or {}).get("task") if asked.method == "tools/call" and "task" in asked.params else None
        if isinstance(task, dict) and isinstance(task.get("taskId"), str) and is_proper(connection, asked):
            # Ids that come twice are for `task_id_unique`; here the first task keeps its id.
            found.setdefault(task["taskId"], _Task(task["taskId"], asked, asked.answers[0], task))
    # `_states` goes by request, but a status notification may tell of the end before any answer does.
    for event, state in sorted(_states(connection), key=lambda each: connection.position(each[0])):
        task = found.get(str(state.get("taskId")))
        if task is not None and task.ended is None and state.get("status") in ENDED:
            task.ended = event, state["status"]
    return found


def _states(connection: Connection) -> Iterator[tuple[Event, dict[str, Any]]]:
    """Yield what the server said of tasks, wherever it did."""
    for asked in connection.requests:
        result = asked.result
        if result is None:
            continue
        if asked.method in ("tasks/get", "tasks/cancel"):
            yield asked.answers[0], result
        elif asked.method == "tools/call" and isinstance(result.get("task"), dict):
            yield asked.answers[0], result["task"]
        elif asked.method == "tasks/list" and isinstance(result.get("tasks"), list):
            yield from ((asked.answers[0], each) for each in result["tasks"] if isinstance(each, dict))
    for event in notifications(connection, "server", "notifications/tasks/status"):
        if isinstance(params := event.message.get("params"), dict):
            yield event, params


def _about(history: History, *methods: str) -> Iterator[tuple[Connection, RecordedRequest, Event, _Task]]:
    """Yield the requests about tasks that the server made, of these methods, that were answered."""
    # Found once for each connection: to do it for each request would cost a pass over all requests each time.
    known: dict[int, dict[str, _Task]] = {}
    for connection, asked, answer in asked_about(history, *methods):
        if connection.revision not in ONLY or not declares(connection.server_capabilities, CALLS):
            continue
        if connection.number not in known:
            known[connection.number] = _of(connection)
        task = known[connection.number].get(asked.params.get("taskId", ""))
        if task is not None:
            yield connection, asked, answer, task


def _after(connection: Connection, asked: RecordedRequest, event: Event) -> bool:
    """Return whether a request was sent after an event had come."""
    return connection.position(asked.event) > connection.position(event)


def _support(connection: Connection, asked: RecordedRequest) -> str | None:
    """Return how the tool of a call may be called, as it was listed; None if it was not listed."""
    tool = connection.tools.get(asked.params.get("name", ""))
    if tool is None:
        return None
    # Tool-Level Negotiation: a tool that doesn't say is one that forbids tasks.
    execution = tool.get("execution")
    return str(execution.get("taskSupport", "forbidden")) if isinstance(execution, dict) else "forbidden"


# --- making them ------------------------------------------------------------------------------------------------------


@stated_rule(since="2025-11-25", moves=RUN)
def task_created(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call"):
        if connection.revision not in ONLY or not isinstance(asked.params.get("task"), dict) or asked.result is None:
            continue
        # Arguments that are refused may be refused before there is a task.
        if asked.result.get("isError") is True:
            continue
        # That a tool refuses the task that it forbids is only a SHOULD, so a plain result may be right there, and for a
        # tool that was not listed.
        if declares(connection.server_capabilities, CALLS) and _support(connection, asked) in ("optional", "required"):
            made = isinstance(asked.result.get("task"), dict)
            yield judged(made, answer, "a tool was called as a task, and the result is not of a task")


@stated_rule(since="2025-11-25", moves=RUN)
def task_begins_working(history: History) -> Iterator[Verdict]:
    for _, task in _tasks(history):
        if task.first.get("status") == "working":
            yield held(task.made)
        elif task.first.get("createdAt") == task.first.get("lastUpdatedAt"):  # else it may have gone on since
            yield broken(task.made, f"a new task, never updated, has the status {task.first.get('status')!r}")


@stated_rule(since="2025-11-25", moves=RUN)
def task_id_unique(history: History) -> Iterator[Verdict]:
    # On all connections together: ids are unique "among all tasks controlled by the receiver".
    seen: set[str] = set()
    for connection, asked, answer in asked_about(history, "tools/call"):
        task = (asked.result or {}).get("task")
        if connection.revision in ONLY and isinstance(task, dict) and isinstance(task.get("taskId"), str):
            yield judged(task["taskId"] not in seen, answer, f"a second task has the id {task['taskId']!r}")
            seen.add(task["taskId"])


@stated_rule(since="2025-11-25", moves=RUN)
def task_id_unpredictable(history: History) -> Iterator[Verdict]:
    for _, tasks in itertools.groupby(_tasks(history), key=lambda each: each[0].number):
        before: _Task | None = None
        for connection, task in tasks:
            # A server that knows who asks may bind tasks to that, and need not hide their ids.
            exchange = connection.exchanges.get(task.made.exchange or 0)
            if exchange is not None and "authorization" in exchange.request.headers:
                continue
            short = len(task.id) < SHORTEST_ID
            # Ids that are ordered by time, such as those of UUID version 7, still can't be guessed; only a
            # counter can.
            counted = before is not None and _is_next(before.id, task.id)
            problem = f"the task id {task.id!r} is too short" if short else f"the task id after it is {task.id!r}"
            yield judged(not short and not counted, task.made, problem)
            before = task


def _is_next(one: str, other: str) -> bool:
    """Return whether one id is another with a number that is one greater."""
    # The server chooses the id, and Python refuses to convert more than 4300 digits. Fifteen are enough for any
    # counter.
    found, following = re.search(r"\d{1,15}$", one), re.search(r"\d{1,15}$", other)
    if found is None or following is None:
        return False
    return one[: found.start()] == other[: following.start()] and int(following[0]) - int(found[0]) == 1


@stated_rule(
    since="2025-11-25",
    sentence="Tell with each task when it was made and when it last changed, as ISO 8601, and for how long it is kept.",
    moves=RUN,
)
def task_shape(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.revision not in ONLY or not declares(connection.server_capabilities, "tasks"):
            continue
        for event, state in _states(connection):
            problems = [f"{name} is {state.get(name)!r}" for name in _TIMES if not _is_time(state.get(name))]
            # That there is an id is a matter of the schema; here it is only that it be a string (Task ID Requirements).
            if "taskId" in state and not isinstance(state["taskId"], str):
                problems.append(f"taskId is {state['taskId']!r}")
            # null means unlimited, so one that is missing needs a stand-in that isn't None.
            if not _is_ttl(state.get("ttl", "missing")):
                problems.append(f"ttl is {state.get('ttl', 'missing')!r}")
            yield judged(not problems, event, "; ".join(problems))


_TIMES: Final = ("createdAt", "lastUpdatedAt")


def _is_ttl(value: Any) -> bool:
    # The text says number, not integer, so fractions will do. To Python a bool is an int, to JSON it isn't a number.
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return False
    # The pattern takes a thirteenth month, or the 31st of June; only a calendar knows better.
    try:
        datetime.datetime.fromisoformat(value.upper().replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


# --- who may call what as a task ----------------------------------------------------------------------------------


@stated_rule(
    since="2025-11-25",
    sentence="Answer -32601 if a tool that requires a task is called without one.",
    moves=["task-unsupported"],
)
def task_tool_support_enforced(history: History) -> Iterator[Verdict]:
    yield from _refused(history, "required", as_task=False)


@stated_rule(since="2025-11-25", moves=["task-unsupported"])
def task_tool_forbidden_refused(history: History) -> Iterator[Verdict]:
    yield from _refused(history, "forbidden", as_task=True)


def _refused(history: History, support: str, *, as_task: bool) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call"):
        if connection.revision not in ONLY or not declares(connection.server_capabilities, CALLS):
            continue
        # The arguments may be wrong, too; and a server that wants a task with every call may say so (Protocol Errors).
        if code_of(asked) in (error_codes.INVALID_PARAMS, error_codes.INVALID_REQUEST):
            continue
        if _support(connection, asked) == support and ("task" in asked.params) == as_task:
            what = "a task" if as_task else "no task"
            problem = f"taskSupport is {support!r}, it was called as {what}, and the response is {_shown(asked)}"
            yield judged(code_of(asked) == error_codes.METHOD_NOT_FOUND, answer, problem)


def _shown(asked: RecordedRequest) -> str:
    return f"the error {code_of(asked)}" if asked.error is not None else "a result"


@stated_rule(since="2025-11-25", moves=["task-metadata"])
def task_metadata_ignored(history: History) -> Iterator[Verdict]:
    plain: dict[tuple[int, str], RecordedRequest] = {}
    for connection, asked, answer in asked_about(history, "tools/call"):
        if connection.revision not in ONLY or declares(connection.server_capabilities, CALLS):
            continue
        # Only the same call without a task shows whether the tool itself refuses these arguments.
        key = connection.number, repr((asked.params.get("name"), asked.params.get("arguments")))
        if "task" not in asked.params:
            plain[key] = asked
        elif asked.result is not None:
            made = isinstance(asked.result.get("task"), dict)
            yield judged(not made, answer, "the call became a task, though tasks are not declared")
        # Any other error may be one of the tool, unless it says what it is about.
        elif _refuses_task(asked) and (other := plain.get(key)) is not None and other.result is not None:
            # Version 1 of the TypeScript SDK does so, and with it the reference servers filesystem and memory.
            yield broken(answer, f"with a task, the call gave the error {code_of(asked)}; without, a result")


_REFUSALS: Final = (error_codes.INVALID_REQUEST, error_codes.METHOD_NOT_FOUND, error_codes.INVALID_PARAMS)


def _refuses_task(asked: RecordedRequest) -> bool:
    # There is no code for a refusal that the text forbids; what peers choose is one of these, or a message that says
    # task.
    return asked.error is not None and (
        code_of(asked) in _REFUSALS or "task" in str(asked.error.get("message")).lower()
    )


@stated_rule(since="2025-11-25", moves=["task-metadata", *RUN])
def task_capability_declared(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.revision not in ONLY or connection.hello is None:
            continue
        declared = declares(connection.server_capabilities, "tasks")
        for event, _ in _states(connection):
            yield judged(declared, event, "the server runs tasks, but does not declare the capability")


# --- what becomes of them -----------------------------------------------------------------------------------------


@stated_rule(since="2025-11-25", moves=RUN)
def task_transitions(history: History) -> Iterator[Verdict]:
    for connection, asked, answer, task in _about(history, "tasks/get"):
        # Answers may overtake each other over HTTP, so only what was asked after the end had been seen counts.
        if task.ended is not None and asked.result is not None and _after(connection, asked, task.ended[0]):
            status = asked.result.get("status")
            yield judged(status == task.ended[1], answer, f"the task was {task.ended[1]}, and now it is {status}")


@stated_rule(since="2025-11-25", moves=["task-cancelled"])
def task_cancelled(history: History) -> Iterator[Verdict]:
    for connection, asked, answer, task in _about(history, "tasks/cancel"):
        # One that had ended before has a rule of its own.
        if asked.result is not None and not (task.ended and _after(connection, asked, task.ended[0])):
            status = asked.result.get("status")
            yield judged(status == "cancelled", answer, f"the task was cancelled, and its status is {status!r}")


@stated_rule(since="2025-11-25", moves=RUN)
def task_cancel_ended_refused(history: History) -> Iterator[Verdict]:
    for connection, asked, answer, task in _about(history, "tasks/cancel"):
        # Without the capability the method need not exist, and -32601 is as right.
        supported = declares(connection.server_capabilities, "tasks.cancel")
        if supported and task.ended is not None and _after(connection, asked, task.ended[0]):
            problem = f"the task was {task.ended[1]} when it was to be cancelled, and the response is {_shown(asked)}"
            yield judged(code_of(asked) == error_codes.INVALID_PARAMS, answer, problem)


@stated_rule(since="2025-11-25", moves=RUN)
def task_failure_explained(history: History) -> Iterator[Verdict]:
    for _, asked, answer, _ in _about(history, "tasks/get"):
        if asked.result is not None and asked.result.get("status") == "failed":
            yield judged(bool(asked.result.get("statusMessage")), answer, "a task has failed without a statusMessage")


@stated_rule(since="2025-11-25", moves=RUN)
def task_get_without_stream(history: History) -> Iterator[Verdict]:
    for connection, _, answer, _ in _about(history, "tasks/get"):
        # "Where possible" (Input Required Status) leaves room, but nothing that passes between the two can show what
        # was not possible.
        exchange = connection.exchanges.get(answer.exchange) if answer.exchange is not None else None
        if exchange is not None and exchange.response is not None and connection.transport == "http":
            yield judged(not exchange.is_stream, answer, "the response to tasks/get is a stream")


# --- results ----------------------------------------------------------------------------------------------------------


@stated_rule(since="2025-11-25", moves=RUN)
def task_result_blocks(history: History) -> Iterator[Verdict]:
    given: dict[tuple[int, str], Event] = {}
    for connection, asked, answer, task in _about(history, "tasks/result"):
        # A request that was given up may be answered with an error at once, and the task goes on.
        if asked.cancelled is None and asked.overdue is None:
            given.setdefault((connection.number, task.id), answer)
    for connection, asked, answer, task in _about(history, "tasks/get"):
        result = given.get((connection.number, task.id))
        if result is not None and asked.result is not None and _after(connection, asked, result):
            status = asked.result.get("status")
            yield judged(status in ENDED, answer, f"tasks/result was answered, and after that the task is {status}")


@stated_rule(since="2025-11-25", moves=RUN)
def task_result_final(history: History) -> Iterator[Verdict]:
    given: dict[tuple[int, str], dict[str, Any]] = {}
    for connection, asked, answer, task in _about(history, "tasks/result"):
        if asked.result is None:
            # The task may have expired since, or its request have ended in an error.
            completed = task.ended is not None and task.ended[1] == "completed"
            waited_for = asked.cancelled is None and asked.overdue is None
            if completed and code_of(asked) != error_codes.INVALID_PARAMS and waited_for:
                yield broken(answer, f"the task was completed, and tasks/result gave the error {code_of(asked)}")
            continue
        problem = flaw(CallToolResult, asked.result, connection.revision)
        # The content of `_meta` belongs to the response itself, such as the related task or a trace, and may differ
        # each time.
        plain = {name: value for name, value in asked.result.items() if name != "_meta"}
        first = given.setdefault((connection.number, task.id), plain)
        if problem is None and first != plain:
            problem = "it is another result than before"
        yield judged(problem is None, answer, f"the result of a call as a task: {problem}")


@stated_rule(since="2025-11-25", moves=RUN)
def related_task_present(history: History) -> Iterator[Verdict]:
    for _, asked, answer, task in _about(history, "tasks/result"):
        if asked.result is not None:
            named_task = _related(asked.result)
            problem = f"the result of task {task.id!r} names {named_task!r} in its _meta"
            yield judged(named_task == task.id, answer, problem)


@stated_rule(
    since="2025-11-25",
    sentence="Don't name the task in the `_meta` of what contains its id: status notifications, results of "
    "requests about it.",
    moves=[*RUN, "task-list"],
)
def related_task_absent(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.revision not in ONLY or not declares(connection.server_capabilities, "tasks"):
            continue
        for event, state in _states(connection):
            if "result" in event.message and "task" in (event.message["result"] or ()):
                continue  # CreateTaskResult
            owner = event.message.get("result", state)
            yield judged(_related(owner) is None, event, "a message that contains the task's id names it in _meta, too")


def _related(holder: Any) -> Any:
    entries = holder.get("_meta") if isinstance(holder, dict) else None
    entry = entries.get(meta.RELATED_TASK) if isinstance(entries, dict) else None
    # A malformed entry is given back as it is, so that it counts as present, but matches no task.
    return entry.get("taskId") if isinstance(entry, dict) else entry


@stated_rule(
    since="2025-11-25",
    sentence="Go by the parameter `taskId` in requests about a task, and not by a task that their `_meta` names.",
    moves=["task-misled"],
)
def task_id_parameter_wins(history: History) -> Iterator[Verdict]:
    for _, asked, answer, task in _about(history, "tasks/get"):
        if meta.RELATED_TASK in asked.meta:
            got = asked.result.get("taskId") if asked.result is not None else None
            problem = f"taskId is {task.id!r}, and the response is {_shown(asked)} of {got!r}"
            # It may have expired, but then it is not known under the other id either.
            yield judged(got == task.id or asked.result is None, answer, problem)


@stated_rule(
    since="2025-11-25",
    sentence="Answer -32602 for a task, or a cursor of the list of tasks, that doesn't exist.",
    moves=["task-unknown"],
)
def task_errors(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, *ABOUT, "tasks/list"):
        if connection.revision not in ONLY:
            continue
        capability = {"tasks/cancel": "tasks.cancel", "tasks/list": "tasks.list"}.get(asked.method, "tasks")
        key, made_up = ("cursor", NO_CURSOR) if asked.method == "tasks/list" else ("taskId", NO_TASK)
        # Any other id may belong to a task made before the transcript began; those that the kit makes up can't exist.
        if declares(connection.server_capabilities, capability) and str(asked.params.get(key)).startswith(made_up):
            problem = f"{asked.method} with an unknown {key}: the response is {_shown(asked)}"
            yield judged(code_of(asked) == error_codes.INVALID_PARAMS, answer, problem)


# --- the list, and progress ---------------------------------------------------------------------------------------


@stated_rule(
    since="2025-11-25", sentence="List every task that can be fetched, in pages if need be.", moves=["task-list"]
)
def task_listed(history: History) -> Iterator[Verdict]:
    gets = [*_about(history, "tasks/get")]
    for connection in history:
        if connection.revision not in ONLY or not declares(connection.server_capabilities, "tasks.list"):
            continue
        for chain in pages(connection, "tasks/list"):
            last = answer_of(chain[-1])
            # Between two pages other tasks may go, and the places of those that stay change.
            if last is None or len(chain) > 1 or (chain[-1].result or {}).get("nextCursor") is not None:
                continue
            listed = set(named(chain, "tasks", "taskId"))
            for other, asked, _, task in gets:
                # It was there before the list was read, and after.
                there = other is connection and asked.result is not None and _after(connection, asked, last)
                if there and _after(connection, chain[0], task.made):
                    yield judged(task.id in listed, last, f"the task {task.id!r} can be fetched, but is not listed")


@stated_rule(since="2025-11-25", moves=RUN)
def task_progress_ends(history: History) -> Iterator[Verdict]:
    for connection, task in _tasks(history):
        # Over HTTP, progress and the answer that shows the end come on different streams, and may pass each other.
        if task.ended is None or not is_ordered(connection) or meta.PROGRESS_TOKEN not in task.asked.meta:
            continue
        end = connection.position(task.ended[0])
        late = [event for event in task.asked.progress if connection.position(event) > end]
        yield Verdict(late[0] if late else task.ended[0], "progress of a task after it has ended" if late else None)


@stated_rule(
    since="2025-11-25",
    sentence="Report a task's progress under the token of the request that made it, until the task ends.",
    moves=RUN,
)
def task_progress_token(history: History) -> Iterator[Verdict]:
    for connection, task in _tasks(history):
        token = task.asked.meta.get(meta.PROGRESS_TOKEN)
        for event in notifications(connection, "server", "notifications/progress"):
            params = event.message.get("params")
            # Where the token is wrong, only the related task still tells to which task the progress belongs.
            if isinstance(params, dict) and _related(params) == task.id:
                problem = f"progress of task {task.id!r} has the token {params.get('progressToken')!r}, not {token!r}"
                yield judged(params.get("progressToken") == token, event, problem)
        # Progress that names no task was found by its token, which is then right by itself.
        yield from (held(event) for event in task.asked.progress if _related(event.message.get("params")) is None)
