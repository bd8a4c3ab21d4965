"""One modern request over HTTP: the response stream stands for the request, and closing it cancels the handler."""

from __future__ import annotations

from collections import deque

import trio

from trio_mcp.http.rules.statuses import Accept, refuse, status_of
from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest
from trio_mcp.http.server.host import Run
from trio_mcp.http.sse import encode_comment, encode_event
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.events import RequestStarted
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, RequestId, Response, SessionMessage
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.handlers import Handlers
from trio_mcp.session.sink import Owner
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.versions import Era

__all__ = ["HttpExchange"]

COMMENT = encode_comment()

MAX_WAITING = 128
"""Notifications that may wait to be written before the handler that sends them waits (chosen)."""


class HttpExchange:
    """A modern request and its response: one JSON text, or a stream if notifications come first.

    The handler runs in the task that calls `serve`, under a `Handlers` whose `Sink` is this object. Only a stream has a
    task of its own, which writes notifications and, in silence, comments.

    Args:
        run: The run of the server, whose nursery holds that task.
        answer: The HTTP response.
        may_stream: Whether notifications are sent; otherwise they are dropped.
        keep_alive: Seconds of silence after which a stream gets a comment.

    Attributes:
        has_room: Whether fewer than `MAX_WAITING` notifications are waiting to be written.
    """

    def __init__(self, run: Run, answer: HttpAnswer, may_stream: bool, keep_alive: float) -> None:
        self._run = run
        self._peer = Peer()
        self._answer = answer
        self._may_stream = may_stream
        self._keep_alive = keep_alive
        self._last: Response | ErrorResponse | None = None
        self._cut: str | None = None  # why no response will be sent
        self._gone = False
        self.has_room = True
        self._over = trio.Event()
        # The stream. It starts with the first notification: most requests never have one, and save a task.
        self._waiting: deque[bytes] = deque()
        self._changed = trio.lowlevel.ParkingLot()
        self._taken = trio.lowlevel.ParkingLot()
        self._complete = False  # no more notifications are accepted
        self._written: trio.Event | None = None
        self._writing = trio.CancelScope()
        self._failure: Exception | None = None

    async def serve(self, accepted: Accept, request: HttpRequest) -> None:
        """Run the handler in this task, and send the response. Cancelling it cancels the handler."""
        assert accepted.client is not None
        hooks = self._run.exchange(self, self._peer, accepted.client)
        gone = request.extras
        try:
            handlers = Handlers(self._peer, self, hooks, self._run.served.options, _start_nothing, self.put)
            # One event only: the peer is new, and the rules let nothing but a request through to here.
            (started,) = self._peer.receive(accepted.message, {"headers": request.headers})
            assert isinstance(started, RequestStarted)
            context = handlers.begin(started.incoming)
            # `begin` has put the response itself if there is no context: a ping, an error, server/discover.
            if context is not None and gone is not None:
                gone.call(self._client_left)
                await handlers.serve(context)
                if self._written is not None:
                    await self._finish_stream(self._written)
                gone.call(None)  # from here on, the end of the exchange is no longer the client leaving
            elif context is not None:
                # On another ASGI server the only sign of a disconnect is an event that a task must wait for.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._watch, request)
                    await handlers.serve(context)
                    if self._written is not None:
                        await self._finish_stream(self._written)
                    nursery.cancel_scope.cancel("the request is answered")
            await self._finish()
        finally:
            if gone is not None:
                gone.call(None)
            self._run.exchanges.discard(hooks)
            self._writing.cancel("the request is over")
            self._over.set()

    def end(self, why: str) -> None:
        """Cancel the handler, without a response; repeating it does nothing."""
        if self._cut is None:
            self._cut = why
            self._complete = True
            # Nothing will be written any more, so no sender needs to wait for room.
            self.has_room = True
            self._waiting.clear()
            self._taken.unpark_all()
            self._changed.unpark_all()
            for incoming in self._peer.close()[1]:
                incoming.scope.cancel(why)

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
        last = None  # free the result: while a slow client reads, only the encoded text is in memory
        if self._failure is not None:
            raise self._failure
        if self._gone:
            return
        if data is None:  # the handler was cut off
            if answer.started:
                await answer.finish()
            else:
                refusal = refuse(503, ErrorData(OVERLOADED, f"the request got no response: {self._cut}"))
                await answer.whole(503, refusal.body)
        elif answer.started:
            # The status has been sent with the head of the stream: an error is only in the body.
            data = encode_event(data, event="message")
            await answer.send(data)
            await answer.finish()
        else:
            await answer.whole(status, data)

    # --- the sink ------------------------------------------------------------------------------------------------

    async def room(self, related: RequestId | None = None) -> None:
        # A loop: when one place is free, several senders may have been woken.
        while not self.has_room:
            await self._taken.park()

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        # Requests of the server never come here: in the modern era they are part of a result (input rounds).
        given = message.message
        if isinstance(given, (Response, ErrorResponse)):
            self._last = given
        elif isinstance(given, Notification) and self._may_stream and not self._complete:
            data, _ = encode_or_replace(given)
            if data is not None:
                self._waiting.append(data)
                self.has_room = len(self._waiting) < MAX_WAITING
                if self._written is None:
                    # In the run's nursery: most requests have no stream, and would pay for a nursery of their own.
                    self._written = trio.Event()
                    self._run.nursery.start_soon(self._write_stream, self._written)
                self._changed.unpark()

    def put_control(self, message: SessionMessage) -> bool:
        self.put(message)
        return True

    def release(self, request_id: RequestId) -> None:
        """Do nothing: a request without a response shows in the end of the exchange."""

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        return False  # modern streams can't be resumed: closing one would cancel the request

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def flush(self) -> None:
        await self._over.wait()

    # --- the stream ----------------------------------------------------------------------------------------------

    async def _write_stream(self, written: trio.Event) -> None:
        """Write notifications until no more will come. Failures are raised where the request is served."""
        answer = self._answer
        try:
            with self._writing:
                await answer.start_events()
                while True:
                    while self._waiting:
                        data = self._waiting.popleft()
                        # Before the write, which may take long: the place is free already.
                        self.has_room = True
                        self._taken.unpark()
                        data = encode_event(data, event="message")
                        await answer.send(data)
                    if self._complete:
                        return
                    with trio.move_on_after(self._keep_alive) as silence:
                        await self._changed.park()
                    if silence.cancelled_caught:
                        await answer.send(COMMENT)
        except Exception as exc:
            # Raised here, it would end the whole run: this task is in its nursery.
            self._failure = exc
            self.end(f"the stream failed: {exc}")
        finally:
            written.set()

    async def _finish_stream(self, written: trio.Event) -> None:
        """Let the stream's task write what is left, and wait for it."""
        self._complete = True
        self._changed.unpark_all()
        await written.wait()


def _start_nothing(serve: object, context: object) -> None:
    """Do nothing: with a single request, no queued one has to be started."""
