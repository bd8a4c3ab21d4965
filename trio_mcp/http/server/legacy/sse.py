"""HTTP+SSE, the transport of 2024-11-05: one stream for all that the server sends, and a path to post messages to."""

from __future__ import annotations

from functools import partial
from urllib.parse import parse_qs, quote

from trio_mcp.http.headers import JSON
from trio_mcp.http.rules.ladder import Refusal, refuse
from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest
from trio_mcp.http.server.door import ReadBody
from trio_mcp.http.server.host import Run
from trio_mcp.http.server.legacy.session import HttpSession
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.sse import encode_event
from trio_mcp.jsonrpc.codec import decode
from trio_mcp.jsonrpc.messages import Batch, ErrorData, Malformed, Request
from trio_mcp.types.error_codes import OVERLOADED

__all__ = ["SseSessions"]


class SseSessions:
    """Every session of this transport: each lasts as long as its stream.

    Args:
        run: The run of the server.
        options: What the endpoint is like.
        live: Where each session is as long as it runs.
    """

    def __init__(self, run: Run, options: HttpOptions, live: set[HttpSession]) -> None:
        self._run = run
        self._options = options
        self._live = live
        self._sessions: dict[str, HttpSession] = {}
        self._leaving = False

    def __len__(self) -> int:
        return len(self._sessions)

    async def get(self, request: HttpRequest, answer: HttpAnswer) -> Refusal | None:
        """Serve the stream of a new session, and with it the session."""
        if len(self._sessions) >= self._options.max_sessions:
            text = "too many sessions; try again later"
            return refuse(503, ErrorData(OVERLOADED, text), headers=(("Retry-After", "10"),))
        session = HttpSession(self._run, self._options, self._live, one_stream=True)
        where = f"{quote(request.root)}{self._options.message_path}?session_id={session.id}"
        session.greeting = encode_event(where.encode(), event="endpoint")
        self._sessions[session.id] = session
        try:
            await self._run.nursery.start(session.host)
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
        if self._leaving and isinstance(message, (Request, Batch)):
            return refuse(503, ErrorData(OVERLOADED, "the server is ending"))
        session.feed(message, {"headers": request.headers})
        if type(message) is Malformed:  # answered on the stream where an answer is due
            return refuse(400, ErrorData(message.code, message.reason))
        await answer.whole(202)
        return None

    def _named(self, request: HttpRequest) -> HttpSession | None:
        query = request.scope.get("query_string", b"").decode("latin-1")[:1000]
        return self._sessions.get(parse_qs(query).get("session_id", [""])[0])

    def end_when_idle(self) -> None:
        """Take no new work, and end each session as soon as no request is under way."""
        self._leaving = True
        for session in self._sessions.values():
            session.start_soon(partial(_end_when_settled, session))


async def _end_when_settled(session: HttpSession) -> None:
    await session.connection.wait_settled()
    session.end("the server is ending")
