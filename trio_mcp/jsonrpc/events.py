"""Requests in flight and events about them: the values that `trio_mcp.jsonrpc.peer.Peer` works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from trio_mcp import _attrs as attrs
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.messages import Batch, ErrorData, ErrorResponse, Message, Notification, Request, Response
from trio_mcp.types.methods import Lane

__all__ = [
    "BatchInProgress",
    "CancelRequested",
    "Event",
    "Fault",
    "Hold",
    "IncomingRequest",
    "NotificationReceived",
    "OutgoingRequest",
    "ProgressReceived",
    "Reply",
    "RequestStarted",
    "Settled",
]


class Hold(Protocol):
    """A reference count on something that a transport limits, such as the bytes of a request under way."""

    def keep(self) -> None:
        """Add a reference."""

    def release(self) -> None:
        """Drop a reference."""


# Two requests may have the same content, so these objects are compared by identity (`eq=False`).
@attrs.define(eq=False)
class OutgoingRequest:
    """One of our requests in flight.

    Attributes:
        request: The envelope; its id doubles as the progress token.
        wants_progress: Whether progress notifications for it become events.
        sent: Whether it has been handed to the link, so that the peer must be told of a cancellation.
        settled: Whether its outcome is known; set once.
        waiter: The session's object for the waiting call; not used here.
    """

    request: Request
    wants_progress: bool = False
    sent: bool = False
    settled: bool = False
    waiter: Any = None


# At most one of `cancelled` and `answered` is ever set, and it stays set. `running` is about the handler's task, which
# may continue after either; `Peer.finished` resets it.
@attrs.define(eq=False)
class IncomingRequest:
    """One of the peer's requests in flight.

    Attributes:
        request: The envelope.
        metadata: The transport's metadata; not used here.
        cancelled: Whether the peer has cancelled the request, or the session is closed: nothing may be sent for it any
            more.
        answered: Whether the response has been given.
        running: Whether the handler has been started and not yet reported finished.
        lane: The lane with its own limit in which the request runs; None if it counts towards the usual limit.
        batch: The batch that its response belongs to, if any.
        hold: Kept from the arrival of the request until its handler has ended, or it is dropped from the queue.
        scope: The cancel scope of the handler, or another object with a `cancel` method; None before the handler is
            started and after it has ended. Not used here.
        lent: Whether the handler may have kept the scope; not used here.
    """

    request: Request
    metadata: Mapping[str, Any] | None = None
    cancelled: bool = False
    answered: bool = False
    running: bool = False
    lane: Lane | None = None
    batch: BatchInProgress | None = None
    hold: Hold | None = None
    scope: Any = None
    lent: bool = False

    @property
    def open(self) -> bool:
        """Whether a message may still be sent for this request."""
        return not (self.cancelled or self.answered)

    def cancel_handler(self, why: str) -> None:
        """Cancel the handler, if it is running."""
        if self.scope is not None:
            self.scope.cancel(why)


@attrs.define(eq=False)
class BatchInProgress:
    """The responses to one incoming batch, kept until all of them are there (JSON-RPC 2.0, section 6).

    Attributes:
        waiting: How many responses are still missing.
        answers: The responses so far.
    """

    waiting: int = 0
    answers: list[Response | ErrorResponse] = attrs.Factory(list)

    def close_one(self, answer: Response | ErrorResponse | None) -> Batch | None:
        """Record the end of one request, with its response if it gets one; return the batch once it is complete."""
        self.waiting -= 1
        if answer is not None:
            self.answers.append(answer)
        # If there is no response at all, nothing is sent, not even an empty array (JSON-RPC 2.0, section 6).
        return Batch(tuple(self.answers)) if not self.waiting and self.answers else None


# --- events -------------------------------------------------------------------------------------------------------


# `Peer.receive` returns objects of the following classes, in the order in which the session must act on them.
@attrs.define
class RequestStarted:
    """The handler of a request must be run now; when its task has ended, the session calls `Peer.finished`."""

    incoming: IncomingRequest


@attrs.define
class NotificationReceived:
    """A notification arrived, other than a cancellation or progress."""

    notification: Notification


# The event has the `OutgoingRequest` rather than its id: the session finds the waiting call in the request's `waiter`.
@attrs.define
class Settled:
    """One of our requests has its outcome: a result, the peer's error, or an exception if there is neither."""

    outgoing: OutgoingRequest
    outcome: dict[str, Any] | ErrorData | Exception


@attrs.define
class ProgressReceived:
    """Valid progress arrived for one of our requests that asked for it; ``size`` is the message's size in bytes."""

    outgoing: OutgoingRequest
    params: dict[str, Any]
    size: int = 0


@attrs.define
class CancelRequested:
    """The peer has cancelled one of its running requests; the session cancels the handler's scope."""

    incoming: IncomingRequest
    reason: str | None


@attrs.define
class Reply:
    """A message to send now."""

    message: Message


@attrs.define
class Fault:
    """Something invalid arrived that belongs to no request; the session reports it to ``on_error``."""

    error: RemoteProtocolError


Event: TypeAlias = RequestStarted | NotificationReceived | Settled | ProgressReceived | CancelRequested | Reply | Fault
