"""What we answer: the requests of the peer, from their arrival to their answer, and what their handlers are given."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio

from trio_mcp._log import logger
from trio_mcp.convert import as_object
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import McpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import ErrorData, Notification, Request, RequestId, SessionMessage
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.limits import RequestRecord, SessionOptions
from trio_mcp.session.sink import Sink
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["Handlers", "RequestContext", "RequestHooks", "error_for"]


class RequestContext:
    """One request of the peer's. Its handler runs inside `cancel_scope`, and returns the result or raises.

    Attributes:
        method: The request's method.
        params: The request's parameters, as plain data; empty if it has none. May be replaced.
        client: What the client has declared, on a server's side; None on a client's.
        incoming: The request in flight; for sessions, not for handlers.
    """

    __slots__ = ("_reported", "_sink", "client", "incoming", "method", "params")

    def __init__(self, incoming: IncomingRequest, sink: Sink) -> None:
        request = incoming.request
        self.incoming = incoming
        self._sink = sink
        self._reported = -math.inf
        self.client: ClientDeclaration | None = None
        self.method: str = request.method
        self.params: dict[str, Any] = request.params or {}

    def go_on_as(self, other: RequestContext) -> None:
        """Serve another request from now on: the one that brings what this one was waiting for."""
        self.incoming, self._sink, self.client = other.incoming, other._sink, other.client

    @property
    def request(self) -> Request:
        """The request as it arrived."""
        return self.incoming.request

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self.incoming.request.id

    @property
    def cancel_scope(self) -> trio.CancelScope:
        """Cancelled, with the peer's reason, when the peer cancels the request or the link is lost."""
        scope: trio.CancelScope = self.incoming.scope
        return scope

    @property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the request as it arrived; empty if it has none."""
        params = self.incoming.request.params
        given = params.get("_meta") if params else None
        return given if type(given) is dict else {}

    @property
    def transport_metadata(self) -> Mapping[str, Any]:
        """What the transport knows of the request (HTTP headers, for example); may be empty."""
        return self.incoming.metadata or {}

    async def send_notification(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification that belongs to this request, unless the request is answered or cancelled already.

        Waits while too much is queued for the link. When cancelled before that, nothing has been sent.
        """
        await trio.lowlevel.checkpoint()
        await self._sink.room(self.request_id)
        if self.incoming.open:
            self._put(Notification(method, params))

    def send_notification_nowait(self, method: str, params: dict[str, Any] | None = None) -> bool:
        """As `send_notification`, without waiting.

        Returns:
            Whether it was taken: not if too much is queued for the link, or the request is answered or cancelled.
        """
        if not self.incoming.open or not self._sink.has_room:
            return False
        self._put(Notification(method, params))
        return True

    def _put(self, notification: Notification) -> None:
        self._sink.put(SessionMessage(notification, self.request_id), self.incoming)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the peer how far the work is; does nothing if the peer did not ask (`basic/patterns/progress`).

        From a sync tool: ``trio.from_thread.run(ctx.report_progress, 1, 3)``.

        Args:
            progress: How much is done. It must grow: what is not above all that was reported before is not sent.
            total: How much there is, if known.
            message: A word for people; peers of 2024-11-05 don't get it.

        Raises:
            TypeError, ValueError: ``progress`` or ``total`` is no finite number.

        Waits while the peer is slow to read. When cancelled before that, nothing is sent.
        """
        for name, value in (("progress", progress), ("total", 0 if total is None else total)):
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"{name} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value!r}")
        await trio.lowlevel.checkpoint()
        token = self.meta.get("progressToken")
        if token is None:
            return
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and (self.client is None or self.client.rules.progress_messages):
            params["message"] = message
        await self._sink.room(self.request_id)
        if self.incoming.open and progress > self._reported:
            self._reported = progress
            self._put(Notification("notifications/progress", params))


class RequestHooks(Protocol):
    """Who decides what is answered."""

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        """Make what the handler of a request is given."""

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        """Look at a request in the order of arrival, before its handler: answer it on the spot or let it through.

        Raises:
            McpError: To refuse it.
        """

    async def received_request(self, context: RequestContext) -> Any:
        """Handle a request, and return its result; an exception becomes the error answer."""

    def error_for(self, exc: Exception, context: RequestContext) -> ErrorData:
        """Give the error answer for an exception that a handler raised."""


class Handlers:
    """The handlers of one link that run, each in a task and a cancel scope of its own.

    Used by sessions, beside `Calls`, and alone for a single request of the modern era over HTTP.

    Args:
        peer: What is in flight.
        sink: Where answers go.
        hooks: Who decides what is answered.
        options: Limits and hooks.
        spawn: Start a task for a handler.
        reply: Send an answer that is given on the spot, without waiting.
    """

    def __init__(
        self,
        peer: Peer,
        sink: Sink,
        hooks: RequestHooks,
        options: SessionOptions,
        spawn: Callable[[Callable[[RequestContext], Awaitable[None]], RequestContext], None],
        reply: Callable[[SessionMessage], object],
    ) -> None:
        self._peer = peer
        self._sink = sink
        self._hooks = hooks
        self._options = options
        self._spawn = spawn
        self._reply = reply
        self._idle = trio.lowlevel.ParkingLot()

    def start(self, incoming: IncomingRequest) -> None:
        """Run its handler, and where the request is answered on the spot those of its successors in the queue."""
        successor: IncomingRequest | None = incoming
        while successor is not None:
            context = self.begin(successor)
            if context is not None:
                self._spawn(self.serve, context)
                return
            successor = self._peer.finished(successor)

    def begin(
        self, incoming: IncomingRequest, reply: Callable[[SessionMessage], object] | None = None
    ) -> RequestContext | None:
        """Answer a request on the spot (None), or make the context for `serve`.

        Args:
            incoming: The request.
            reply: Takes an answer that is given on the spot, instead of the sink.
        """
        incoming.scope = trio.CancelScope()
        context = self._hooks.make_context(incoming)
        answer: dict[str, Any] | ErrorData | None
        try:
            answer = self._hooks.intercept(context)
        except McpError as exc:
            answer = ErrorData(exc.code, exc.message, exc.data)
        if answer is None:
            return context
        message = self._peer.answer(incoming, answer)
        if message is not None:
            (reply or self._reply)(SessionMessage(message, incoming.request.id))
        return None

    async def serve(self, context: RequestContext) -> None:
        """Run the handler in its cancel scope, and answer."""
        incoming = context.incoming
        watched = self._options.watched
        started = trio.current_time() if watched else 0.0
        failure: Exception | None = None
        try:
            try:
                with incoming.scope:
                    result = await self._hooks.received_request(context)
                    if type(result) is not dict:
                        result = {} if result is None else as_object(result, "a handler's result")
                    if context.client is not None:
                        result = context.client.era.finish_result(result)
                    await self._answer(incoming, result)
            except Exception as exc:
                failure = exc
            except BaseExceptionGroup as group:
                # A nursery of the handler's that was cancelled together with the session, and failed on the way out.
                cancelled, failures = group.split(trio.Cancelled)
                if cancelled is None or not isinstance(failures, ExceptionGroup):
                    raise
                logger.error("the handler of %r failed", context.method, exc_info=failures)
                raise cancelled from None
            if failure is not None:
                await self._fail(context, incoming, failure)
        finally:
            self._free(incoming)
            if watched:
                outcome = ("ok" if failure is None else "error") if incoming.answered else "cancelled"
                duration = trio.current_time() - started
                self._options.record(RequestRecord(context.method, "in", duration, outcome))  # type: ignore[arg-type]

    async def _answer(self, incoming: IncomingRequest, answer: dict[str, Any] | ErrorData) -> None:
        sink = self._sink
        if not sink.has_room:
            await sink.room()
        message = self._peer.answer(incoming, answer)
        if message is not None:
            sink.put(SessionMessage(message, incoming.request.id))

    async def _fail(self, context: RequestContext, incoming: IncomingRequest, failure: Exception) -> None:
        if not incoming.cancelled:
            await self._answer(incoming, self._hooks.error_for(failure, context))
        elif not isinstance(failure, McpError):  # that was to be the answer
            logger.error("the handler of %r failed after the fact", context.method, exc_info=failure)

    def _free(self, incoming: IncomingRequest) -> None:
        successor = self._peer.finished(incoming)
        if not incoming.answered:
            self._sink.release(incoming.request.id)
        if successor is not None:
            self.start(successor)
        if not self._peer.running_count or incoming.lane is not None:
            self._idle.unpark_all()

    async def wait_idle(self) -> None:
        """Wait until no handler runs, those of requests that last aside."""
        await self.wait_for(lambda: not self._peer.running_count)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for what can come true when the last handler ends, or that of a request that lasts."""
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._idle.park()


def error_for(exc: Exception, method: str) -> ErrorData:
    """Give the error answer for an exception that a handler raised; anything but an `McpError` goes to the log."""
    if isinstance(exc, McpError):
        return ErrorData(exc.code, exc.message, exc.data)
    logger.error("the handler of %r failed", method, exc_info=exc)
    return ErrorData(INTERNAL_ERROR, f"internal error in {method!r}")
