"""Rules for servers over WebSocket, which is a transport of one's own to the specification."""

from __future__ import annotations

from collections.abc import Iterator

from trio_mcp.testing.rules.history import History, is_notification, is_request, is_response
from trio_mcp.testing.rules.model import Verdict, judged, rule


@rule(
    "MUST",
    "server",
    "basic/transports#custom-transports",
    "What a server sends over a WebSocket are messages.",
    moves=["call-tool", "list-all", "ping"],
)
def websocket_messages(history: History) -> Iterator[Verdict]:
    """Judge each message of the WebSocket; batches are judged by other rules."""
    for connection in history:
        if connection.transport == "websocket":
            for event in connection.events:
                if event.sender == "server" and event.kind in ("message", "text"):
                    found = event.message
                    kept = isinstance(found, list) or is_request(found) or is_notification(found) or is_response(found)
                    yield judged(kept, event, "it is not a message of JSON-RPC")
