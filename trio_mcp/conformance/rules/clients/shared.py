"""Helpers that the rules for clients share: connections by era, messages in order, and common occasions for rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from trio_mcp.conformance.members import objects_of
from trio_mcp.conformance.rules.common import messages_of, subject_of
from trio_mcp.conformance.rules.history import (
    Connection,
    Exchange,
    History,
    RecordedRequest,
    is_request,
)
from trio_mcp.conformance.rules.occasions import Occasions
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.http.param_headers import ParameterHeader, parameter_headers
from trio_mcp.types.versions import REVISIONS

# The versions that exist. The kit's own server may respond with one that doesn't, and most rules skip such a
# connection: what a client does then is judged by separate rules.
SPEAKABLE: Final = frozenset(REVISIONS)


def legacy(history: History) -> Iterator[Connection]:
    """Yield the connections on which the legacy era was agreed."""
    return (connection for connection in history if not connection.modern and connection.hello is not None)


def modern(history: History) -> Iterator[Connection]:
    """Yield the connections on which the client speaks the modern era."""
    return (connection for connection in history if connection.modern)


def over_http(connections: Iterator[Connection]) -> Iterator[Connection]:
    """Yield only the connections that use Streamable HTTP."""
    return (connection for connection in connections if connection.transport == "http")


def greeted(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest]]:
    """Yield the handshake of each connection in the legacy era: its result, the connection, and its request."""
    for connection in legacy(history):
        if connection.hello is not None:
            yield connection.hello.answers[0], connection, connection.hello


def sent(history: History) -> Iterator[tuple[Event, Connection]]:
    """Yield the messages that clients sent, with the parts of a batch one by one."""
    return ((event, connection) for connection in history for event in messages_of(connection, "client"))


def http_requests(connections: Callable[[History], Iterator[Connection]]) -> Occasions[Connection, Exchange]:
    """Return, as occasions for a rule, the HTTP requests on the selected connections."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
        for connection in over_http(connections(history)):
            for exchange in connection.exchanges.values():
                yield exchange.request, connection, exchange

    return occasions


def called_over_http(history: History) -> Iterator[tuple[Event, Connection, dict[str, Any]]]:
    """Yield the tool calls over HTTP in the modern era: the HTTP request, the connection and the call's parameters."""
    for event, connection, exchange in http_requests(modern)(history):
        body = exchange.sent[0].message if exchange.sent else None
        if is_request(body) and body["method"] == "tools/call" and isinstance(body.get("params"), dict):
            yield event, connection, body["params"]


def after(connection: Connection, event: Event) -> Iterator[Event]:
    """Yield the messages that the client sent after an event, with the parts of a batch one by one."""
    place = connection.position(event)
    return (each for each in messages_of(connection, "client") if connection.position(each) > place)


def tools_at(connection: Connection, event: Event) -> dict[str, dict[str, Any]]:
    """Return the tools, by name, that the server had listed by the time of an event."""
    found: dict[str, dict[str, Any]] = {}
    place = connection.position(event)
    for asked in connection.requests:
        if asked.method == "tools/list" and asked.result and connection.position(asked.answers[0]) < place:
            # Tools are added page by page, because one page lists only some of them.
            found |= {str(tool.get("name")): tool for tool in objects_of(asked.result.get("tools"))}
    return found


def parameters_of(tool: dict[str, Any]) -> Sequence[ParameterHeader] | None:
    """Return the parameters of a tool that are sent as headers, or None if their annotations are invalid."""
    try:
        return parameter_headers(tool.get("inputSchema"))
    except ValueError:
        return None


def retries(connection: Connection) -> Iterator[tuple[RecordedRequest, RecordedRequest]]:
    """Yield each request to which the server responded with questions, and the request that retries it.

    A retry is recognized by the request state that it sends back, or else as the first request with answers that has
    the same method and subject.
    """
    asking: list[RecordedRequest] = []
    for asked in connection.requests:
        if "requestState" in asked.params or "inputResponses" in asked.params:
            # Arguments are not compared, because a client may write them differently the second time and still mean the
            # same call.
            same = [each for each in asking if each.method == asked.method and subject_of(each) == subject_of(asked)]
            state = asked.params.get("requestState")
            # If the state was changed, or belongs to no request, the oldest request that waits for a retry with the
            # same subject is taken.
            found = [each for each in same if (each.result or {}).get("requestState") == state] or same
            if found:
                yield found[0], asked
                # A request is retried only once, so the next retry belongs to another request.
                asking.remove(found[0])
        if asked.result is not None and asked.result.get("resultType") == "input_required":
            asking.append(asked)
