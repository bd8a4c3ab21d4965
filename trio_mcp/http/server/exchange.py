"""One modern request over HTTP: the response stream represents the request, and closing it cancels the handler."""

from __future__ import annotations

from typing import Any

import trio

from trio_mcp.http.rules.statuses import Accept, refuse, status_of
from trio_mcp.http.server.asgi import Extras, HttpAnswer, HttpRequest
from trio_mcp.http.server.host import Hooks, HostedRun
from trio_mcp.http.sse import COMMENT, encode_event
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
)
from trio_mcp.jsonrpc.order import MessageQueue
from trio_mcp.session.handlers import RequestContext, begin, run_handler
from trio_mcp.session.sink import Owner
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.methods import facts_of
from trio_mcp.types.versions import Era

__all__ = ["HttpExchange"]

MAX_WAITING = 128
"""How many notifications may wait to be written before the handler that sends them has to wait (arbitrary)."""


class HttpExchange:
    """A modern request and its response: one JSON text, or a stream if notifications come first.

    The handler runs in the task that calls `serve`; its `Sink` is this object. Only a stream has a second task, which
    writes notifications and, during silence, comments.

    Args:
        run: The run of the server, in whose nursery the second task runs.
        answer: The HTTP response.
        may_stream: Whether notifications are sent; otherwise they are dropped.
        keep_alive: Seconds of silence after which a stream gets a comment.

    Attributes:
        has_room: Whether fewer than `MAX_WAITING` notifications are waiting to be written.
    """

    def __init__(self, run: HostedRun, answer: HttpAnswer, may_stream: bool, keep_alive: float) -> None:
        self._run = run
        self._incoming: IncomingRequest | None = None
        self._hooks: Hooks | None = None
        self._answer = answer
        self._extras: Extras | None = None
        self._may_stream = may_stream
        self._keep_alive = keep_alive
        self._last: Response | ErrorResponse | None = None
        self._cut: str | None = None  # the reason why no response will be sent, if there is one
        self._gone = False
        self._over: trio.Event | None = None
        # The stream is made when the first notification is sent: most requests have none, and so need no second task.
        self._stream: ResponseStream | None = None
        self._failure: Exception | None = None

    async def serve(self, accepted: Accept, request: HttpRequest) -> None:
        """Run the handler in this task, and send the response. Cancelling this cancels the handler."""
        assert accepted.client is not None
        assert isinstance(accepted.message, Request)
        incoming = self._incoming = IncomingRequest(accepted.message, request.metadata, running=True)
        incoming.scope = trio.CancelScope()  # now, because the exchange may be cut off before the handler begins
        hooks = self._hooks = self._run.exchange(self, incoming, accepted.client)
        gone = self._extras = request.extras
        if facts_of(accepted.message.method).lasting:
            self._answer.end_connection(request)
        try:
            # Neither a `Peer` nor `Handlers` is needed, because a single request has nothing to queue behind, and its
            # id can't clash.
            context, outcome = begin(incoming, hooks)
            if outcome is not None:  # a ping, an error and server/discover need no handler
                await self._settle(incoming, outcome)
            elif gone is not None:
                gone.call(self._client_left)
                await self._handle(incoming, context, hooks)
                gone.call(None)  # from here on, the end of the exchange does not mean that the client has left
            else:
                # On another ASGI server the only sign of a disconnect is an event that a task must wait for.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, request)
                    await self._handle(incoming, context, hooks)
                    nursery.cancel_scope.cancel("the handler has ended")
            await self._finish()
        finally:
            if gone is not None:
                gone.call(None)
            incoming.running = False
            self._run.exchanges.discard(hooks)
            self._hooks = None  # they refer to this object, and a cycle would stay until the collector runs
            if self._stream is not None:
                self._stream.writing.cancel("the request is over")
            if self._over is not None:
                self._over.set()

    async def _handle(self, incoming: IncomingRequest, context: RequestContext, hooks: Hooks) -> None:
        with incoming.scope:
            await run_handler(context, hooks, self._run.served.options, self._settle)
        if self._stream is not None:
            # Wait until the stream's task has written the remaining notifications: the response follows on the same
            # stream, and two tasks must not write at once.
            self._stream.complete()
            await self._stream.written.wait()

    async def _settle(self, incoming: IncomingRequest, outcome: dict[str, Any] | ErrorData) -> None:
        if not incoming.cancelled:
            incoming.answered = True
            id = incoming.request.id
            self._last = ErrorResponse(id, outcome) if isinstance(outcome, ErrorData) else Response(id, outcome)

    def end(self, why: str) -> None:
        """Cancel the handler, without a response; calling this again does nothing."""
        if self._cut is None:
            self._cut = why
            if self._stream is not None:
                self._stream.cut()
            incoming = self._incoming
            if incoming is not None and incoming.running and incoming.open:
                incoming.cancelled = True
                incoming.scope.cancel(why)

    async def end_at(self, deadline: float) -> None:
        """At a deadline on Trio's clock, respond to a request that would last forever, and end the exchange."""
        await trio.sleep_until(deadline)
        if self._hooks is not None:
            await self._hooks.end_listening()
        self.end("the token has expired")  # if the client reads nothing, no response can arrive

    async def _watch(self, request: HttpRequest) -> None:
        await request.gone()
        self._client_left()

    def _client_left(self) -> None:
        self._gone = True
        self.end("the client closed the response stream")

    async def _finish(self) -> None:
        """Send the response, or end the stream without one."""
        answer = self._answer
        last, self._last = self._last, None
        data = None if last is None else encode_or_replace(last)[0]
        status = 200 if last is None or type(last) is Response else status_of(last, Era.MODERN)
        last = None  # free the result, so that only the encoded text is in memory while a slow client reads
        if self._failure is not None:
            raise self._failure
        if self._gone:
            return
        if data is None:  # the handler was cut off
            if answer.started:
                await answer.finish()
            else:
                # Without `Retry-After`, which says that nothing has begun.
                text = f"the request got no response, and its outcome is unknown: {self._cut}"
                await answer.refuse(refuse(503, ErrorData(INTERNAL_ERROR, text)))
        elif answer.started:
            # The status has been sent with the head of the stream, so an error is only in the body. The name `data` is
            # used again, so that only the event is in memory while a slow client reads.
            data = encode_event(data, event="message")
            await answer.finish(data)
        elif self._hooks is not None and (instead := self._hooks.refusal) is not None:
            await answer.whole(instead.status, data, instead.headers)
        else:
            await answer.whole(status, data)

    # --- the sink ------------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        return self._stream is None or self._stream.has_room

    async def room(self, related: RequestId | None = None, urgent: bool = False) -> None:
        if self._stream is not None:
            await self._stream.room()

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        # The server's requests are never passed to this method: in the modern era they are part of a result (input
        # rounds). Nor is the response, which goes to `_settle`.
        given = message.message
        if not isinstance(given, Notification) or not self._may_stream or self._cut is not None:
            return
        data, _ = encode_or_replace(given)
        if data is not None:
            if self._stream is None:
                # The task runs in the run's nursery, because a nursery for each request would cost time even without a
                # stream.
                self._stream = ResponseStream()
                self._run.nursery.start_soon(self._write_stream, self._stream)
            self._put_event(self._stream, encode_event(data, event="message"), given, message.urgent)

    def _put_event(self, stream: ResponseStream, event: bytes, message: Notification, urgent: bool) -> None:
        # Waking the stream's task costs more than writing an event, and a change may concern thousands of listeners. So
        # an event is written here if none waits.
        if stream.idle and self._extras is not None:
            try:
                if self._extras.send_nowait(event):
                    stream.last = trio.current_time()
                    return
                event = COMMENT  # with this, the stream's task sends the rest
            except trio.WouldBlock:
                pass
        stream.put(event, message, urgent)

    def put_control(self, message: SessionMessage) -> bool:
        self.put(message)
        return True

    def release(self, request_id: RequestId) -> None:
        """Do nothing: the end of the exchange shows that the request gets no response."""

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        return False  # a modern stream can't be resumed: closing it would cancel the request

    @property
    def waiting(self) -> int:
        return 0 if self._stream is None else len(self._stream.waiting)

    async def flush(self) -> None:
        if self._over is None:
            self._over = trio.Event()
        await self._over.wait()

    # --- the stream ----------------------------------------------------------------------------------------------

    async def _write_stream(self, stream: ResponseStream) -> None:
        """Write notifications until no more will come. An exception is raised later, in `serve`."""
        answer = self._answer
        try:
            with stream.writing:
                await answer.start_events()
                while True:
                    while (event := stream.take()) is not None:
                        await answer.send(event)
                        stream.last = trio.current_time()
                    if stream.completed:
                        return
                    with trio.CancelScope(deadline=stream.last + self._keep_alive):
                        await stream.change()
                        continue
                    # `put` may have written events since the deadline was set.
                    if trio.current_time() >= stream.last + self._keep_alive:
                        await answer.send(COMMENT)
                        stream.last = trio.current_time()
        except Exception as exc:
            # An exception raised here would end the whole run, because this task is in the run's nursery.
            self._failure = exc
            self.end(f"the stream failed: {exc}")
        finally:
            stream.written.set()


class ResponseStream:
    """The notifications of a request that wait to be written.

    Attributes:
        waiting: The events; urgent ones overtake others.
        last: When something was last written, on Trio's clock.
        has_room: Whether fewer than `MAX_WAITING` notifications are waiting.
        completed: Whether no more notifications are accepted.
        writing: The cancel scope of the task that writes them.
        written: Set when that task has ended.
    """

    def __init__(self) -> None:
        self.waiting: MessageQueue[bytes] = MessageQueue()
        self.last = trio.current_time()
        self.has_room = True
        self.completed = False
        self.writing = trio.CancelScope()
        self.written = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()

    async def room(self) -> None:
        """Wait until there is room for another notification."""
        # The wait is repeated if another sender has taken the free place before the task that was woken.
        while not self.has_room:
            await self._taken.park()

    @property
    def idle(self) -> bool:
        """Whether the stream has begun, everything has been written, and more may follow."""
        return bool(self._changed)

    def put(self, event: bytes, message: Notification, urgent: bool) -> None:
        """Add a notification, encoded as an event, unless the stream is complete."""
        if not self.completed:
            self.waiting.put(event, message, urgent)
            self.has_room = len(self.waiting) < MAX_WAITING
            self._changed.unpark()

    def take(self) -> bytes | None:
        """Remove and return the next event, or return None if nothing is waiting."""
        event = self.waiting.take()
        if event is not None:
            # The place counts as free before the event is written, because writing may take a long time.
            self.has_room = True
            self._taken.unpark()
        return event

    async def change(self) -> None:
        """Wait until a notification is added, or no more are accepted."""
        await self._changed.park()

    def complete(self) -> None:
        """Accept no more notifications."""
        self.completed = True
        self._changed.unpark_all()

    def cut(self) -> None:
        """Accept no more notifications, and drop those that are waiting."""
        # Nothing more will be written, so no sender needs to wait for room.
        self.has_room = True
        self.waiting.clear()
        self._taken.unpark_all()
        self.complete()
