"""The state of one open link of a list of ways."""

from __future__ import annotations

from trio_mcp.client.failover.open_link import OpenLink
from trio_mcp.jsonrpc.messages import ErrorResponse, RequestId, Response, SessionMessage, TransportFailure

__all__ = ["Carrier", "OwnOutcome"]

OwnOutcome = Response | ErrorResponse | TransportFailure
"""The end of a request of our own."""


class Carrier:
    """The state of one open link. It changes in single steps, and never during a wait.

    Args:
        place: The place of its way in the list; 0 is the best.
        name: The name of its way.
        link: The I/O of the link.

    Attributes:
        in_flight: The session's requests that the link was given, by id, until they get a response or are cancelled.
        half_sent: The request that is being handed over at this moment; None if there is no such request.
        in_doubt: Requests that were tried here too often, by id, each with its last failure: they fail if the link
            turns out to work, and are repeated elsewhere if it does not.
        own: Our own requests that wait for their outcome, and those outcomes; the session sees neither.
        received: How many valid messages have come.
        garbage: How many of the last messages in a row were invalid.
        opened_here: Whether we have opened the session here ourselves, and have told the server that it is open.
        lost: Why the link can't be used any more; None while it can.
        left: Why the link must carry no more requests, although it still works; None if there is no such reason.
        blamed: The last failure of a call since the link gave a sign of life; None if no call has failed since.
        failed: How many times in a row calls have failed on the link, each followed by a sign of life from it.
        failing: Whether the link was left because of such failures.
        suspected: Whether an exchange failed in a way that puts the whole link in doubt.
        flushing: Whether requests are being repeated on the link; nothing else may be sent meanwhile.
    """

    def __init__(self, place: int, name: str, link: OpenLink) -> None:
        self.place = place
        self.name = name
        self.link = link
        self.in_flight: dict[RequestId, SessionMessage] = {}
        self.half_sent: RequestId | None = None
        self.in_doubt: dict[RequestId, tuple[SessionMessage, SessionMessage]] = {}
        self.own: dict[RequestId, OwnOutcome | None] = {}
        self.received = self.garbage = self.failed = 0
        self.opened_here = self.failing = self.suspected = self.flushing = False
        self.lost: Exception | None = None
        self.left: Exception | None = None
        self.blamed: Exception | None = None
