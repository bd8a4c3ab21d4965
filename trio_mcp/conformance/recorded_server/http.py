"""A recorded server over Streamable HTTP, in both eras, to clients on this machine."""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import h11
import trio

from trio_mcp.conformance.recorded_server.book import Book
from trio_mcp.conformance.recorded_server.session import Play, RecordedSession, Send
from trio_mcp.conformance.rules.history import is_request
from trio_mcp.conformance.wires.h11_stream import GONE, H11Stream
from trio_mcp.conformance.wires.notes import TooMuch, to_text
from trio_mcp.http.headers import Headers
from trio_mcp.http.rules.guard import LOOPBACK_HOSTS, HostGuard
from trio_mcp.http.sse import encode_event

__all__ = ["PATH", "RecordedHttp"]

PATH: Final = "/mcp"
NO_SESSION: Final = "there is no such session"

# Arbitrary limits: more than any test needs.
MAX_SESSIONS: Final = 1000
MAX_WAITING: Final = 1000
"""The number of messages that wait for a client to open its stream."""


class RecordedHttp:
    """Serves a recording to HTTP clients.

    Args:
        book: The recording.
        nursery: Runs what goes on after a response.
    """

    def __init__(self, book: Book, nursery: trio.Nursery) -> None:
        self._book = book
        self._nursery = nursery
        # A web page must not reach the server by a name that leads to this machine.
        self._guard = HostGuard(LOOPBACK_HOSTS)
        self._sessions: dict[str, _Session] = {}

    async def serve(self, stream: trio.abc.Stream) -> None:
        """Serve a TCP connection until it ends."""
        async with stream:
            try:
                await H11Stream(stream).serve(self._respond)
            # The client has left, has sent more than is read, or does not speak HTTP.
            except (*GONE, TooMuch, h11.RemoteProtocolError):
                return

    async def _respond(self, wire: H11Stream, request: h11.Request, body: bytes) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        method, path = request.method.decode("ascii"), request.target.decode("latin-1").partition("?")[0]
        session_id = headers.get("mcp-session-id", "")
        if (fault := self._guard.check(Headers(request.headers))) is not None:
            await wire.refuse(403, fault)
        elif path != PATH:
            await wire.refuse(404, f"the endpoint is {PATH}")
        elif method == "POST":
            await self._post(wire, session_id, body)
        elif not session_id or method not in ("GET", "DELETE"):
            await wire.refuse(405, "without a session there is only POST")
        elif (session := self._sessions.get(session_id)) is None:
            await wire.refuse(404, NO_SESSION)
        elif method == "GET":
            await _stream(wire, [], session.deliver)
        else:
            del self._sessions[session_id]
            await _plain(wire, 200)

    async def _post(self, wire: H11Stream, session_id: str, body: bytes) -> None:
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            await wire.refuse(400, "the body is not JSON")
            return
        opens = is_request(message) and message["method"] == "initialize"
        if opens:
            session_id = secrets.token_urlsafe(16)
        # Without a session, a request is one of the modern era, or one that finds out the era.
        if (session := self._session(session_id, new=opens or not session_id)) is None:
            await wire.refuse(404, NO_SESSION)
            return
        parts = message if isinstance(message, list) else [message]
        plays = [play for each in parts if (play := session.recorded.begin(each)) is not None]
        if is_request(message):
            await _answer(wire, session, plays[0], [("mcp-session-id", session_id)] if opens else [])
            return
        # A message that needs no answer is handled once the client has its response, and so is a batch.
        await _plain(wire, 202)
        for play in plays:
            self._nursery.start_soon(session.recorded.play, play, session.send_apart)

    def _session(self, session_id: str, *, new: bool) -> _Session | None:
        session = self._sessions.get(session_id)
        if session is None and new:
            session = self._sessions[session_id] = _Session(self._book)
            if len(self._sessions) > MAX_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
        return session


class _Session:
    """A session; in the modern era, all clients together.

    Args:
        book: The recording.
    """

    def __init__(self, book: Book) -> None:
        self.recorded = RecordedSession(book, self.send_apart)
        self._waiting: deque[Any] = deque(maxlen=MAX_WAITING)
        self._news = trio.lowlevel.ParkingLot()

    async def send_apart(self, message: Any) -> None:
        """Send on the stream that the client opens by GET; until then, the message waits."""
        self._waiting.append(message)
        self._news.unpark()
        await trio.lowlevel.checkpoint()

    async def deliver(self, send: Send) -> None:
        """Send what waits, until cancelled."""
        while True:
            while self._waiting:
                await send(self._waiting.popleft())
            await self._news.park()


# --- responses --------------------------------------------------------------------------------------------------------


async def _answer(wire: H11Stream, session: _Session, play: Play, headers: list[tuple[str, str]]) -> None:
    if play.refused is not None:
        await wire.refuse(play.refused, "the recorded server refused this")
    elif play.streams:
        await _stream(wire, headers, partial(session.recorded.play, play))
    else:
        answers: list[Any] = []

        async def keep(message: Any) -> None:
            answers.append(message)
            await trio.lowlevel.checkpoint()

        await _while_there(wire, partial(session.recorded.play, play, keep))
        # A request that was cancelled has no response.
        data = to_text(answers[0]) if answers else b""
        head = [("content-type", "application/json"), ("content-length", str(len(data))), *headers]
        status = play.status if answers else 202
        await wire.send(h11.Response(status_code=status, headers=head), h11.Data(data=data), h11.EndOfMessage())


async def _stream(wire: H11Stream, headers: list[tuple[str, str]], produce: Callable[[Send], Awaitable[None]]) -> None:
    """Respond with a stream of the messages that a function sends."""
    head = [("content-type", "text/event-stream"), ("cache-control", "no-store"), *headers]
    await wire.send(h11.Response(status_code=200, headers=head))

    async def send(message: Any) -> None:
        await wire.send(h11.Data(data=encode_event(to_text(message))))

    await _while_there(wire, partial(produce, send))
    await wire.send(h11.EndOfMessage())


async def _while_there(wire: H11Stream, work: Callable[[], Awaitable[None]]) -> None:
    """Run a function while the client is there; in the modern era a client cancels by closing the connection.

    Raises:
        BrokenResourceError: If the client has left.
    """
    left = False
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            nonlocal left
            await wire.until_left()
            left = True
            nursery.cancel_scope.cancel("the client has left")

        nursery.start_soon(watch)
        try:
            await work()
        except GONE:
            left = True
        nursery.cancel_scope.cancel("the response is complete")
    if left:
        raise trio.BrokenResourceError("the client has left")


async def _plain(wire: H11Stream, status: int) -> None:
    await wire.send(h11.Response(status_code=status, headers=[("content-length", "0")]), h11.EndOfMessage())
