"""Implements `BaseSession`, one side of a conversation: the session's lifetime, its reader, its hooks, and sending."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set as AbstractSet
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, Unpack, overload

import trio
from pydantic import BaseModel, ValidationError

from trio_mcp._keywords import refuse_unknown
from trio_mcp._log import logger
from trio_mcp._nursery import EnteredOnce, background_nursery, closing, start
from trio_mcp.convert import another, as_object, as_result, brief, call_back
from trio_mcp.direct_channel import BURST, Take
from trio_mcp.errors import LocalProtocolError, McpError, RemoteProtocolError, SessionClosed, TransportError
from trio_mcp.jsonrpc.events import (
    CancelRequested,
    Fault,
    Hold,
    IncomingRequest,
    NotificationReceived,
    OutgoingRequest,
    ProgressReceived,
    Reply,
    RequestStarted,
    Settled,
)
from trio_mcp.jsonrpc.messages import ErrorData, Incoming, Notification, RequestId, SessionMessage, TransportFailure
from trio_mcp.jsonrpc.peer import Peer
from trio_mcp.session.calls import CallLimits, Calls, Limits
from trio_mcp.session.handlers import Handlers, RequestContext, error_for
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.middleware import NO_LAYERS, OutgoingNotifications, passed_in
from trio_mcp.session.notices import Notices
from trio_mcp.session.outbox import Outbox
from trio_mcp.session.sink import SessionSink
from trio_mcp.trace_context import CURRENT_TRACE
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND

if TYPE_CHECKING:  # a server never uses an era, and few programs use statistics
    from trio_mcp.eras.client_negotiation import ModernClientEra
    from trio_mcp.session.statistics import SessionStatistics

__all__ = ["MAX_FAULTS", "BaseSession", "LinkLostError", "RequestHandler", "too_many_faults"]

ResultT = TypeVar("ResultT", bound=BaseModel)
RequestHandler = Callable[[Any, RequestContext], Awaitable[Any]]

MAX_FAULTS = 1000
"""How many consecutive faults of the peer end the session. An arbitrary choice: more than the lines that a server
prints when it starts or fails; two sides that respond to each other's errors reach this number in a fraction of a
second."""

MAX_LOGGED_FAULTS = 100
"""How many faults of one peer are logged.

An arbitrary choice: enough to see what is wrong, but too few to fill a disk.
"""


class BaseSession(EnteredOnce):
    """One side of a conversation: requests in both directions over a pair of channels of `SessionMessage`.

    A session is an async context manager: its tasks run in a nursery of the block, and leaving the block ends them all.
    An exception raised in the block leaves the block as the same object. The loss of the link ends the session, never
    the block: pending calls, and later ones, raise the cause.

    Args:
        read: Where messages come from; None for a session that gets them through `feed`.
        write: Where messages go: a channel, or a `SessionSink`.
        options: Limits, timeouts and hooks.

    Subclasses may override `received_request`, `received_notification` and `received_error`.

    Attributes:
        max_faults: How many consecutive faults of the peer end the session.
        on_arrival: Called in the session's task with each message and the transport's metadata for it, before the next
            message is read; returns the metadata to use. The function must neither block nor raise an exception. By
            default None: nothing is called.
    """

    on_arrival: Callable[[Incoming, Mapping[str, Any]], Mapping[str, Any]] | None = None
    max_faults: float = MAX_FAULTS
    _is_client = False
    # Returns HTTP header fields for a request, by its method. Only a client over HTTP sets this.
    _headers_for: Callable[[str], Mapping[str, str] | None] | None = None
    # The methods that need no further check before they are sent. A client replaces this empty set by a set to which it
    # adds methods.
    _allowed: AbstractSet[str] = frozenset()
    # The session's middleware. A subclass sets this before it calls `__init__`.
    _layers = NO_LAYERS

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage] | None,
        write: trio.abc.SendChannel[SessionMessage] | SessionSink,
        *,
        options: SessionOptions | None = None,
    ) -> None:
        # `read` is checked at once: otherwise the session's reader would fail later, in a task where the mistake is
        # hard to find.
        if read is not None and not isinstance(read, trio.abc.ReceiveChannel):
            raise TypeError(f"read must be a trio ReceiveChannel, got {type(read).__name__}")
        self.options = options = options or SessionOptions()
        limits = options.handlers
        self._read = read
        self._added: dict[str, tuple[RequestHandler, type[BaseModel] | None]] = {}
        self._era: ModernClientEra | None = None  # only a client that has found its server to be modern sets this
        self._nursery: trio.Nursery | None = None
        self._closing = False
        self._stopping = False
        self._dropping = False
        # `_finished` is set at the very end, because `aclose` and `wait_closed` must return only when nothing runs any
        # more.
        self._entered = trio.Event()
        self._finished = trio.Event()
        self._peer = Peer(
            max_running=limits.max_running_requests,
            max_queued=limits.max_queued_requests,
            max_bytes=limits.max_incoming_bytes,
            is_urgent=limits.is_urgent,
            # A session that gets its messages through `feed` has no link that would keep them in order.
            clock=trio.current_time if read is None else None,
            is_client=self._is_client,
        )
        self._sink = self._way_out(write)
        # Whether notifications pass through middleware is decided here, once: a session without it has no extra step.
        if self._layers.send_notification:
            self._sink = OutgoingNotifications(self._sink, self._layers.send_notification)
        if self._layers.handle_notification:
            self.feed = self._feed_through  # type: ignore[method-assign]
        self._notices = Notices(self, limits, self._spawn)
        self._logged = 0  # how many faults of the peer have been logged
        self._calls = Calls(self._peer, self._sink, options, self._spawn, self._notices.put)
        self._handlers = Handlers(self._peer, self._sink, self, options, self._spawn_handler, self._reply)

    def _way_out(self, write: object) -> SessionSink:
        if isinstance(write, trio.abc.SendChannel):
            return Outbox(write, self._spawn, max_bulk=self.options.max_outgoing_messages)
        if isinstance(write, SessionSink):
            return write
        raise TypeError(f"write must be a trio SendChannel, got {type(write).__name__}")

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        # `background_nursery` is used because a plain nursery would wrap an exception of the block in an
        # ExceptionGroup.
        async with background_nursery(self.aclose) as nursery:
            await start(nursery, self._run)
            self._entered.set()
            yield

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the session's tasks, in a task and a nursery apart from the block."""
        # The session's nursery is cancelled when another task closes the session. If this nursery were around the
        # block, its cancellation would cancel the block, too.
        try:
            async with background_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                # Nothing is read until the block has been entered, so that the session is complete before the first
                # message.
                await self._entered.wait()
                if self._read is not None:
                    nursery.start_soon(self._read_all, self._read)
                # The nursery stays open for calls and handlers, until a close or the end of the link cancels it.
                try:
                    await trio.sleep_forever()
                finally:
                    self._stopping = True  # must be set before the nursery refuses further tasks
        finally:
            # From now on `_spawn` starts nothing. The session may also have ended because the task around it was
            # cancelled, so everything that a close would have settled is settled now.
            self._nursery = None
            self._settle_everything(SessionClosed("the session was closed"))
            self._notices.clear()
            self._finished.set()

    def _spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a task in the session; do nothing if the session has not begun or has ended."""
        # Each of these tasks ends when its work is done, so an idle session has only its reader.
        if self._nursery is not None and not self._stopping:
            self._nursery.start_soon(function)

    def _spawn_handler(self, run: Callable[[], Awaitable[None]], name: str) -> None:
        assert self._nursery is not None
        self._nursery.start_soon(run, name=name)

    async def aclose(self) -> None:
        """Close the session, from any task; closing it again does nothing.

        Pending calls raise `SessionClosed`, running handlers are cancelled, and messages handed over earlier have
        ``close_grace`` seconds to be sent. If `aclose` is cancelled, it still does all of this, but without waiting.
        """
        if self._lifetime_manager is None:
            await trio.lowlevel.checkpoint()
            return  # the session was never entered, so no task runs
        if not self._closing:
            self._closing = True
            self._settle_everything(SessionClosed("the session was closed"))
            # `closing` is used because a cancellation or Ctrl-C during the flush must not leave the link open, and must
            # not be lost.
            async with closing(self._close_link):
                with trio.move_on_after(self.options.close_grace):
                    await self._sink.flush()
        await self._finished.wait()

    async def _close_link(self) -> None:
        # Each step is taken even if the previous one fails: closing the sink, closing the reading half, stopping the
        # tasks.
        try:
            async with contextlib.nullcontext() if self._read is None else closing(self._read.aclose):
                await self._sink.aclose()
        finally:
            if self._nursery is not None:
                self._nursery.cancel_scope.cancel("the session is closed")

    # --- the lifetime of a session without a link -----------------------------------------------------------------

    def begin(self, nursery: trio.Nursery) -> None:
        """Run the session's tasks in the given nursery, until `end`.

        A session that gets its messages through `feed` is started with this method instead of being entered.
        """
        # No reader is started, because the endpoint feeds the session its messages.
        self._nursery = nursery

    def end(self, why: str) -> None:
        """End a session started by `begin`: cancel handlers, and fail calls with `SessionClosed`.

        Ending it again does nothing.
        """
        self._closing = True
        self._settle_everything(SessionClosed(why))
        self._sink.give_up()
        self._nursery = None

    def finish(self) -> None:
        """Complete the end of a session started by `begin`, once none of its tasks are running any more."""
        self._notices.clear()
        self._finished.set()

    @property
    def busy(self) -> bool:
        """Whether a request from the peer is under way."""
        # `running_count` is needed, too, because a cancelled request remains under way until its handler has ended.
        return self._peer.incoming_count > 0 or self._peer.running_count > 0

    def serves(self, request_id: RequestId) -> bool:
        """Return whether a request from the peer is running or queued, without a response or a cancellation."""
        return self._peer.serves(request_id)

    async def wait_idle(self) -> None:
        """Wait until no handlers are running, except those of lasting requests."""
        await self._handlers.wait_idle()

    async def wait_settled(self) -> None:
        """Wait until no request from the peer is under way."""
        await self._handlers.wait_for(lambda: not self.busy)

    # --- the end ----------------------------------------------------------------------------------------------------

    async def wait_closed(self) -> None:
        """Wait until the session has ended, by `aclose` or because the link was closed or lost."""
        await self._finished.wait()

    @property
    def next_request_id(self) -> int:
        """The id of our next request."""
        return self._peer.next_id

    @property
    def closed(self) -> bool:
        """Whether no more calls can be made."""
        return self._calls.lost is not None

    @property
    def close_cause(self) -> Exception | None:
        """The reason why no more calls can be made, as a new copy of the exception; None while they can."""
        lost = self._calls.lost
        return None if lost is None else another(lost)

    def statistics(self) -> SessionStatistics:
        """Return a snapshot of what the session is doing. This method is cheap: it only reads counters."""
        peer, sink = self._peer, self._sink
        bulk, control = sink.waiting
        from trio_mcp.session.statistics import SessionStatistics

        return SessionStatistics(
            outgoing=peer.outgoing_count,
            incoming=peer.incoming_count,
            running=peer.running_count,
            queued=peer.queued_count,
            listening=peer.listening_count,
            bulk_waiting=bulk,
            control_waiting=control,
            flushed=sink.idle,
            notices_waiting=len(self._notices),
            closed=self.closed,
        )

    def _settle_everything(self, error: Exception) -> None:
        # The first reason is kept, because the loss of the link says more than the close of the session that follows
        # it.
        self._calls.lose(error)
        why = str(self._calls.lost)
        _, incoming = self._peer.close()
        for received in incoming:
            received.cancel_handler(why)

    # --- reading -------------------------------------------------------------------------------------------------

    async def _read_all(self, read: trio.abc.ReceiveChannel[SessionMessage]) -> None:
        """Act on messages as they arrive, until the link ends."""
        # The reader never waits for the writer or for a handler (rule 1 of docs/design.md): two sessions whose readers
        # wait for their writers would block each other forever. If the channel is a `DirectReceiveChannel`, messages
        # are acted on in the sender's task; other channels have no `deliver_to`.
        deliver_to: Callable[[Take], Awaitable[NoReturn]] | None = (
            None if self._has_foreign_hooks() else getattr(read, "deliver_to", None)
        )
        lost: Exception | None = None
        try:
            await (_deliver(read, self._take) if deliver_to is None else deliver_to(self._take))
        except trio.EndOfChannel:
            pass  # this is the orderly end: the peer has closed its sending side
        except LinkLostError as exc:
            lost = exc.cause
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            lost = TransportError(f"the link is broken: {exc}" if str(exc) else "the link is broken")
        await self._link_ended(lost)

    def _has_foreign_hooks(self) -> bool:
        """Return whether acting on a message calls a function that is not the library's own."""
        # With such a hook, messages are acted on in the session's own task. In memory, the sender's task is the peer's
        # caller, and its sending must not run functions that a program has set on this side.
        urgent = self.options.handlers.urgent
        hooks = (
            *(self.make_context, self.intercept, self.on_arrival, urgent if callable(urgent) else None),
            *self._layers.handle_notification,
        )
        # Some functions that are written in C have no module, so they count as foreign.
        return any(
            not str(getattr(hook, "__module__", None)).startswith("trio_mcp.") for hook in hooks if hook is not None
        )

    def _take(self, item: SessionMessage) -> None:
        message = item.message
        # A failure without a request id means that the whole link is lost.
        if type(message) is TransportFailure and message.request_id is None:
            raise LinkLostError(message.error)
        self.feed(message, item.metadata)

    def feed(self, message: Incoming, metadata: Mapping[str, Any] | None = None, hold: Hold | None = None) -> None:
        """Act on an incoming message, without waiting.

        Args:
            message: The message from the peer.
            metadata: The transport's metadata for it.
            hold: The transport's hold on the message, kept until everything that the message has started is done.

        Raises:
            LinkLostError: If the message is one fault too many; the session must then be ended.
        """
        # This is a sync function, so that one message takes its whole effect before the next one is processed.
        peer = self._peer
        if self.on_arrival is not None:
            metadata = self.on_arrival(message, metadata or {})
        for event in (
            peer.fail(message.request_id, message.error)
            if type(message) is TransportFailure
            else peer.receive(message, metadata, hold)
        ):
            match event:
                case Settled():
                    waiter = event.outgoing.waiter
                    # If messages that arrived before the response are still being handled, the call waits until they
                    # are done.
                    if self._notices.handling:
                        waiter.behind = self._notices.mark()
                    waiter.settle(event.outcome)
                case RequestStarted():
                    self._handlers.start(event.incoming)
                case NotificationReceived():
                    # `notifications/initialized` must take effect at once, but its handler may run much later.
                    self._note(event.notification)
                    self._notices.put(event.notification, hold)
                case ProgressReceived():
                    event.outgoing.waiter.add_progress(event.params, event.size)
                case CancelRequested():
                    event.incoming.cancel_handler(event.reason or "the peer cancelled the request")
                case Reply():
                    self._reply(SessionMessage(event.message))
                case Fault():
                    self._notices.put(event.error)
                    if peer.faults >= self.max_faults:  # checked before the reply to this fault is sent
                        lost = too_many_faults("the peer", peer.faults, event.error)
                        logger.warning("ending the session: %s", lost)
                        raise LinkLostError(lost)

    def _feed_through(
        self, message: Incoming, metadata: Mapping[str, Any] | None = None, hold: Hold | None = None
    ) -> None:
        """Act on what middleware leaves of an incoming message."""
        left = passed_in(self._layers.handle_notification, message, self._middleware_failed)
        if left is not None:
            BaseSession.feed(self, left, metadata, hold)

    def _middleware_failed(self, exc: Exception) -> None:
        # As with the handler of a notification, this error says that the peer is at fault.
        if isinstance(exc, RemoteProtocolError):
            self._notices.put(exc)
        else:
            logger.error("a middleware failed for a notification", exc_info=exc)

    def _reply(self, message: SessionMessage) -> None:
        taken = self._sink.put_control(message)
        if not taken and not self._dropping:  # one report is enough: a peer must not be able to fill the log
            self._notices.put(RemoteProtocolError("the peer is not reading; responses to it are being dropped"))
        self._dropping = not taken

    async def _link_ended(self, lost: Exception | None) -> None:
        if lost is None:
            # The peer has closed its sending side, but may still be reading, so running handlers get time to finish.
            # Our own calls fail at once, because no response can arrive any more.
            self._calls.lose(SessionClosed("the peer closed the link"))
            # Lasting requests are not waited for, because they would use up the whole grace period.
            with trio.move_on_after(self.options.handlers.drain_grace):
                await self._handlers.wait_idle()
            self._settle_everything(SessionClosed("the peer closed the link"))
            with trio.move_on_after(self.options.close_grace):
                await self._sink.flush()
        else:
            # No response can be sent any more, so handlers get no time to finish.
            self._settle_everything(lost)
        await self._close_link()

    # --- hooks ---------------------------------------------------------------------------------------------------

    def make_context(self, incoming: IncomingRequest) -> RequestContext:
        """Return the context for the handler of a request."""
        return RequestContext(incoming, self._sink)

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        """Look at a request before its handler is started, in the order of arrival.

        Returns:
            The result, if it is to be sent at once; None to let the handler run.

        Raises:
            McpError: To refuse the request.
        """
        return {} if context.method == "ping" else None

    def error_for(self, exc: Exception, context: RequestContext) -> ErrorData:
        """Return the error to send for an exception that a handler raised; log all but `McpError`."""
        return error_for(exc, context.method)

    async def received_request(self, context: RequestContext) -> Any:
        """Handle one request, and return its result. Override this to handle all requests yourself.

        This method runs in a separate task, inside the request's cancel scope. The base class calls the handler added
        with `add_request_handler`. A result is a model, a mapping, or None for an empty result; an exception becomes an
        error response.
        """
        handler, params_type = self._added.get(context.method, (None, None))
        if handler is None:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}")
        params: Any = context.params
        if params_type is not None:
            try:
                params = params_type.model_validate(params)
            except ValidationError as exc:
                raise McpError(INVALID_PARAMS, f"invalid parameters for {context.method!r}: {brief(exc)}") from None
        return await handler(params, context)

    async def received_notification(self, notification: Notification) -> None:
        """Handle one notification. Override this; the base class ignores notifications.

        Cancellations and progress are not passed to this method. Notifications and errors are handled one at a time, in
        the order of arrival.
        """

    async def received_error(self, error: RemoteProtocolError) -> None:
        """Handle a fault in incoming messages that does not belong to a request.

        Override this; the base class calls the options' ``on_error``, or logs a warning.
        """
        on_error = self.options.on_error
        if on_error is None:
            self._logged += 1
            if self._logged <= MAX_LOGGED_FAULTS:
                logger.warning("from the peer: %s", error)
            if self._logged == MAX_LOGGED_FAULTS:
                logger.warning("from the peer: further faults are not logged; to see them, set on_error")
            return
        await call_back(on_error, error)

    def _note(self, notification: Notification) -> None:
        """Process a notification before any later message; a hook, after which the notification's handler runs."""

    def add_request_handler(
        self, method: str, handler: RequestHandler, params_type: type[BaseModel] | None = None
    ) -> None:
        """Add a handler for a method, such as one that the protocol does not define.

        Args:
            method: The method's name.
            handler: ``async (params, context) -> result``; the result is a model, a dict, or None for an empty result.
            params_type: The model that validates the parameters; without it the handler gets plain data.

        Raises:
            ValueError: If the method already has a handler.
        """
        if method in self._added:
            raise ValueError(f"the method {method!r} already has a handler")
        self._added[method] = (handler, params_type)

    # --- what we send --------------------------------------------------------------------------------------------

    @overload
    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = ...,
        result_type: None = ...,
        *,
        related_request_id: RequestId | None = ...,
        **limits: Unpack[CallLimits],
    ) -> dict[str, Any]: ...

    @overload
    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None,
        result_type: type[ResultT],
        *,
        related_request_id: RequestId | None = ...,
        **limits: Unpack[CallLimits],
    ) -> ResultT: ...

    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = None,
        result_type: type[BaseModel] | None = None,
        *,
        related_request_id: RequestId | None = None,
        **limits: Unpack[CallLimits],
    ) -> Any:
        """Send a request and wait for its result.

        Args:
            method: The method's name.
            params: The parameters: a model, or plain JSON data.
            result_type: The model that validates the result; without it the result is plain data.
            related_request_id: The id of the peer's request during which this one is sent. A transport with a stream
                for each request sends our request on the stream of the peer's.
            limits: ``timeout``, ``total_timeout``, ``reset_on_progress``, ``on_progress``, ``urgent`` and ``headers``:
                see `CallLimits`.

        Raises:
            McpError: If the peer responds with an error.
            RequestTimeout: If no response comes in time.
            TransportError: If the link fails or the session is closed.
            RemoteProtocolError: If the result is malformed.
            LocalProtocolError: If the request is not allowed now; nothing has been sent.

        If cancelled, the call tells the peer (with the reason) and ends at once, without waiting for anything.
        """
        merged = self._calls.usual
        if limits:
            refuse_unknown(BaseSession.send_request, limits, CallLimits)
            merged = Limits.of(self.options.calls, limits)
        if merged.headers is not None or self._headers_for is not None:
            merged = self._with_headers(method, merged)
        if method not in self._allowed:
            self._check_outgoing(method)
        # Plain data is sent as it is, without a copy, because params may be large.
        plain = params if params is None or type(params) is dict else as_object(params, "params")
        result = await self._call(method, plain, merged, related=related_request_id)
        return result if result_type is None else as_result(result, result_type, method)

    async def _call(
        self,
        method: str,
        params: dict[str, Any] | None,
        limits: Limits,
        *,
        related: RequestId | None = None,
        opened: Callable[[OutgoingRequest], None] | None = None,
    ) -> dict[str, Any]:
        """Send a request, with the trace context and the client's declaration added to its ``_meta``."""
        # The variable is read in the caller's task, because the reader and the writer have other context variables.
        trace, era = CURRENT_TRACE.get(), self._era
        if trace is not None:
            params = trace.added_to(params)
        if era is None:
            return await self._calls.call(method, params, limits, opened, related)
        result = await self._calls.call(method, era.request_params(params), limits, opened, related)
        return era.read_result(result, method)

    async def send_notification(
        self, method: str, params: BaseModel | Mapping[str, Any] | None = None, *, urgent: bool = False
    ) -> None:
        """Send a notification.

        Args:
            method: The method's name.
            params: The parameters: a model, or plain JSON data.
            urgent: Whether this notification overtakes other requests and notifications that wait to be sent
                (docs/explanation/sessions.md).

        Waits while too many messages are queued for the link. If the call is cancelled during that wait, nothing is
        sent.

        Raises:
            TransportError: If the link has failed or the session is closed.
            LocalProtocolError: If the notification is not allowed now.
        """
        self._check_outgoing(method)
        plain = None if params is None else as_object(params, "params")
        await trio.lowlevel.checkpoint()
        await self._sink.room(urgent=urgent)
        # The session may have been closed while the notification waited for room.
        self._calls.check_open()
        self._sink.put(SessionMessage(Notification(method, plain), urgent=urgent))

    def _with_headers(self, method: str, limits: Limits) -> Limits:
        """Return the limits of a request with all of the request's own headers: a hook for clients.

        Raises:
            LocalProtocolError: If the link can't send headers with a single request.
        """
        raise LocalProtocolError(
            f"{method!r} was not sent with headers of its own: only a client that reaches its server over HTTP can send"
            " any (with several ways to the server, each of them)"
        )

    def _check_outgoing(self, method: str) -> None:
        """Check that a method may be sent now: a hook for the rules of each side.

        Raises:
            LocalProtocolError: If the revision lacks the method, or a capability is missing.
        """


class LinkLostError(Exception):
    """Raised by the function that acts on messages if the link is lost or useless; no further messages are read."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause


def too_many_faults(who: str, count: int, last: object) -> TransportError:
    """Return the error with which a session ends, or a connection is given up, after too many consecutive faults."""
    return TransportError(
        f"{who} has sent {count} faults in a row, and nothing valid in between; the last one: {last}."
        " Does it speak MCP, and does it write only messages to its standard output?"
    )


async def _deliver(read: trio.abc.ReceiveChannel[SessionMessage], take: Take) -> NoReturn:
    """Do what `DirectReceiveChannel.deliver_to` does, for a channel of another class."""
    # Memory channels have `receive_nowait`, but channels of other classes need not have it.
    receive_nowait: Callable[[], SessionMessage] | None = getattr(read, "receive_nowait", None)
    while True:
        take(await read.receive())
        # Messages that have arrived in the meantime are taken without a checkpoint, which would cost more than handling
        # a message.
        for _ in range(0 if receive_nowait is None else BURST):
            try:
                item = receive_nowait()  # type: ignore[misc]
            except trio.WouldBlock:
                break
            take(item)
