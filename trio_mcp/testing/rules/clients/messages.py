"""Messages: what a client writes is one, and has an id of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trio_mcp.testing.rules.clients.shared import parts
from trio_mcp.testing.rules.history import History, is_notification, is_request, is_response
from trio_mcp.testing.rules.model import Verdict, judged, rule
from trio_mcp.types.versions import REVISIONS


@rule(
    "MUST",
    "client",
    "basic#messages",
    "What a client sends is a valid message of JSON-RPC 2.0.",
    older="basic#messages",
)
def client_messages_valid(history: History) -> Iterator[Verdict]:
    """Judge each JSON value of the client; a batch by its parts."""
    for connection in history:
        for event, message in parts(connection):
            known = is_request(message) or is_notification(message) or is_response(message)
            kept = known and message.get("jsonrpc") == "2.0"
            yield judged(kept, event, "it is neither a request nor a notification nor a response of JSON-RPC 2.0")


@rule(
    "MUST",
    "client",
    "basic#requests",
    "The id of a request was not used before by the same client in the same session.",
)
def client_ids_unique(history: History) -> Iterator[Verdict]:
    """Judge each request; 1 and "1" are different ids."""
    for connection in history:
        seen: set[tuple[type, Any]] = set()
        for asked in connection.requests:
            key = (type(asked.id), asked.id)
            yield judged(key not in seen, asked.event, f"the id {asked.id!r} was used before")
            seen.add(key)


@rule(
    "MUST",
    "client",
    "basic#messages",
    "A client sends no batches, which only 2025-03-26 has.",
    revisions=[revision for revision in REVISIONS if revision != "2025-03-26"],
)
def client_sends_no_batch(history: History) -> Iterator[Verdict]:
    """Judge each JSON value of the client."""
    for connection in history:
        if connection.revision != "2025-03-26":
            for event in connection.messages("client"):
                yield judged(not isinstance(event.message, list), event, "it is a batch")


@rule(
    "MUST",
    "client",
    "basic/transports/stdio",
    "A client writes nothing to a server's input that is not a message.",
    older="basic/transports#stdio",
)
def stdin_clean(history: History) -> Iterator[Verdict]:
    """Judge all that came over stdio, or another stream of lines."""
    for connection in history:
        if connection.transport in ("stdio", "memory", "tcp", "unix"):
            for event in connection.events:
                if event.sender == "client" and event.kind in ("message", "text"):
                    yield judged(event.kind == "message", event, "it is not JSON")
