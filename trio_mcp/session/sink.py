"""Where the messages of one side go: what both directions of a session, and a single exchange of HTTP, write to."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

from trio_mcp.jsonrpc.events import IncomingRequest, OutgoingRequest
from trio_mcp.jsonrpc.messages import RequestId, SessionMessage

__all__ = ["Owner", "SessionSink", "Sink"]

Owner: TypeAlias = OutgoingRequest | IncomingRequest | None
"""The request that a message belongs to: once that is given up, the message is not worth sending."""


class Sink(Protocol):
    """A way out. Nothing here raises when the peer is gone: its owner learns of that elsewhere."""

    @property
    def has_room(self) -> bool:
        """Whether `put` may be called now, for a message that belongs to no request of the peer's."""

    async def room(self, related: RequestId | None = None) -> None:
        """Wait until `put` may be called; return at once, without a checkpoint, if it may be called now.

        Args:
            related: The peer's request that the message belongs to, where each has a way of its own.

        Cancellation leaves everything as it was.
        """

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        """Hand over a message for which there is room."""

    def put_control(self, message: SessionMessage) -> bool:
        """Hand over a message that overtakes others, without waiting for room; False if it was dropped."""

    def release(self, request_id: RequestId) -> None:
        """Hear that a request of the peer's will get no answer."""

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        """Close the stream of a request of the peer's, or of what belongs to none, so that the peer comes back for it.

        Args:
            related: The request.
            retry: After so many seconds; None leaves that to the sink.

        Returns:
            Whether it is closed: not where there is none that one can come back to.
        """


@runtime_checkable
class SessionSink(Sink, Protocol):
    """The way out of a whole session, which closes it at its end."""

    @property
    def waiting(self) -> tuple[int, int]:
        """How many messages wait here: those that need room, and those that overtake them."""

    @property
    def idle(self) -> bool:
        """Whether everything has been handed on."""

    async def flush(self) -> None:
        """Wait until everything has been handed on, or nothing can be any more."""

    def give_up(self) -> None:
        """Drop what is here and what comes, and keep nobody waiting."""

    async def aclose(self) -> None:
        """Give up, and close what is below."""
