"""Runs handlers, the incoming half of a session: serves the peer's requests, from their arrival to the response."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

import trio

from trio_mcp._checks import check_number
from trio_mcp._log import logger
from trio_mcp.convert import as_object
from trio_mcp.eras.server_negotiation import ClientDeclaration
from trio_mcp.errors import McpError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import ErrorData, Notification, Request, RequestId, SessionMessage
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.sink import Sink
from trio_mcp.session.workers import Workers
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["Handlers", "RequestContext", "RequestHooks", "begin", "error_for", "incoming_of", "run_handler"]


class RequestContext:
    """One request from the peer. Its handler runs inside `cancel_scope`, and returns the result or raises an exception.

    Attributes:
        method: The request's method.
        params: The request's parameters, as plain data; empty if it has none. May be replaced.
        client: What the client has declared; None if this side is the client.
    """

    # There is one context for each request, so contexts are kept small and quick to make.
    __slots__ = ("_incoming", "_reported", "_sink", "client", "method", "params")

    def __init__(self, incoming: IncomingRequest, sink: Sink) -> None:
        request = incoming.request
        self._incoming: IncomingRequest = incoming
        self._sink = sink
        # The initial value is less than every number, so that the first report is sent whatever its progress is.
        self._reported = -math.inf
        self.client: ClientDeclaration | None = None
        self.method: str = request.method
        self.params: dict[str, Any] = request.params or {}

    @property
    def request(self) -> Request:
        """The request as it arrived."""
        return self._incoming.request

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self._incoming.request.id

    @property
    def cancel_scope(self) -> trio.CancelScope:
        """The scope of the handler, cancelled (with a reason) when the peer cancels the request or the link is lost."""
        incoming = self._incoming
        if incoming.scope is None:  # the handler has ended
            incoming.scope = trio.CancelScope()
            if incoming.cancelled:
                incoming.scope.cancel()
        incoming.lent = True
        scope: trio.CancelScope = incoming.scope
        return scope

    @property
    def meta(self) -> dict[str, Any]:
        """The ``_meta`` of the request as it arrived; empty if it has none."""
        # Middleware may have replaced `self.params`, so the parameters of the request itself are read.
        params = self._incoming.request.params
        given = params.get("_meta") if params else None
        return given if type(given) is dict else {}

    @property
    def transport_metadata(self) -> Mapping[str, Any]:
        """The transport's metadata for the request (HTTP headers, for example); may be empty."""
        return self._incoming.metadata or {}

    async def send_notification(
        self, method: str, params: dict[str, Any] | None = None, *, urgent: bool = False
    ) -> None:
        """Send a notification that belongs to this request, unless the request has a response or is cancelled.

        Args:
            method: The method's name.
            params: The parameters.
            urgent: Whether this notification overtakes other requests and notifications that wait to be sent.

        Waits while too many messages are queued for the link. If the call is cancelled during that wait, nothing is
        sent.
        """
        await trio.lowlevel.checkpoint()
        await self._sink.room(self.request_id, urgent)
        # The request is checked after the wait, because it may have been cancelled during the wait.
        if self._incoming.open:
            self._put(Notification(method, params), urgent)

    def send_notification_nowait(self, method: str, params: dict[str, Any] | None = None) -> bool:
        """Send a notification as `send_notification` does, but without waiting.

        Returns:
            Whether the notification was accepted. False if too many messages are queued for the link, or the request
            has a response or is cancelled.
        """
        if not self._incoming.open or not self._sink.has_room:
            return False
        try:
            self._put(Notification(method, params))
        except Exception:  # a middleware failed; callers of this method, such as a log handler, can't handle that
            logger.exception("a middleware failed for %r", method)
        return True

    def _put(self, notification: Notification, urgent: bool = False) -> None:
        self._sink.put(SessionMessage(notification, self.request_id, urgent=urgent), self._incoming)

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress to the peer; do nothing if the peer did not ask for it (`basic/patterns/progress`).

        From a sync tool: ``trio.from_thread.run(ctx.report_progress, 1, 3)``.

        Args:
            progress: How much is done. It must increase: a value that does not exceed all earlier ones is not sent.
            total: How much there is to do, if known.
            message: A text for people; peers of 2024-11-05 don't get it.

        Raises:
            TypeError: If ``progress`` or ``total`` is not a number.
            ValueError: If ``progress`` or ``total`` is not finite.

        Waits while the peer is slow to read. If the call is cancelled during that wait, nothing is sent.
        """
        for name, value in (("progress", progress), ("total", 0 if total is None else total)):
            check_number(name, value)
            if not math.isfinite(value):  # JSON has neither infinity nor NaN
                raise ValueError(f"{name} must be finite, got {value!r}")
        # The token is looked up only after the checkpoint, because a report that the peer did not ask for must be a
        # checkpoint as well (docs/design.md, rule 11).
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
        # The values are compared after the wait, because otherwise two tasks of one handler could send their reports in
        # the wrong order.
        if self._incoming.open and progress > self._reported:
            self._reported = progress
            self._put(Notification("notifications/progress", params))


incoming_of: Callable[[RequestContext], IncomingRequest] = attrgetter("_incoming")
"""Return the request that a context belongs to: a function, not a method, because handlers must not use it."""


class RequestHooks(Protocol):
    """The hooks with which the owner of a session handles requests."""

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        """Return the context for the handler of a request."""

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        """Look at a request before its handler is started. Requests come in the order of arrival.

        Returns:
            The result, if it is to be sent at once; None to let the handler run.

        Raises:
            McpError: To refuse the request.
        """

    async def received_request(self, context: RequestContext) -> Any:
        """Handle a request, and return its result; an exception becomes the error response."""

    def error_for(self, exc: Exception, context: RequestContext) -> ErrorData:
        """Return the error to send for an exception that a handler raised."""


def begin(incoming: IncomingRequest, hooks: RequestHooks) -> tuple[RequestContext, dict[str, Any] | ErrorData | None]:
    """Return the context of a request, and its outcome if no handler is needed."""
    context = hooks.make_context(incoming)
    try:
        return context, hooks.intercept(context)
    except McpError as exc:
        return context, ErrorData(exc.code, exc.message, exc.data)


async def run_handler(
    context: RequestContext,
    hooks: RequestHooks,
    options: SessionOptions,
    answer: Callable[[IncomingRequest, dict[str, Any] | ErrorData], Awaitable[None]],
) -> None:
    """Run the handler of a request, and send the response. The caller has entered the cancel scope of the request.

    Args:
        context: The context of the request.
        hooks: The hooks that handle requests.
        options: The hooks that watch requests.
        answer: Sends the response with a result or an error, unless the request was cancelled.
    """
    incoming = incoming_of(context)
    # The clock is read only if a hook wants the duration, because this code runs for every request.
    watched = options.watched
    started = trio.current_time() if watched else 0.0
    failure: Exception | None = None
    cancelled: BaseException | None = None
    try:
        try:
            # A request may be cancelled before its handler begins; a handler that never waits would not notice the
            # cancellation.
            if incoming.cancelled:
                return
            result = await hooks.received_request(context)
            if type(result) is not dict:
                result = {} if result is None else as_object(result, "a handler's result")
            if context.client is not None:
                result = context.client.era.finish_result(result)
            # If the peer cancels the request now, the response need not wait for room any more.
            await answer(incoming, result)
        except Exception as exc:
            failure = exc
        except BaseExceptionGroup as group:
            # The group can't be raised as it is: a nursery in the handler was cancelled, and one of its tasks failed
            # while it was ending. The whole group would make the session's nursery fail, so only the Cancelled is
            # raised.
            cancelled, failures = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failures, ExceptionGroup):
                raise
            failure = failures
        if failure is None:
            return
        if not incoming.cancelled:
            await answer(incoming, hooks.error_for(failure, context))
        elif not isinstance(failure, McpError):  # an McpError stands for a response, which the peer no longer wants
            logger.error("the handler of %r failed after it was cancelled", context.method, exc_info=failure)
        if cancelled is not None:
            raise cancelled
    finally:
        if watched:
            outcome = ("ok" if failure is None else "error") if incoming.answered else "cancelled"
            options.record(context.method, "in", trio.current_time() - started, outcome)  # type: ignore[arg-type]
        failure = cancelled = None  # their tracebacks refer to this frame: a cycle would stay until the collector runs


class Handlers:
    """The running handlers of one link, each in a task and a cancel scope that no other uses meanwhile.

    A session has a `Handlers` and a `Calls`. A single modern request over HTTP needs neither.

    Args:
        peer: The requests in flight.
        sink: Where responses go.
        hooks: The hooks that handle requests.
        options: Limits, and the hooks that watch requests.
        spawn: Starts a task for handlers, under a name.
        reply: Sends the response to a request that needs no handler, without waiting.
    """

    def __init__(
        self,
        peer: Peer,
        sink: Sink,
        hooks: RequestHooks,
        options: SessionOptions,
        spawn: Callable[[Callable[[], Awaitable[None]], str], None],
        reply: Callable[[SessionMessage], object],
    ) -> None:
        self._peer = peer
        self._sink = sink
        self._hooks = hooks
        self._options = options
        self._spawn = spawn
        self._workers = Workers(self.serve, spawn)
        self._reply = reply
        self._idle = trio.lowlevel.ParkingLot()

    def start(self, incoming: IncomingRequest) -> None:
        """Start the handler of a request. If the request needs none, go on with the next request in the queue."""
        # A loop is used instead of recursion, because the queue may contain a thousand requests that are all refused at
        # once.
        successor: IncomingRequest | None = incoming
        while successor is not None:
            context = self.begin(successor)
            if context is not None:
                self._workers.start(context, successor)
                return
            successor = self._peer.finished(successor)

    def begin(
        self, incoming: IncomingRequest, reply: Callable[[SessionMessage], object] | None = None
    ) -> RequestContext | None:
        """Respond to a request that needs no handler, or make the context for `serve`.

        Args:
            incoming: The request.
            reply: Called with the response to a request that needs no handler; by default, the response is sent.

        Returns:
            The context; None if the request needs no handler.
        """
        context, answer = begin(incoming, self._hooks)
        if answer is None:
            return context
        # The message is None if the peer has cancelled the request in the meantime; then nothing may be sent for the
        # request.
        message = self._peer.answer(incoming, answer)
        if message is not None:
            (reply or self._reply)(SessionMessage(message, incoming.request.id))
        # The peer cancelled the request before its handler began, so no handler will run. The sink must be told that
        # there will be no response.
        else:
            self._sink.release(incoming.request.id)
        return None

    async def serve(self, context: RequestContext) -> None:
        """Run the handler of a request, and send the response."""
        try:
            await run_handler(context, self._hooks, self._options, self._answer)
        finally:
            # If a request were not reported as finished, it would count as running for as long as the session lasts.
            self._free(incoming_of(context))

    async def _answer(self, incoming: IncomingRequest, answer: dict[str, Any] | ErrorData) -> None:
        sink = self._sink
        # `has_room` is tested first, because `room` is a coroutine, and there nearly always is room.
        if not sink.has_room:
            await sink.room()
        message = self._peer.answer(incoming, answer)
        if message is not None:
            sink.put(SessionMessage(message, incoming.request.id))

    def _free(self, incoming: IncomingRequest) -> None:
        cancelled = incoming.cancelled  # `finished` sets it
        successor = self._peer.finished(incoming)
        # Over HTTP, a stream ends when no response is due on it any more. So the sink must be told if a request gets no
        # response.
        if cancelled:
            self._sink.release(incoming.request.id)
        elif not incoming.answered:
            self._spawn(partial(self._release, incoming.request.id), "release")
        if successor is not None:
            self.start(successor)
        # Requests in a lane of their own don't count as running, but `wait_for` may wait for them, too. `_idle` is
        # tested first, because `unpark_all` takes time even when no task is waiting.
        if self._idle and (not self._peer.running_count or incoming.lane is not None):
            self._idle.unpark_all()

    async def _release(self, request_id: RequestId) -> None:
        # A handler that gives no response to a peer that waits for one was cancelled by itself, or with the whole
        # session. In the latter case this task is cancelled as well: the response is still owed when the session ends.
        await trio.lowlevel.checkpoint()
        self._sink.release(request_id)

    async def wait_idle(self) -> None:
        """Wait until no handlers are running, except those of lasting requests."""
        await self.wait_for(lambda: not self._peer.running_count)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that becomes true only when the last handler, or one of a lasting request, ends."""
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._idle.park()


def error_for(exc: Exception, method: str) -> ErrorData:
    """Return the error to send for an exception that a handler raised; log all but `McpError`."""
    if isinstance(exc, McpError):
        return ErrorData(exc.code, exc.message, exc.data)
    # The peer is not told the details: an exception may contain secrets, such as paths or credentials.
    logger.error("the handler of %r failed", method, exc_info=exc)
    return ErrorData(INTERNAL_ERROR, f"internal error in {method!r}")
