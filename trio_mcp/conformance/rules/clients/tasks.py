"""Rules for the tasks of 2025-11-25: when a client may ask for one, and how it cancels one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.clients.shared import tools_at
from trio_mcp.conformance.rules.common import declares, is_same_id
from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest, params_of
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, each, notified
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event

REVISIONS: Final = ["2025-11-25"]


def _calls(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield the tool calls on connections that agreed on revision 2025-11-25."""
    for connection, asked in history.requests("tools/call"):
        if connection.revision in REVISIONS and connection.hello is not None:
            yield asked.event, connection, asked


@stated_rule(sentence="A client makes tasks only of requests for which the server has declared it.")
@each(_calls)
def client_task_within_capabilities(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    """Check that a tool call asks for a task only if the server declares tasks for tool calls."""
    kept = "task" not in asked.params or declares(connection.server_capabilities, "tasks.requests.tools.call")
    return None if kept else "the client asked for a task, but the server did not declare tasks for tool calls"


@stated_rule(
    sentence="A client calls a tool as a task if the tool requires it, and only if the tool allows it.",
)
@each(_calls)
def client_task_tool_support(event: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    """Check that each call of a listed tool asks for a task as the tool's ``taskSupport`` requires or allows."""
    # Without the capability no tool may be called as a task, whatever the tool itself says; that is left to
    # `client_task_within_capabilities`.
    offered = declares(connection.server_capabilities, "tasks.requests.tools.call")
    tool = tools_at(connection, event).get(str(asked.params.get("name"))) if offered else None
    # A client can't know whether a tool that was not listed supports tasks, so it may call the tool either way.
    if tool is None:
        return UNDECIDED
    support = object_of(tool.get("execution")).get("taskSupport", "forbidden")
    kept = support == "optional" or ("task" in asked.params) == (support == "required")
    return None if kept else f"the call does not comply with the taskSupport of the tool: {support!r:.40}"


@stated_rule(who="client")
@each(notified("client", "notifications/cancelled"))
def client_task_cancelled_by_method(event: Event, connection: Connection) -> Opinion:
    """Check that no notifications/cancelled names a request that had already become a task."""
    if connection.revision not in REVISIONS or connection.hello is None:
        return UNDECIDED
    named = params_of(event).get("requestId")
    # A server may ignore `task` and just run the tool. Then there is no task, and the notification is the right way to
    # cancel.
    tasks = [a for a in connection.requests if "task" in a.params and "task" in (a.result or {})]
    # Until the response comes the client can't know the task's id, so a notification that crosses the response is
    # right.
    known = [a.id for a in tasks if connection.position(a.answers[0]) < connection.position(event)]
    return "the notification cancels a task" if any(is_same_id(asked_id, named) for asked_id in known) else None
