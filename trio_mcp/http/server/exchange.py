"""One request of the modern era over HTTP: the response stream is the request, and its end cancels the handler."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.errors import SessionClosed
from trio_mcp.http.rules.ladder import refuse, status_of
from trio_mcp.http.server.asgi import Gone, HttpAnswer, HttpRequest
from trio_mcp.http.sse import encode_comment, encode_event
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.events import RequestStarted
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
)
from trio_mcp.server.connection import Connection
from trio_mcp.session.sink import Owner
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.versions import Era

if TYPE_CHECKING:
    from trio_mcp.server.serving import Serving

__all__ = ["HttpExchange"]

COMMENT = encode_comment()


MAX_WAITING = 128
"""Messages of one exchange that wait to be written before those who send wait."""


class HttpExchange(Connection):
    """A connection for a single request, which has been read: nothing else will come.

    Args:
        serving: The run of the server.
        answer: Where the answer goes: one JSON text, unless a notification comes before it or it is bound to stream.
        may_stream: Whether notifications are sent at all.
        keep_alive: Seconds of silence after which a stream gets a comment.
    """

    def __init__(self, serving: Serving, answer: HttpAnswer, *, may_stream: bool, keep_alive: float) -> None:
        self._way = _Way(self._write_soon, self.send)
        super().__init__(serving, (None, self._way))
        self._answer = answer
        self.may_stream = may_stream
        self._keep_alive = keep_alive
        self._extension: Gone | None = None
        self._gone = False

    async def serve(self, message: Request, request: HttpRequest, metadata: dict[str, Any]) -> None:
        """Run the handler in this task, and answer. When cancelled, so is the handler."""
        (event,) = self._peer.receive(message, metadata)
        assert isinstance(event, RequestStarted)
        context = self._handlers.begin(event.incoming)
        if context is None:
            await self._way.write()
            return
        self._extension = request.extension
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self._extension is None:
                    nursery.start_soon(self._watch, request)
                else:
                    self._extension.call(self._client_left)
                await self._handlers.serve(context)
                await self._way.write()
                self._nursery = None
                nursery.cancel_scope.cancel("the request is answered")
            if not self._answer.finished and not self._gone:
                await self._end_unanswered()
        finally:
            self._watch_no_more()
            self._way.give_up()

    def _write_soon(self) -> None:
        self._spawn(self._way.write)

    def _watch_no_more(self) -> None:
        if self._extension is not None:
            self._extension.call(None)

    async def _end_unanswered(self) -> None:
        if self._answer.started:
            await self._answer.finish()
        else:
            refusal = refuse(503, ErrorData(OVERLOADED, f"the request was not answered: {self.close_cause}"))
            await self._answer.whole(503, refusal.body)

    async def _watch(self, request: HttpRequest) -> None:
        await request.gone()
        self._client_left()

    def _client_left(self) -> None:
        self._gone = True
        self.end("the client closed the response stream")

    def end(self, why: str) -> None:
        """Cancel the handler; nothing is answered any more."""
        self._settle_everything(SessionClosed(why))
        # Nobody reads it, so nobody needs to wait for room.
        self._way.give_up()

    async def send(self, message: Response | ErrorResponse | Notification) -> None:
        """Write a message: what comes before the answer begins a stream."""
        answer = self._answer
        last = not isinstance(message, Notification)
        data, _ = encode_or_replace(message)
        if data is None or answer.finished:
            return
        if last:  # the end of the exchange is not the client's leaving
            self._watch_no_more()
        if not answer.started and isinstance(message, (Response, ErrorResponse)):
            await answer.whole(status_of(message, Era.MODERN), data)
            return
        if not self.may_stream and not answer.started:
            return
        if not answer.started:
            await answer.start_events()
            if self._nursery is not None:
                self._nursery.start_soon(answer.keep_alive, self._keep_alive, COMMENT)
        await answer.send(encode_event(data, event="message"))
        if last:
            await answer.finish()


class _Way:
    """The sink of an exchange: the answer is written by the exchange itself, what comes before it by a task."""

    def __init__(self, write_soon: Callable[[], None], send: Callable[[Any], Awaitable[None]]) -> None:
        self._write_soon = write_soon
        self._send = send
        self._waiting: deque[Any] = deque()
        self._taken = trio.lowlevel.ParkingLot()
        self._writing = trio.Lock()
        self._over = False

    @property
    def has_room(self) -> bool:
        return self._over or len(self._waiting) < MAX_WAITING

    async def room(self, related: RequestId | None = None) -> None:
        while not self.has_room:
            await self._taken.park()

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        if not self._over:
            self._waiting.append(message.message)
            if isinstance(message.message, Notification):
                self._write_soon()

    def put_control(self, message: SessionMessage) -> bool:
        self.put(message)
        return True

    def release(self, request_id: RequestId) -> None:
        pass

    async def write(self) -> None:
        """Write what is waiting."""
        async with self._writing:
            while self._waiting:
                message = self._waiting.popleft()
                self._taken.unpark()
                await self._send(message)

    @property
    def waiting(self) -> tuple[int, int]:
        return len(self._waiting), 0

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._writing.locked()

    async def flush(self) -> None:
        await self.write()

    def give_up(self) -> None:
        self._over = True
        self._waiting.clear()
        self._taken.unpark_all()

    async def aclose(self) -> None:
        self.give_up()
