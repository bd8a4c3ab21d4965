"""The machinery of a session: its lifetime, its reader, and the tasks of the peer's requests. See docs/design."""

from __future__ import annotations

import abc
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import trio

from trio_mcp._nursery import EnteredOnce, background_nursery
from trio_mcp.errors import LocalProtocolError, McpError, RemoteProtocolError, SessionClosed, TransportError
from trio_mcp.protocol.events import (
    CancelRequested,
    Event,
    Fault,
    IncomingRequest,
    NotificationReceived,
    OutgoingRequest,
    ProgressReceived,
    Reply,
    RequestStarted,
    Settled,
)
from trio_mcp.protocol.messages import ErrorData, Failure, Notification, RequestId, SessionMessage
from trio_mcp.protocol.peer import Peer
from trio_mcp.session.call import TIMED_OUT
from trio_mcp.session.convert import another
from trio_mcp.session.deadlines import Deadlines
from trio_mcp.session.options import RequestRecord, SessionOptions
from trio_mcp.session.outbox import Outbox
from trio_mcp.session.responder import Responder

__all__ = ["SessionCore", "SessionStatistics"]

logger = logging.getLogger("trio_mcp")

# How many messages the reader takes in one go before it lets other tasks run.
READ_BURST = 64


def _time_out(request: OutgoingRequest) -> None:
    request.waiter.settle(TIMED_OUT)


@attrs.frozen
class SessionStatistics:
    """What a session is doing.

    Attributes:
        outgoing: Requests of ours that wait for their answer.
        incoming: Requests of the peer's that are neither answered nor cancelled, running or queued.
        running: Handlers that run, those that listen aside.
        queued: Requests of the peer's that wait until fewer handlers run.
        listening: Requests ``subscriptions/listen`` of the peer's that are open.
        bulk_waiting: Messages that wait for the link.
        control_waiting: Messages that wait for the link and overtake those: cancellations, answers given on the spot.
        flushed: Whether the link has taken everything, so that nothing waits and nothing is being written.
        notices_waiting: Notifications and faults that wait for their handler.
        closed: Whether no call can be made any more.
    """

    outgoing: int
    incoming: int
    running: int
    queued: int
    listening: int
    bulk_waiting: int
    control_waiting: int
    flushed: bool
    notices_waiting: int
    closed: bool


class SessionCore(EnteredOnce):
    """What runs inside a `BaseSession`; the hooks it calls are defined there."""

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage],
        write: trio.abc.SendChannel[SessionMessage],
        options: SessionOptions,
    ) -> None:
        for name, channel, kind in (
            ("read", read, trio.abc.ReceiveChannel),
            ("write", write, trio.abc.SendChannel),
        ):
            if not isinstance(channel, kind):
                raise TypeError(f"{name} must be a trio {kind.__name__}, got {type(channel).__name__}")
        self.options = options
        self._read = read
        self._peer = Peer(max_running=self.options.max_running_requests, max_queued=self.options.max_queued_requests)
        self._outbox = Outbox(write, self._spawn, max_bulk=self.options.max_outgoing_messages)
        self._notices: deque[Notification | RemoteProtocolError] = deque()
        self._handling_notices = False
        self._deadlines = Deadlines(_time_out)
        self._nursery: trio.Nursery | None = None
        self._lost: Exception | None = None
        self._closing = False
        self._dropping = False
        self._overrun = False
        self._finished = trio.Event()
        self._handlers_idle = trio.lowlevel.ParkingLot()

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        async with background_nursery(self.aclose) as nursery:
            await nursery.start(self._run)
            yield

    async def _run(self, task_status: trio.TaskStatus[None]) -> None:
        """Everything of the session that is not its block, so that a close from outside never cancels the block."""
        try:
            async with background_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._read_all)
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self._settle_everything(SessionClosed("the session was closed"))
            self._notices.clear()
            self._finished.set()

    def _spawn(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run something of the session's own in a task, as long as there is work: an idle session has only its reader.

        A session that has ended, or has not begun, has nothing to run.
        """
        if self._nursery is not None:
            self._nursery.start_soon(function)

    async def _room_for(self, request_id: RequestId) -> None:
        """Wait until something may be sent that belongs to a request of the peer's."""
        await self._outbox.room()

    async def aclose(self) -> None:
        """End the session, from any task; again is a no-op.

        Every pending call raises `SessionClosed`, running handlers are cancelled, messages handed over before are
        given ``close_grace`` seconds to leave. When cancelled, it does all that without the waiting.
        """
        if self._lifetime_manager is None:
            return  # never entered, so nothing runs
        if not self._closing:
            self._closing = True
            self._settle_everything(SessionClosed("the session was closed"))
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
    def next_request_id(self) -> int:
        """The id that the next request of ours gets."""
        return self._peer.next_id

    @property
    def closed(self) -> bool:
        """Whether no call can be made any more."""
        return self._lost is not None

    @property
    def close_cause(self) -> Exception | None:
        """Why no call can be made any more, a copy of the caller's own; None as long as there is no reason."""
        return None if self._lost is None else another(self._lost)

    def statistics(self) -> SessionStatistics:
        """What the session is doing now. Cheap: it only looks at counters."""
        peer, outbox = self._peer, self._outbox
        bulk, control = outbox.waiting
        return SessionStatistics(
            outgoing=peer.outgoing_count,
            incoming=peer.incoming_count,
            running=peer.running_count,
            queued=peer.queued_count,
            listening=peer.listening_count,
            bulk_waiting=bulk,
            control_waiting=control,
            flushed=outbox.idle,
            notices_waiting=len(self._notices),
            closed=self.closed,
        )

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
        receive_nowait: Callable[[], SessionMessage] | None = getattr(read, "receive_nowait", None)
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
            case Settled():
                event.outgoing.waiter.settle(event.outcome)
            case RequestStarted():
                self._start(event.incoming)
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
        taken = self._outbox.put_control(message)
        if not taken and not self._dropping:  # said once, or a peer could fill the log
            self._queue_notice(RemoteProtocolError("the peer does not read its answers; some are dropped"))
        self._dropping = not taken

    def _queue_notice(self, notice: Notification | RemoteProtocolError) -> None:
        if len(self._notices) < self.options.max_pending_notifications:
            self._overrun = False
            self._notices.append(notice)
            if not self._handling_notices:
                self._handling_notices = True
                self._spawn(self._handle_notices)
        else:
            if not self._overrun:
                logger.warning("notifications arrive faster than they are handled; some are dropped")
            self._overrun = True

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
        watched = self.options.watched
        started = trio.current_time() if watched else 0.0
        try:
            failure = await self._handle(responder)
            if failure is not None or not responder.answered:
                await self._conclude(responder, incoming, failure)
        finally:
            self._free(incoming)
            incoming.context = None  # it refers back: the two would wait for the garbage collector
            if watched:
                outcome = responder.outcome if responder.answered else "cancelled"
                duration = trio.current_time() - started
                self.options.record(RequestRecord(responder.method, "in", duration, outcome))  # type: ignore[arg-type]

    async def _handle(self, responder: Responder) -> Exception | None:
        """Run the handler in its cancel scope; gives what it raised."""
        try:
            with responder.cancel_scope:
                await self.handle_incoming(responder)
        except Exception as exc:
            return exc
        except BaseExceptionGroup as group:
            # A nursery of the handler's that was cancelled together with the session, and failed on the way out.
            cancelled, failures = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failures, ExceptionGroup):
                raise
            logger.error("the handler of %r failed", responder.method, exc_info=failures)
            raise cancelled from None
        return None

    async def _conclude(self, responder: Responder, incoming: IncomingRequest, failure: Exception | None) -> None:
        """Answer for a handler that has not done it itself."""
        if responder.answered or incoming.cancelled:
            if failure is not None and not isinstance(failure, McpError):  # that was to be the answer
                logger.error("the handler of %r failed after the fact", responder.method, exc_info=failure)
            return
        failure = failure or LocalProtocolError(f"the handler of {responder.method!r} gave no answer")
        error = self.error_for(failure, responder)
        await responder.respond_error(error.code, error.message, error.data)

    def _free(self, incoming: IncomingRequest) -> None:
        successor = self._peer.finished(incoming)
        if successor is not None:
            self._start(successor)
        if not self._peer.running_count or incoming.lane is not None:
            self._handlers_idle.unpark_all()

    async def _handle_notices(self) -> None:
        while self._notices:
            notice = self._notices.popleft()
            try:
                await self.handle_incoming(notice)
            except RemoteProtocolError as exc:
                # A handler found the peer at fault: that is for `on_error`, unless it is `on_error` that says so.
                if isinstance(notice, Notification):
                    self._queue_notice(exc)
                else:
                    logger.exception("on_error failed")
            except Exception:
                logger.exception("the handler of %s failed", notice)
        self._handling_notices = False

    # --- hooks, see BaseSession ----------------------------------------------------------------------------------

    @abc.abstractmethod
    async def handle_incoming(self, incoming: Responder | Notification | RemoteProtocolError) -> None: ...

    @abc.abstractmethod
    def _note(self, notification: Notification) -> None: ...

    @abc.abstractmethod
    def error_for(self, exc: Exception, responder: Responder) -> ErrorData: ...
