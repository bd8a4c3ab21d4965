"""HTTP+SSE, the transport of 2024-11-05: one stream for all that the server sends, and a path to post messages to."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from trio_mcp.http.headers import JSON
from trio_mcp.http.rules.ladder import refuse
from trio_mcp.http.server.event_store import EventStore
from trio_mcp.http.server.legacy.router import Router
from trio_mcp.http.server.legacy.session import HttpSession
from trio_mcp.http.server.legacy.streams import Stream
from trio_mcp.http.sse import encode_event
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, Malformed, Message, Request, RequestId
from trio_mcp.types.error_codes import OVERLOADED

if TYPE_CHECKING:
    from trio_mcp.http.rules.ladder import Refusal
    from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest
    from trio_mcp.http.server.door import ReadBody
    from trio_mcp.http.server.options import HttpOptions
    from trio_mcp.server.serving import Serving

__all__ = ["SseSessions"]


class _OneStream(Router):
    """Everything goes on the one stream."""

    def of_request(self, request_id: RequestId | None) -> Stream | None:
        return self.rest

    def _stream_of(self, message: Message, related: RequestId | None) -> Stream | None:
        return self.rest


class _SseSession(HttpSession):
    """A session that lasts as long as its stream.

    Attributes:
        leaving: It takes no new work, and ends when what is under way has ended.
    """

    def __init__(self, serving: Serving, options: HttpOptions, live: set[HttpSession], messages: str) -> None:
        super().__init__(serving, options, live)
        self._messages = messages
        self.leaving = False

    def _make_router(self, store: EventStore | None) -> Router:
        return _OneStream(None, "")

    def end_when_idle(self) -> None:
        """End as soon as no request is under way."""
        self.leaving = True
        self.start_soon(self._end_when_settled)

    async def _end_when_settled(self) -> None:
        await self._handlers.wait_for(lambda: not self.busy)
        self.end("the server is ending")

    def _first_event(self, stream: Stream, cursor: int) -> bytes:
        where = f"{self._messages}?session_id={self.id}"
        return encode_event(where.encode(), event="endpoint")


class SseSessions:
    """Every session of this transport.

    Args:
        serving: The run of the server.
        options: What the endpoint is like.
        live: Where each session is as long as it runs.
    """

    def __init__(self, serving: Serving, options: HttpOptions, live: set[HttpSession]) -> None:
        self._serving = serving
        self._options = options
        self._live = live
        self._sessions: dict[str, _SseSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def get(self, request: HttpRequest, answer: HttpAnswer) -> Refusal | None:
        """Serve the stream of a new session, and with it the session."""
        if len(self._sessions) >= self._options.max_sessions:
            text = "too many sessions; try again later"
            return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "10"),))
        session = _SseSession(
            self._serving, self._options, self._live, quote(request.root) + self._options.message_path
        )
        self._sessions[session.id] = session
        try:
            await self._serving.nursery.start(session.host)
            await session.open_stream(request, answer)
        finally:
            del self._sessions[session.id]
            session.end("the client closed the stream")
        return None

    async def post(self, request: HttpRequest, answer: HttpAnswer, body: ReadBody) -> Refusal | None:
        """Take a message."""
        given = (request.headers.get("Content-Type") or "").partition(";")[0].strip().lower()
        if given != JSON:
            return refuse(415, f"the body must be {JSON}")
        if self._named(request) is None:
            return refuse(404, f"the session is not known or has ended: open a stream at {self._options.sse_path}")
        text = await body()
        if text is None:
            return None
        session = self._named(request)
        if session is None:  # it has ended meanwhile
            return refuse(404, "the session has ended")
        message = decode(text)
        if session.leaving and isinstance(message, (Request, Batch)):
            return refuse(503, ErrorData(OVERLOADED, "the server is ending"))
        session.feed(message, {"headers": request.headers})
        if type(message) is Malformed:  # answered on the stream where an answer is due
            return refuse(400, ErrorData(message.code, message.reason))
        await answer.whole(202)
        return None

    def _named(self, request: HttpRequest) -> _SseSession | None:
        query = request.scope.get("query_string", b"").decode("latin-1")[:1000]
        return self._sessions.get(parse_qs(query).get("session_id", [""])[0])

    def end_when_idle(self) -> None:
        """End each session as soon as no request is under way."""
        for session in tuple(self._sessions.values()):
            session.end_when_idle()
