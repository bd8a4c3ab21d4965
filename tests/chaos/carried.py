"""What the client of a session has seen: events, the connections that carried them, questions, and calls."""

from __future__ import annotations

import time
from typing import Any

import attrs


@attrs.frozen
class Received:
    """An event as it came: its id, when, and its data, which are empty if it only gave an id."""

    id: str
    at: float
    data: bytes = b""


@attrs.define(eq=False)
class Carried:
    """A connection that carried a stream, or a part of one.

    Attributes:
        cursor: The ``Last-Event-ID`` of the GET; empty for a POST, and for a GET that resumes nothing.
        method: ``POST`` or ``GET``.
        status: The status; 0 if none came.
        began: When the request was sent, on the monotonic clock.
        ended: When it ended.
        cut: Whether the client has broken it.
        events: The events, as they came.
        note: The error by which it ended, or the body of a response without a stream.
    """

    method: str
    cursor: str = ""
    status: int = 0
    began: float = attrs.Factory(time.monotonic)
    ended: float = 0.0
    cut: bool = False
    events: list[Received] = attrs.Factory(list)
    note: str = ""


@attrs.define(eq=False)
class Asked:
    """A question of the server: its token, and when its answer was accepted, 0 if it never was."""

    token: str
    accepted: float = 0.0


@attrs.define(eq=False)
class StreamCall:
    """A call in a session.

    Attributes:
        name: Its name in the ledger.
        kind: A key of `KINDS` in `streams`.
        id: The id of the request.
        began: When it was sent.
        ended: When its response was there, or the client gave up.
        cancelled: When its cancellation was accepted; 0 without one.
        outcome: ``responded``; ``cancelled``; ``refused`` if no process has begun it; ``lost`` if there was no event id
            from which to go on; ``gone`` if the stream could not be resumed; ``unended`` if no response came although
            the client has come back for it.
        connections: What carried its stream.
        responses: Each response, by the id of its event.
        progress: The progress, as it came.
        late: What came on the stream after the response.
    """

    name: str
    kind: str
    id: int
    began: float = attrs.Factory(time.monotonic)
    ended: float = 0.0
    cancelled: float = 0.0
    outcome: str = ""
    connections: list[Carried] = attrs.Factory(list)
    responses: dict[str, Any] = attrs.Factory(dict)
    progress: list[float] = attrs.Factory(list)
    late: list[str] = attrs.Factory(list)

    @property
    def ids(self) -> list[str]:
        """The ids of events that have come, in order."""
        return [event.id for each in self.connections for event in each.events if event.id]
