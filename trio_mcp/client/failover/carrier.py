"""The state of one open link of a client that can reach its server in several ways."""

from __future__ import annotations

from trio_mcp.client.failover.open_link import OpenLink
from trio_mcp.jsonrpc.messages import ErrorResponse, RequestId, Response, SessionMessage, TransportFailure

__all__ = ["Carrier", "OwnOutcome"]

OwnOutcome = Response | ErrorResponse | TransportFailure
"""The outcome of a request that the failover has sent itself, without the session."""


class Carrier:
    """The state of one open link. No task waits in the middle of a change to it.

    Args:
        place: The place of the link's way to the server in the list of ways; 0 is the best.
        name: The name of that way.
        link: The I/O of the link.

    Attributes:
        in_flight: The session's requests that the link was given, by id, until they get a response or are cancelled.
        half_sent: The id of the request that is being handed to the link right now; None if there is no such request.
        in_doubt: Requests that were tried on the link too often, by id, each with its last failure: they fail if the
            link turns out to work, and are repeated on another link if it does not.
        own: The failover's own requests, which the session never sees, by id: the outcome, or None while it is awaited.
        received: How many valid messages have arrived that show that the link works in both directions.
        garbage: How many invalid messages have arrived since the last valid one.
        opened_here: Whether the failover, rather than the session, has opened the session on this link.
        lost: Why the link can't be used any more; None while it can.
        left: Why the link must carry no more requests, although it still works; None if there is no such reason.
        blamed: The last failure of a call since the link gave a sign of life; None if no call has failed since.
        failed: How many times in a row calls have failed although the link gave a sign of life afterwards.
        failing: Whether the link was left because calls kept failing on it.
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
