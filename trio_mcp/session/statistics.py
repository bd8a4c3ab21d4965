"""Defines the statistics of a session, and the record of a request; imported when a program first asks for either."""

from __future__ import annotations

from typing import Literal

from trio_mcp import _attrs as attrs

__all__ = ["RequestRecord", "SessionStatistics"]


@attrs.frozen
class SessionStatistics:
    """A snapshot of what a session is doing.

    Attributes:
        outgoing: The number of our requests that wait for their response.
        incoming: The number of the peer's requests, running or queued, without a response or a cancellation.
        running: The number of handlers that run, not counting ``subscriptions/listen``.
        queued: The number of the peer's requests that wait until another handler has ended.
        listening: The number of the peer's ``subscriptions/listen`` requests that are open.
        bulk_waiting: The number of messages that wait for the link.
        control_waiting: The number of control messages that wait for the link, and will overtake the others:
            cancellations, and responses sent without a handler.
        flushed: Whether the link has accepted all messages: none is waiting, and none is being written.
        notices_waiting: The number of notifications and faults that wait for their handler.
        closed: Whether no more calls can be made.
    """

    outgoing: int
    incoming: int
    running: int
    queued: int
    listening: int
    bulk_waiting: int
    control_waiting: int
    flushed: bool
    notices_waiting: int
    closed: bool


@attrs.frozen
class RequestRecord:
    """One completed request, as the ``on_request`` hook sees it.

    Attributes:
        method: The request's method.
        direction: ``"out"`` for our requests, ``"in"`` for the peer's.
        duration: Seconds from the start of the request to its outcome.
        outcome: ``"ok"``, ``"error"`` (an error response), ``"cancelled"``, ``"timeout"`` or ``"lost"`` (the link
            failed, or the response was malformed).
    """

    method: str
    direction: Literal["in", "out"]
    duration: float
    outcome: Literal["ok", "error", "cancelled", "timeout", "lost"]
