"""What both sides' sessions are made of. See docs/design for the walk through it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Self, TypeVar, overload

import trio
from pydantic import BaseModel, ValidationError

from trio_mcp._nursery import background_nursery
from trio_mcp.errors import LocalProtocolError, McpError, RemoteProtocolError, SessionClosed, TransportError
from trio_mcp.protocol.messages import ErrorData, Failure, Notification, SessionMessage
from trio_mcp.protocol.peer import (
    CancelRequested,
    Event,
    Fault,
    IncomingRequest,
    NotificationReceived,
    Peer,
    ProgressReceived,
    Reply,
    RequestStarted,
    Settled,
)
from trio_mcp.session.calling import USE_SESSION, CallOptions, Limit, ProgressCallback, call
from trio_mcp.session.convert import another, as_object, brief
from trio_mcp.session.options import RequestRecord, SessionOptions
from trio_mcp.session.outbox import Outbox
from trio_mcp.session.responder import Responder
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND

__all__ = ["BaseSession"]

logger = logging.getLogger("trio_mcp")

ResultT = TypeVar("ResultT", bound=BaseModel)
RequestHandler = Callable[[Any, Responder], Awaitable[Any]]

# How many messages the reader takes in one go before it lets other tasks run.
READ_BURST = 64


class BaseSession:
    """One side of a conversation: requests in both directions over a pair of memory channels of `SessionMessage`.

    An async context manager: its tasks live in a nursery inside the block, and leaving the block ends them all. What
    leaves the block is the very object that was raised in it. The loss of the link ends the session, never the block:
    every pending call, and every later one, raises what happened.

    Args:
        read: Where messages come from.
        write: Where messages go.
        options: Limits, timeouts and hooks.
        on_error: Called, sync or async, with what arrived and belongs to no request (a `RemoteProtocolError`).
            Without it such things are logged as warnings.

    Subclasses may override `received_request`, `received_notification` and `handle_incoming`.
    """

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage],
        write: trio.abc.SendChannel[SessionMessage],
        *,
        options: SessionOptions | None = None,
        on_error: Callable[[RemoteProtocolError], object] | None = None,
    ) -> None:
        for name, channel, kind in (
            ("read", read, trio.abc.ReceiveChannel),
            ("write", write, trio.abc.SendChannel),
        ):
            if not isinstance(channel, kind):
                raise TypeError(f"{name} must be a trio {kind.__name__}, got {type(channel).__name__}")
        self.options = options or SessionOptions()
        self._read = read
        self._on_error = on_error
        self._peer = Peer(max_running=self.options.max_running_requests, max_queued=self.options.max_queued_requests)
        self._outbox = Outbox(write, max_bulk=self.options.max_outgoing_messages)
        self._handlers: dict[str, tuple[RequestHandler, type[BaseModel] | None]] = {}
        self._notices, self._notices_in = trio.open_memory_channel[Notification | RemoteProtocolError](
            self.options.max_pending_notifications
        )
        self._nursery: trio.Nursery | None = None
        self._lifetime_manager: contextlib.AbstractAsyncContextManager[None] | None = None
        self._lost: Exception | None = None
        self._closing = False
        self._finished = trio.Event()
        self._handlers_idle = trio.lowlevel.ParkingLot()

    # --- lifetime ------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._lifetime_manager is not None:
            raise LocalProtocolError("a session can be entered only once")
        self._lifetime_manager = self._lifetime()
        await self._lifetime_manager.__aenter__()
        return self

    async def __aexit__(self, *exc_info: object) -> bool | None:
        assert self._lifetime_manager is not None
        return await self._lifetime_manager.__aexit__(*exc_info)

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        async with background_nursery() as nursery:
            await nursery.start(self._run)
            try:
                yield
            finally:
                await self.aclose()

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        """Everything of the session that is not its block, so that a close from outside never cancels the block."""
        try:
            async with background_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._outbox.run)
                nursery.start_soon(self._read_all)
                nursery.start_soon(self._handle_notices)
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._settle_everything(SessionClosed("the session was closed"))
            self._notices.close()
            self._notices_in.close()
            self._finished.set()

    async def aclose(self) -> None:
        """End the session, from any task; again is a no-op.

        Every pending call raises `SessionClosed`, running handlers are cancelled, messages handed over before are
        given ``close_grace`` seconds to leave. When cancelled, it does all that without the waiting.
        """
        if not self._closing:
            self._closing = True
            self._settle_everything(SessionClosed("the session was closed while the call was waiting"))
            try:
                with trio.move_on_after(self.options.close_grace):
                    await self._outbox.flush()
            finally:
                await self._close_link()
        await self._finished.wait()

    async def _close_link(self) -> None:
        try:
            await self._outbox.aclose()
        finally:
            try:
                await self._read.aclose()
            finally:
                if self._nursery is not None:
                    self._nursery.cancel_scope.cancel("the session is closed")

    async def wait_closed(self) -> None:
        """Wait until the session has ended: by `aclose`, or because the link was closed or lost."""
        await self._finished.wait()

    @property
    def closed(self) -> bool:
        """Whether no call can be made any more."""
        return self._lost is not None

    def _settle_everything(self, error: Exception) -> None:
        if self._lost is None:
            self._lost = error
        outgoing, incoming = self._peer.close()
        for request in outgoing:
            request.waiter.settle(another(self._lost))
        for received in incoming:
            received.context.cancel_scope.cancel(str(self._lost))

    # --- reading -------------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        """The reader: it never waits for the writer or a handler, or the two sides could wait for each other."""
        read = self._read
        receive_nowait = read.receive_nowait if isinstance(read, trio.MemoryReceiveChannel) else None
        lost: Exception | None = None
        try:
            while lost is None:
                lost = self._take(await read.receive())
                if receive_nowait is not None and lost is None:
                    lost = self._take_burst(receive_nowait)
        except trio.EndOfChannel:
            pass
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            lost = TransportError(f"the link is broken: {exc}" if str(exc) else "the link is broken")
        await self._link_ended(lost)

    def _take_burst(self, receive_nowait: Callable[[], SessionMessage]) -> Exception | None:
        """What has arrived meanwhile: a checkpoint for each would cost more than the messages themselves."""
        try:
            for _ in range(READ_BURST):
                if (lost := self._take(receive_nowait())) is not None:
                    return lost
        except trio.WouldBlock:
            pass
        return None

    def _take(self, item: SessionMessage) -> Exception | None:
        message = item.message
        if type(message) is Failure:
            if message.request_id is None:
                return message.error
            events = self._peer.fail(message.request_id, message.error)
        else:
            events = self._peer.receive(message, item.metadata)
        for event in events:
            self._handle_event(event)
        return None

    def _handle_event(self, event: Event) -> None:
        match event:
            case RequestStarted():
                self._start(event.incoming)
            case Settled():
                event.outgoing.waiter.settle(event.outcome)
            case NotificationReceived():
                self._note(event.notification)
                self._queue_notice(event.notification)
            case ProgressReceived():
                event.outgoing.waiter.add_progress(event.params)
            case CancelRequested():
                event.incoming.context.cancel_scope.cancel(event.reason or "the peer cancelled the request")
            case Reply():
                self._reply(SessionMessage(event.message))
            case Fault():
                self._queue_notice(event.error)

    def _reply(self, message: SessionMessage) -> None:
        if not self._outbox.put_control(message):
            self._queue_notice(RemoteProtocolError("the peer does not read its answers; one was dropped"))

    def _queue_notice(self, notice: Notification | RemoteProtocolError) -> None:
        try:
            self._notices.send_nowait(notice)
        except trio.WouldBlock:
            logger.warning("notifications arrive faster than they are handled; dropped: %s", notice)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            pass

    async def _link_ended(self, lost: Exception | None) -> None:
        if lost is None:
            # The peer has closed its sending side, but may still read: let running handlers finish, for a moment.
            self._lost = self._lost or SessionClosed("the peer closed the link")
            for request in self._peer.end_of_input():
                request.waiter.settle(another(self._lost))
            with trio.move_on_after(self.options.drain_grace):
                while self._peer.running_count:
                    await self._handlers_idle.park()
            self._settle_everything(self._lost)
            with trio.move_on_after(self.options.close_grace):
                await self._outbox.flush()
        else:
            self._settle_everything(lost)
        await self._close_link()

    # --- the peer's requests -------------------------------------------------------------------------------------

    def _start(self, incoming: IncomingRequest) -> None:
        """Run its handler, and where the request is answered on the spot those of its successors in the queue."""
        successor: IncomingRequest | None = incoming
        while successor is not None and not self._begin(successor):
            successor = self._peer.finished(successor)

    def _begin(self, incoming: IncomingRequest) -> bool:
        """Answer a request on the spot (False), or start the task of its handler (True)."""
        responder = incoming.context = Responder(self, incoming)
        try:
            result = self._intercept(responder)
        except McpError as exc:
            message = self._peer.answer(incoming, ErrorData(exc.code, exc.message, exc.data))
        else:
            if result is None:
                assert self._nursery is not None
                self._nursery.start_soon(self._serve, responder, incoming, name=f"request {incoming.request.method}")
                return True
            message = self._peer.answer(incoming, result)
        if message is not None:
            self._reply(SessionMessage(message, incoming.request.id))
        return False

    def _intercept(self, responder: Responder) -> dict[str, Any] | None:
        """Look at a request in the order of arrival, before its handler: answer it on the spot or let it through.

        Raises:
            McpError: It is refused.
        """
        return {} if responder.method == "ping" else None

    async def _serve(self, responder: Responder, incoming: IncomingRequest) -> None:
        started = trio.current_time()
        try:
            with responder.cancel_scope:
                try:
                    await self.handle_incoming(responder)
                    if not responder.answered:
                        raise LocalProtocolError(f"the handler of {responder.method!r} gave no answer")
                except Exception as exc:
                    if responder.answered:
                        logger.exception("the handler of %r failed after its answer", responder.method)
                    else:
                        error = self.error_for(exc, responder)
                        await responder.respond_error(error.code, error.message, error.data)
        finally:
            self._free(incoming)
            if self.options.watched:
                outcome = responder.outcome if responder.answered else "cancelled"
                duration = trio.current_time() - started
                self.options.record(RequestRecord(responder.method, "in", duration, outcome))  # type: ignore[arg-type]

    def error_for(self, exc: Exception, responder: Responder) -> ErrorData:
        """The error answer for an exception that a handler raised; anything but an `McpError` goes to the log."""
        if isinstance(exc, McpError):
            return ErrorData(exc.code, exc.message, exc.data)
        logger.error("the handler of %r failed", responder.method, exc_info=exc)
        return ErrorData(INTERNAL_ERROR, f"internal error in {responder.method!r}")

    def _free(self, incoming: IncomingRequest) -> None:
        successor = self._peer.finished(incoming)
        if successor is not None:
            self._start(successor)
        if not self._peer.running_count:
            self._handlers_idle.unpark_all()

    # --- hooks ---------------------------------------------------------------------------------------------------

    async def handle_incoming(self, incoming: Responder | Notification | RemoteProtocolError) -> None:
        """See everything that arrives and is not an answer, and route it: override it to intercept.

        A request comes in a task of its own, inside its cancel scope; notifications and errors come one after the
        other, in the order of arrival.
        """
        if isinstance(incoming, Responder):
            await self.received_request(incoming)
        elif isinstance(incoming, Notification):
            await self.received_notification(incoming)
        else:
            await self._report(incoming)

    async def received_request(self, responder: Responder) -> None:
        """Answer one request: override it to answer them all yourself.

        As it stands it looks for a handler added with `add_request_handler`. An exception becomes an error answer.
        """
        handler, params_type = self._handlers.get(responder.method, (None, None))
        if handler is None:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {responder.method!r}")
        params: Any = responder.params
        if params_type is not None:
            try:
                params = params_type.model_validate(params)
            except ValidationError as exc:
                raise McpError(INVALID_PARAMS, f"invalid parameters for {responder.method!r}: {brief(exc)}") from None
        result = await handler(params, responder)
        if not responder.answered:
            await responder.respond({} if result is None else as_object(result, "a handler's result"))

    async def received_notification(self, notification: Notification) -> None:
        """Take one notification: override it. Those of the protocol's own bookkeeping don't come here."""

    async def _report(self, error: RemoteProtocolError) -> None:
        if self._on_error is None:
            logger.warning("from the peer: %s", error)
            return
        outcome = self._on_error(error)
        if isinstance(outcome, Awaitable):
            await outcome

    def _note(self, notification: Notification) -> None:
        """Look at a notification in the order of arrival, before any later message is looked at."""

    async def _handle_notices(self) -> None:
        async for notice in self._notices_in:
            try:
                await self.handle_incoming(notice)
            except Exception:
                logger.exception("the handler of %s failed", notice)

    def add_request_handler(
        self, method: str, handler: RequestHandler, params_type: type[BaseModel] | None = None
    ) -> None:
        """Answer a method, for example one of your own.

        Args:
            method: The method's name.
            handler: ``async (params, responder) -> result``; the result is a model, a dict, or None for an empty one.
            params_type: The model that validates the parameters; without it the handler gets plain data.

        Raises:
            ValueError: The method has a handler already.
        """
        if method in self._handlers:
            raise ValueError(f"the method {method!r} has a handler already")
        self._handlers[method] = (handler, params_type)

    # --- our requests --------------------------------------------------------------------------------------------

    @overload
    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = ...,
        result_type: None = ...,
        *,
        timeout: Limit = ...,
        total_timeout: Limit = ...,
        reset_on_progress: bool | None = ...,
        on_progress: ProgressCallback | None = ...,
    ) -> dict[str, Any]: ...

    @overload
    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None,
        result_type: type[ResultT],
        *,
        timeout: Limit = ...,
        total_timeout: Limit = ...,
        reset_on_progress: bool | None = ...,
        on_progress: ProgressCallback | None = ...,
    ) -> ResultT: ...

    async def send_request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = None,
        result_type: type[BaseModel] | None = None,
        *,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        reset_on_progress: bool | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Any:
        """Send a request and wait for its answer.

        Args:
            method: The method's name.
            params: Its parameters: a model, or plain JSON data.
            result_type: The model that validates the result; without it the result is plain data.
            timeout: Seconds without an answer; None waits for ever; by default the session's.
            total_timeout: Seconds whatever happens; None sets no such limit; by default the session's.
            reset_on_progress: Whether progress restarts ``timeout``; by default the session's.
            on_progress: Called, sync or async, in this task, with a `ProgressNotificationParams` for each progress
                notification in order; all are done before this returns. What it raises is raised here, and the
                request is cancelled.

        Raises:
            McpError: The peer answered with an error.
            RequestTimeout: No answer came in time.
            TransportError: The link failed or the session was closed.
            RemoteProtocolError: The answer is not what the method answers.
            LocalProtocolError: The request is not allowed now; nothing was sent.

        When cancelled, the peer is told (with the reason) and the call ends at once, without waiting for anything.
        """
        options = CallOptions.of(self.options.timeouts, timeout, total_timeout, reset_on_progress, on_progress)
        self._check_outgoing(method)
        result = await call(self, method, self._stamp(None if params is None else as_object(params, "params")), options)
        result = self._read_result(result)
        if result_type is None:
            return result
        try:
            return result_type.model_validate(result, by_alias=True, by_name=False)
        except ValidationError as exc:
            text = f"the answer to {method!r} is no valid {result_type.__name__}: {brief(exc)}"
            raise RemoteProtocolError(text) from None

    async def send_notification(self, method: str, params: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Send a notification.

        Waits while too much is queued for the link. When cancelled before that, nothing has been sent.

        Raises:
            TransportError: The link failed or the session was closed.
            LocalProtocolError: The notification is not allowed now.
        """
        self._check_outgoing(method)
        plain = None if params is None else as_object(params, "params")
        await trio.lowlevel.checkpoint()
        await self._outbox.room()
        if self._lost is not None:
            raise another(self._lost)
        self._outbox.put(SessionMessage(Notification(method, plain)))

    def _check_outgoing(self, method: str) -> None:
        """Refuse what may not be sent now: the hook for each side's rules.

        Raises:
            LocalProtocolError: The revision has no such method, or a capability is missing.
        """

    def _stamp(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """What every request of ours carries, by the rules of the era."""
        return params

    def _read_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Check what every result carries, by the rules of the era."""
        return result
