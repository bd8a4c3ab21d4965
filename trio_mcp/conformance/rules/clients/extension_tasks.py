"""Rules for clients with the tasks extension (``io.modelcontextprotocol/tasks``), which needs revision 2026-07-28."""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, object_of
from trio_mcp.conformance.rules.clients.shared import http_requests, modern
from trio_mcp.conformance.rules.common import MODERN, is_same_id, notifications
from trio_mcp.conformance.rules.extension_tasks import CHANGED, TASK_METHODS, is_created
from trio_mcp.conformance.rules.history import (
    Connection,
    Exchange,
    History,
    RecordedRequest,
    is_request,
    params_of,
)
from trio_mcp.conformance.rules.model import Verdict, broken, judged, rule
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each, notified
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.headers import decode_value

EARLY: Final = 0.5
"""The share of the suggested interval below which a poll is early (arbitrary): messages take different times."""


def _told(connection: Connection, task_id: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return what the server told of a task, in order, each with its position."""
    every = connection.kept("told of tasks", connection.events[0], lambda: _every_told(connection))
    return every.get(str(task_id), [])


def _every_told(connection: Connection) -> dict[str, list[tuple[int, dict[str, Any]]]]:
    found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for asked in connection.requests:
        result = asked.result or {}
        created = asked.method == "tools/call" and is_created(result)
        if created or (asked.method == "tasks/get" and result):
            task_id = str((result if created else asked.params).get("taskId"))
            found.setdefault(task_id, []).append((connection.position(asked.answers[0]), result))
    for event in notifications(connection, "server", CHANGED):
        params = params_of(event)
        found.setdefault(str(params.get("taskId")), []).append((connection.position(event), params))
    for told in found.values():
        told.sort(key=lambda each: each[0])
    return found


def task_answers(connection: Connection) -> Iterator[tuple[RecordedRequest, dict[str, Any], dict[str, Any]]]:
    """Yield each answer to an input request of a task: the update, the input request, and the answer."""
    for asked in connection.requests if connection.modern else ():
        if asked.method == "tasks/update":
            place = connection.position(asked.event)
            wanted: dict[str, Any] = {}
            for said, state in _told(connection, asked.params.get("taskId")):
                wanted |= object_of(state.get("inputRequests")) if said < place else {}
            for key, result in object_of(asked.params.get("inputResponses")).items():
                if isinstance(question := wanted.get(key), dict) and isinstance(result, dict):
                    yield asked, question, result


def _updates(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield the updates of tasks."""
    for connection in modern(history):
        for asked in connection.requests:
            if asked.method == "tasks/update" and isinstance(asked.params.get("inputResponses"), dict):
                yield asked.event, connection, asked


@stated_rule()
def client_ext_task_elsewhere_refused(history: History) -> Iterator[Verdict]:
    """Check that a client does not ask about a task that took the place of a result which can't be one."""
    for connection in modern(history):
        for asked in connection.requests:
            task_id = (asked.result or {}).get("taskId")
            if asked.method == "tools/call" or asked.method in TASK_METHODS or not is_created(asked.result):
                continue
            used = next((each for each in connection.requests if _is_about(each, task_id)), None)
            if used is not None:
                yield broken(used.event, f"the client took the result of {asked.method} for a task")
            else:
                yield Verdict(asked.answers[0])


def _is_about(asked: RecordedRequest, task_id: Any) -> bool:
    # A client may cancel what it does not want, even if the server should never have created it.
    by_method = asked.method in ("tasks/get", "tasks/update") and asked.params.get("taskId") == task_id
    return by_method or task_id in items_of(asked.params, "notifications", "taskIds")


def _polls(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest, RecordedRequest]]:
    """Yield each pair of polls of a task between which neither side told the other of the task."""
    for connection in modern(history):
        news = [connection.position(event) for event in notifications(connection, "server", CHANGED)]
        before: dict[str, RecordedRequest] = {}
        for asked in connection.requests:
            task_id = str(asked.params.get("taskId"))
            # After an update or a cancellation a client may look at once, since the state may have changed.
            last = before.pop(task_id, None) if asked.method in TASK_METHODS else None
            if asked.method == "tasks/get":
                before[task_id] = asked
                start, end = connection.position((last or asked).event), connection.position(asked.event)
                if last is not None and not any(start < place < end for place in news):
                    yield asked.event, connection, last, asked


@stated_rule()
@each(_polls)
def client_ext_task_poll_interval(
    event: Event, connection: Connection, last: RecordedRequest, asked: RecordedRequest
) -> Opinion:
    """Check that two polls of a task are at least half the interval apart that the server last suggested."""
    place = connection.position(event)
    told = _told(connection, asked.params.get("taskId"))
    earlier = bisect.bisect_left(told, place, key=lambda each: each[0])
    interval = told[earlier - 1][1].get("pollIntervalMs") if earlier else None
    if not isinstance(interval, (int, float)):
        return UNDECIDED
    waited = event.time - last.event.time
    kept = waited >= EARLY * interval / 1000
    return None if kept else f"the client polled again after {waited:.3f} s, not after {interval / 1000:g} s"


@stated_rule()
def client_ext_task_answers_once(history: History) -> Iterator[Verdict]:
    """Check that an input request of a task is not answered again once the server has acknowledged an answer."""
    done: dict[tuple[int, str, str], Event] = {}
    for event, connection, asked in _updates(history):
        for key in asked.params["inputResponses"]:
            name = connection.number, str(asked.params.get("taskId")), key
            # An answer may be sent again if its update failed, or might have been lost.
            again = name in done and connection.position(done[name]) < connection.position(event)
            yield judged(not again, event, f"the client answered the input request {key!r:.60} again")
            if asked.result is not None:
                done.setdefault(name, asked.answers[0])


@rule(
    "MUST",
    "client",
    "extensions/tasks#request-1",
    "A client answers only what a task has asked, under its key.",
    revisions=MODERN,
)
@each(_updates)
def client_ext_task_answers_known(event: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    """Check that each key of an update was among the input requests of its task."""
    told = [
        state for place, state in _told(connection, asked.params.get("taskId")) if place < connection.position(event)
    ]
    # The client may know from another connection what the task asked.
    if not told:
        return UNDECIDED
    # Whether a request is still outstanding is left out: the client can't know what has changed since its last poll.
    known = {key for state in told for key in object_of(state.get("inputRequests"))}
    wrong = sorted(asked.params["inputResponses"].keys() - known)
    return f"the task never asked for {wrong[0]!r:.60}" if wrong else None


@stated_rule()
@each(notified("client", "notifications/cancelled"))
def client_ext_task_cancelled_by_method(event: Event, connection: Connection) -> Opinion:
    """Check that no notifications/cancelled names a call that had already become a task."""
    if not connection.modern:
        return UNDECIDED
    named = params_of(event).get("requestId")
    # Until the response comes the client can't know that there is a task, so a notification that crosses it is right.
    tasks = [asked for asked in connection.requests if is_created(asked.result)]
    known = [a for a in tasks if connection.position(a.answers[0]) < connection.position(event)]
    return "the notification cancels a task" if any(is_same_id(asked.id, named) for asked in known) else None


@stated_rule(sentence="A client repeats the id of the task in Mcp-Name in each request about a task.")
@each(http_requests(modern))
def client_ext_task_name_header(event: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that each POST of a request about a task has the task's id in its Mcp-Name header."""
    body = exchange.sent[0].message if exchange.sent else None
    if not is_request(body) or body["method"] not in TASK_METHODS:
        return UNDECIDED
    header, task_id = event.headers.get("mcp-name"), object_of(body.get("params")).get("taskId")
    try:
        kept = header is not None and decode_value(header) == task_id
    except ValueError:
        kept = False
    return None if kept else "the header Mcp-Name does not repeat the id of the task"
