"""Shared by the rules for clients: connections by era, and messages by order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.history import Connection, History, RecordedRequest
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types.versions import REVISIONS

# The kit's own server may answer with a version that doesn't exist, and what a client does then has rules of its own.
SPEAKABLE: Final = frozenset(REVISIONS)


def parts(connection: Connection) -> Iterator[tuple[Event, Any]]:
    """Yield each message of the client with its event; of a batch, each part."""
    for event in connection.messages("client"):
        for message in event.message if isinstance(event.message, list) else [event.message]:
            yield event, message


def legacy(history: History) -> Iterator[Connection]:
    """Yield the connections on which the legacy era was agreed."""
    return (connection for connection in history if not connection.modern and connection.hello is not None)


def modern(history: History) -> Iterator[Connection]:
    """Yield the connections on which the client speaks the modern era."""
    return (connection for connection in history if connection.modern)


def over_http(connections: Iterator[Connection]) -> Iterator[Connection]:
    """Yield those that are over Streamable HTTP."""
    return (connection for connection in connections if connection.transport == "http")


def after(connection: Connection, event: Event | None) -> Iterator[tuple[Event, Any]]:
    """Yield the messages that the client sent after an event."""
    place = -1 if event is None else connection.position(event)
    return ((sent, message) for sent, message in parts(connection) if connection.position(sent) > place)


def tools_at(connection: Connection, event: Event) -> dict[str, dict[str, Any]]:
    """Return the tools that the server had listed when something was sent, by name."""
    found: dict[str, dict[str, Any]] = {}
    for asked in connection.requests:
        tools = asked.result.get("tools") if asked.method == "tools/list" and asked.result is not None else None
        if isinstance(tools, list) and connection.position(asked.answers[0]) < connection.position(event):
            # Tool by tool, because a page has only some of them, and says nothing of the others.
            found |= {str(tool.get("name")): tool for tool in tools if isinstance(tool, dict)}
    return found


def retries(connection: Connection) -> Iterator[tuple[RecordedRequest, RecordedRequest]]:
    """Yield each request that was answered with questions, and the request that retries it.

    A retry is known by the state that it brings back, or by the first answers after it for the same thing.
    """
    asking: list[RecordedRequest] = []
    for asked in connection.requests:
        if "requestState" in asked.params or "inputResponses" in asked.params:
            same = [each for each in asking if each.method == asked.method and _subject(each) == _subject(asked)]
            state = asked.params.get("requestState")
            # A state that was changed, or belongs to none, still comes with a request for the same thing; the oldest
            # open round is taken.
            found = [each for each in same if (each.result or {}).get("requestState") == state] or same
            if found:
                yield found[0], asked
                # A round is retried once, so the next retry belongs to the next.
                asking.remove(found[0])
        if asked.result is not None and asked.result.get("resultType") == "input_required":
            asking.append(asked)


def _subject(asked: RecordedRequest) -> Any:
    # Arguments are left out: a client may write them otherwise the second time, and still mean the same call.
    return asked.params.get("name", asked.params.get("uri"))
