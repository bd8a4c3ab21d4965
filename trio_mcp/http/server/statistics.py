"""The statistics of an HTTP endpoint."""

from __future__ import annotations

import attrs

__all__ = ["HttpStatistics"]


@attrs.frozen
class HttpStatistics:
    """A snapshot of what an HTTP endpoint is doing.

    Attributes:
        sessions: Sessions of Streamable HTTP whose id a client knows.
        idle_sessions: Those of these sessions for which no HTTP request is being served; they end after
            ``session_timeout``.
        sse_sessions: Sessions of HTTP+SSE.
        websockets: Open WebSockets.
        requests: Requests that are not settled: their handler runs or is queued, or their response is being written;
            ``max_requests`` bounds them.
        request_bytes: The bytes of these requests, and of notifications that wait to be handled; ``max_request_bytes``
            bounds them.
        bodies: Bodies that are being read.
        body_bytes: Bytes of these bodies that have arrived; ``max_request_bytes`` bounds them, too.
        exchanges: HTTP responses that carry a session's stream.
        listening: Those of these responses that carry the stream for messages that belong to no request (to a GET).
        streams: Open streams of requests in sessions; with an event store some may have no reader.
        unanswered: Requests in sessions whose response has not been put on its stream.
        unstored: Messages that wait for the event store.
        watching: Whether the task that ends unused sessions is running.
        ending: Whether new work is refused because the server is ending.
    """

    # All fields have defaults, because the legacy endpoint fills in those of its sessions, and `HttpApp` the others.
    sessions: int = 0
    idle_sessions: int = 0
    sse_sessions: int = 0
    websockets: int = 0
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
