"""What an HTTP endpoint tells of itself."""

from __future__ import annotations

import attrs

__all__ = ["HttpStatistics"]


@attrs.frozen
class HttpStatistics:
    """What an HTTP endpoint is doing.

    Attributes:
        sessions: Sessions of Streamable HTTP that clients know the id of.
        idle_sessions: Those of them that serve no HTTP request, and end after ``session_timeout``.
        sse_sessions: Sessions of HTTP+SSE.
        requests: Requests that are not settled: their handler runs or waits for a place, or their answer is being
            written; ``max_requests`` bounds them.
        request_bytes: Bytes of them, and of notifications that wait to be handled; ``max_request_bytes`` bounds them.
        bodies: Bodies that are being read.
        body_bytes: Bytes of them that have come; ``max_request_bytes`` bounds them, too.
        exchanges: HTTP answers that carry a stream of a session.
        listening: Those of them that carry what belongs to no request: a GET of Streamable HTTP, or HTTP+SSE.
        streams: Streams of sessions that are open, for requests; with an event store some may have no reader.
        unanswered: Requests in sessions whose answer has not been put on its stream.
        unstored: Messages that wait for the event store.
        watching: Whether there is the task that ends sessions which nobody uses.
        ending: Whether new work is refused, because the server ends.
    """

    sessions: int = 0
    idle_sessions: int = 0
    sse_sessions: int = 0
    requests: int = 0
    request_bytes: int = 0
    bodies: int = 0
    body_bytes: int = 0
    exchanges: int = 0
    listening: int = 0
    streams: int = 0
    unanswered: int = 0
    unstored: int = 0
    watching: bool = False
    ending: bool = False
