"""Defines `Sink`, the destination of the messages that a session or a single HTTP exchange sends."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

from trio_mcp.jsonrpc.events import IncomingRequest, OutgoingRequest
from trio_mcp.jsonrpc.messages import RequestId, SessionMessage

__all__ = ["Owner", "SessionSink", "Sink"]

# `Outbox` is the sink of a link. Over HTTP, the sinks are the `StreamRouter` of a legacy session and the exchange of a
# modern POST (docs/design/sessions.md). A session doesn't know which kind of sink it has.

Owner: TypeAlias = OutgoingRequest | IncomingRequest | None
"""The request that a message belongs to; once the request is cancelled, the message need not be sent."""


class Sink(Protocol):
    """A destination for messages. If the link is lost, no method raises: the sink's owner is told elsewhere."""

    @property
    def has_room(self) -> bool:
        """Whether `put` may be called now, for a message that is not urgent and belongs to no request from the peer."""

    async def room(self, related: RequestId | None = None, urgent: bool = False) -> None:
        """Wait until `put` may be called; return at once, without a checkpoint, if it may be called now.

        Args:
            related: The peer's request that the message belongs to; for sinks with a stream for each request.
            urgent: Whether the message is urgent; for sinks that reserve room for urgent messages.

        Cancellation leaves everything as it was.
        """

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        """Send a message for which there is room."""

    def put_control(self, message: SessionMessage) -> bool:
        """Send a message that overtakes others, without waiting for room. Return False if it was dropped."""

    def release(self, request_id: RequestId) -> None:
        """Forget a request from the peer, which will get no response."""

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        """Close a stream, so that the peer reconnects and resumes it.

        Args:
            related: The peer's request whose stream is closed; None for the stream of the session.
            retry: The number of seconds after which the peer should reconnect; None leaves this time to the sink.

        Returns:
            Whether the stream was closed. False if there is no stream that the peer could resume.
        """


# The protocol can be checked at run time, because a session accepts either a sink or a channel, and must tell them
# apart.
@runtime_checkable
class SessionSink(Sink, Protocol):
    """The sink of a whole session; the session closes the sink when it ends."""

    @property
    def waiting(self) -> tuple[int, int]:
        """The numbers of queued messages: first of those that needed room, then of those that overtake them."""

    @property
    def idle(self) -> bool:
        """Whether all messages have been passed on."""

    async def flush(self) -> None:
        """Wait until all messages have been passed on, or no message can be passed on any more."""

    def give_up(self) -> None:
        """Drop all messages, those that are queued and any later ones, and wake up all tasks that wait for the sink."""

    async def aclose(self) -> None:
        """Drop all messages, as in `give_up`, and close the channel or the streams to which messages were passed on."""
