"""Tasks of 2025-11-25: when a client may ask for one, and how it ends one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from trio_mcp.conformance.rules.clients.shared import tools_at
from trio_mcp.conformance.rules.common import declares
from trio_mcp.conformance.rules.history import Connection, History
from trio_mcp.conformance.rules.model import Verdict, judged
from trio_mcp.conformance.rules.stated import stated_rule

REVISIONS: Final = ["2025-11-25"]


def _connections(history: History) -> Iterator[Connection]:
    return (each for each in history if each.revision == "2025-11-25" and each.hello is not None)


@stated_rule(since="2025-11-25", sentence="A client makes tasks only of requests for which the server has declared it.")
def client_task_within_capabilities(history: History) -> Iterator[Verdict]:
    """Judge each tool call."""
    for connection in _connections(history):
        offered = declares(connection.server_capabilities, "tasks.requests.tools.call")
        for asked in connection.requests:
            if asked.method == "tools/call":
                kept = offered or "task" not in asked.params
                yield judged(kept, asked.event, "it is to be a task, which the server does not declare")


@stated_rule(
    since="2025-11-25",
    sentence="A client calls a tool as a task if the tool requires it, and only if the tool allows it.",
)
def client_task_tool_support(history: History) -> Iterator[Verdict]:
    """Judge each call of a listed tool of a server that can run tools as tasks."""
    for connection in _connections(history):
        # Without the capability no tool may be a task, whatever it says itself, and that is the rule above.
        if not declares(connection.server_capabilities, "tasks.requests.tools.call"):
            continue
        for asked in connection.requests:
            tool = None
            if asked.method == "tools/call":
                tool = tools_at(connection, asked.event).get(str(asked.params.get("name")))
            # Of a tool that was not listed the client can't know, and may call it as it was told.
            if tool is not None:
                execution = tool.get("execution")
                support = execution.get("taskSupport", "forbidden") if isinstance(execution, dict) else "forbidden"
                kept = support == "optional" or ("task" in asked.params) == (support == "required")
                yield judged(kept, asked.event, f"taskSupport of this tool is {support!r:.40}")


@stated_rule(
    who="client", since="2025-11-25", sentence="A client cancels a task with tasks/cancel, not with a notification."
)
def client_task_cancelled_by_method(history: History) -> Iterator[Verdict]:
    """Judge each cancellation by whether its request had become a task before."""
    for connection in _connections(history):
        # A server may ignore `task` and just run the tool; then the notification is the right way.
        tasks = {
            (type(asked.id), asked.id): connection.position(asked.answers[0])
            for asked in connection.requests
            if "task" in asked.params and asked.result is not None and "task" in asked.result
        }
        for event in connection.notifications("client", "notifications/cancelled"):
            named = (event.message.get("params") or {}).get("requestId")
            began = tasks.get((type(named), named)) if isinstance(named, (int, str)) else None
            # Until the response comes the client can't know the task's id, so a notification that crosses it is right.
            kept = began is None or began > connection.position(event)
            yield judged(kept, event, "it cancels a task")
