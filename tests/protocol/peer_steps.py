"""Steps that the tests of `Peer` have in common."""

from __future__ import annotations

from typing import Any

from trio_mcp.jsonrpc.events import Event, IncomingRequest, OutgoingRequest, RequestStarted
from trio_mcp.jsonrpc.messages import Notification, Request
from trio_mcp.jsonrpc.peer import Peer

__all__ = ["cancelled", "only", "progress", "sent", "started"]


def started(peer: Peer, request_id: int | str = 1, method: str = "x") -> IncomingRequest:
    (event,) = peer.receive(Request(request_id, method))
    assert isinstance(event, RequestStarted)
    return event.incoming


def sent(peer: Peer, method: str = "x", *, wants_progress: bool = False) -> OutgoingRequest:
    outgoing = peer.open_request(method, None, wants_progress=wants_progress)
    outgoing.sent = True
    return outgoing


def cancelled(request_id: Any, **params: Any) -> Notification:
    return Notification("notifications/cancelled", {"requestId": request_id, **params})


def progress(token: Any, value: Any = 1) -> Notification:
    return Notification("notifications/progress", {"progressToken": token, "progress": value})


def only(events: tuple[Event, ...], kind: type[Any]) -> Any:
    (event,) = events
    assert isinstance(event, kind)
    return event
