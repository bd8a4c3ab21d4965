"""Rules for a client's messages: everything it writes is a valid message, and each request has an id of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.clients.shared import sent
from trio_mcp.conformance.rules.history import (
    Connection,
    History,
    RecordedRequest,
    id_key,
    is_notification,
    is_request,
    is_response,
)
from trio_mcp.conformance.rules.model import Verdict, judged
from trio_mcp.conformance.rules.occasions import Opinion, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event


@stated_rule(who="client", older="basic#messages")
@each(sent)
def client_messages_valid(event: Event, _: Connection) -> Opinion:
    """Require that each JSON value from the client, or each part of a batch, is a JSON-RPC 2.0 message."""
    message = event.message
    known = is_request(message) or is_notification(message) or is_response(message)
    kept = known and message.get("jsonrpc") == "2.0"
    return None if kept else "the message is not a valid request, notification or response of JSON-RPC 2.0"


@stated_rule(
    who="client",
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    sentence="A client uses the id of a request once in a session; in the modern era, again only after the response.",
)
def client_ids_unique(history: History) -> Iterator[Verdict]:
    """Check that no request reuses an id; 1 and "1" differ. In the modern era, ids of ended requests are free again."""
    for connection in history:
        seen: dict[Any, RecordedRequest] = {}
        for asked in connection.requests:
            before = seen.get(id_key(asked.id))
            # Until 2025-11-25 an id is used once in a session; 2026-07-28 forbids only the ids of requests that have no
            # response yet (Requests).
            kept = before is None or (connection.modern and _is_over(connection, before, asked))
            yield judged(kept, asked.event, f"the id {asked.id!r} was used before")
            seen[id_key(asked.id)] = asked


def _is_over(connection: Connection, before: RecordedRequest, asked: RecordedRequest) -> bool:
    """Return whether a request had ended, in any way, when another was sent."""
    exchange = connection.exchanges.get(before.event.exchange or 0)
    # A client that has cancelled a request, or closed its stream, waits for no response, so the id is as free as after
    # a response.
    ends = [*before.answers[:1], before.cancelled, None if exchange is None else exchange.end]
    place = connection.position(asked.event)
    return any(connection.position(event) < place for event in ends if event is not None)


# The revisions in which a client may send batches. 2024-11-05 doesn't mention them, but JSON-RPC itself allows them.
BATCHES: Final = ("2024-11-05", "2025-03-26")


@stated_rule(who="client", since="2025-06-18", sentence="A client sends no batches, which only 2025-03-26 has.")
def client_sends_no_batch(history: History) -> Iterator[Verdict]:
    """Check that the client sends no batch in a revision without batches."""
    for connection in history:
        if connection.revision not in BATCHES:
            for event in connection.messages("client"):
                yield judged(not isinstance(event.message, list), event, "the message is a batch")


@stated_rule()
def stdin_clean(history: History) -> Iterator[Verdict]:
    """Check that everything the client wrote is JSON, over stdio or another transport that carries lines."""
    for connection in history:
        if connection.transport in ("stdio", "memory", "tcp", "tls", "unix"):
            for event in connection.events:
                if event.sender == "client" and event.kind in ("message", "text"):
                    # `client_messages_valid` judges JSON that isn't a message.
                    yield judged(event.kind == "message", event, "the line is not JSON")
