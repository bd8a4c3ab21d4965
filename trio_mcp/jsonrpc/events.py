"""What is in flight, and what can happen to it: the values that `trio_mcp.jsonrpc.peer.Peer` works with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import attrs

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
    """What a transport counts as under way: as long as anybody keeps it."""

    def keep(self) -> None:
        """One more keeps it."""

    def release(self) -> None:
        """One of them is done with it."""


@attrs.define(eq=False)
class OutgoingRequest:
    """A request of ours in flight.

    Attributes:
        request: The envelope; its id doubles as the progress token.
        wants_progress: Progress notifications for it become events.
        sent: It has been handed to the link, so a cancellation must be told to the peer.
        settled: Its outcome is known; set once.
        waiter: Whatever the session needs to find the waiting call; untouched here.
    """

    request: Request
    wants_progress: bool = False
    sent: bool = False
    settled: bool = False
    waiter: Any = None


@attrs.define(eq=False)
class IncomingRequest:
    """A request of the peer's in flight.

    Attributes:
        request: The envelope.
        cancelled: The peer has cancelled it, or the session is closed: nothing may be sent for it any more.
        answered: Its answer has been given.
        running: Its handler has been started and not yet been reported finished.
        lane: Where it runs besides the limit; None if it counts for that.
        batch: The batch that its answer belongs to, if any.
        metadata: What the transport told of it; untouched here.
        hold: Kept from its arrival until its handler is over, or it is dropped from the queue.
        scope: The cancel scope of its handler, or whatever else cancels it; untouched here.
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

    @property
    def open(self) -> bool:
        """Whether something may still be sent for it."""
        return not (self.cancelled or self.answered)


@attrs.define(eq=False)
class BatchInProgress:
    """The answers of one incoming batch, kept until the last is there (JSON-RPC 2.0, section 6)."""

    waiting: int = 0
    answers: list[Response | ErrorResponse] = attrs.Factory(list)

    def close_one(self, answer: Response | ErrorResponse | None) -> Batch | None:
        self.waiting -= 1
        if answer is not None:
            self.answers.append(answer)
        return Batch(tuple(self.answers)) if not self.waiting and self.answers else None


# --- what can happen ---------------------------------------------------------------------------------------------


@attrs.define
class RequestStarted:
    """Run the handler now, and call `Peer.finished` when its task has ended."""

    incoming: IncomingRequest


@attrs.define
class NotificationReceived:
    """A notification that the bookkeeping has no interest in."""

    notification: Notification


@attrs.define
class Settled:
    """A request of ours has its outcome: a result, the peer's error, or an exception that says why there is neither."""

    outgoing: OutgoingRequest
    outcome: dict[str, Any] | ErrorData | Exception


@attrs.define
class ProgressReceived:
    """Progress on a request of ours that asked for it; the parameters are checked, and have so many bytes."""

    outgoing: OutgoingRequest
    params: dict[str, Any]
    size: int = 0


@attrs.define
class CancelRequested:
    """The peer has cancelled a running request of its own: cancel the handler's scope."""

    incoming: IncomingRequest
    reason: str | None


@attrs.define
class Reply:
    """Send this now."""

    message: Message


@attrs.define
class Fault:
    """Something arrived that belongs to no request, for the protocol-level ``on_error``."""

    error: RemoteProtocolError


Event: TypeAlias = RequestStarted | NotificationReceived | Settled | ProgressReceived | CancelRequested | Reply | Fault
