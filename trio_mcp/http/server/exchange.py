"""One request of the modern era over HTTP: the response stream is the request, and its end cancels the handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import trio

from trio_mcp.errors import McpError, SessionClosed
from trio_mcp.http.rules.ladder import refuse, status_of
from trio_mcp.http.server.asgi import Gone, HttpAnswer, HttpRequest
from trio_mcp.http.sse import encode_comment, encode_event
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.events import RequestStarted
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response, SessionMessage
from trio_mcp.link import Link
from trio_mcp.server.connection import Connection
from trio_mcp.session.responder import Responder
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.versions import Era

if TYPE_CHECKING:
    from trio_mcp.server.serving import Serving

__all__ = ["HttpExchange"]

COMMENT = encode_comment()


class _NothingToRead(trio.abc.ReceiveChannel[SessionMessage]):
    """The reading half of a link that nobody reads from."""

    async def receive(self) -> NoReturn:
        raise trio.EndOfChannel

    async def aclose(self) -> None:
        pass


NOTHING = _NothingToRead()


class HttpExchange(Connection):
    """A connection for a single request. It has no reader: the request has been read, and nothing else will come.

    Args:
        serving: The run of the server.
        answer: Where the answer goes: one JSON text, unless a notification comes before it or it is bound to stream.
        may_stream: Whether notifications are sent at all.
        keep_alive: Seconds of silence after which a stream gets a comment.
    """

    def __init__(self, serving: Serving, answer: HttpAnswer, *, may_stream: bool, keep_alive: float) -> None:
        self._way = _Way(self)
        super().__init__(serving, Link(NOTHING, self._way))
        self._answer = answer
        self.may_stream = may_stream
        self._keep_alive = keep_alive
        self._responder: Responder | None = None
        self._extension: Gone | None = None
        self._gone = False

    async def serve(self, message: Request, request: HttpRequest, metadata: dict[str, Any]) -> None:
        """Run the handler in this task, and answer. When cancelled, so is the handler."""
        (event,) = self._peer.receive(message, metadata)
        assert isinstance(event, RequestStarted)
        incoming = event.incoming
        responder = incoming.context = Responder(self, incoming)
        settled: dict[str, Any] | ErrorData | None
        try:
            settled = self._intercept(responder)
        except McpError as exc:
            settled = ErrorData(exc.code, exc.message, exc.data)
        if settled is not None:
            answer = self._peer.answer(incoming, settled)
            assert isinstance(answer, (Response, ErrorResponse))
            await self.send(answer)
            return
        self._responder = responder
        self._extension = request.extension
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if self._extension is None:
                    nursery.start_soon(self._watch, request)
                else:
                    self._extension.call(self._client_left)
                await self._serve(responder, incoming)
                await self._outbox.drain()
                self._nursery = None
                nursery.cancel_scope.cancel("the request is answered")
            if not self._answer.finished and not self._gone:
                await self._end_unanswered()
        finally:
            self._watch_no_more()
            # What refers to itself waits for the garbage collector, which would take a quarter of the time.
            self._responder = incoming.context = self._way.exchange = None
            self._outbox.release()

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
        self._outbox.give_up()

    def _spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        # Once it is answered, this exchange's own task writes what there is.
        if self._responder is None or not self._responder.answered:
            super()._spawn(function)

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


class _Way(trio.abc.SendChannel[SessionMessage]):
    """Where the outbox of an exchange writes to."""

    def __init__(self, exchange: HttpExchange) -> None:
        self.exchange: HttpExchange | None = exchange

    async def send(self, value: SessionMessage) -> None:
        message = value.message
        assert isinstance(message, (Response, ErrorResponse, Notification))
        if self.exchange is not None:
            await self.exchange.send(message)

    async def aclose(self) -> None:
        pass
