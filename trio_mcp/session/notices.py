"""Delivers notices, that is, incoming notifications and faults, to callbacks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, Protocol, TypeAlias

import trio

from trio_mcp._log import logger
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.events import Hold
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.jsonrpc.order import MessageQueue
from trio_mcp.session.limits import HandlerOptions

__all__ = ["DELIVERY_TIME", "Delivery", "Notices"]

DELIVERY_TIME: Final = 1.0
"""How many seconds a call waits, once it has its response, for the callbacks of earlier notifications and faults.

An arbitrary choice: a callback that writes to a screen, a file or a socket takes far less time; and one that hangs
delays each call by no more than people tolerate.
"""

# The number of notices that are handled before other tasks get to run; messages have the same limit (`BURST` in
# direct_channel.py).
BURST = 64

# Identifies the notice whose callback the current task runs, or by whose callback the current task was started.
_CAUSE: ContextVar[object] = ContextVar("trio_mcp_notice", default=None)


_Notice: TypeAlias = tuple[Notification | RemoteProtocolError, Hold | None]


class NoticeHooks(Protocol):
    """The hooks that handle notices, that is, notifications and faults."""

    async def received_notification(self, notification: Notification) -> None:
        """Handle one notification."""

    async def received_error(self, error: RemoteProtocolError) -> None:
        """Handle a fault in incoming messages that does not belong to a request."""


class Delivery:
    """The place of a response in the queue of notices, reached when all notices that arrived before it are handled.

    Args:
        in_callback: Returns whether the current task is part of the callback that is being waited for.
    """

    __slots__ = ("_in_callback", "_reached", "_tasks")

    def __init__(self, in_callback: Callable[[], bool]) -> None:
        self._in_callback = in_callback
        self._reached = False
        self._tasks: set[trio.lowlevel.Task] = set()

    def reach(self) -> None:
        """Mark this place in the queue as reached, and wake all tasks that wait for it."""
        self._reached = True
        for task in self._tasks:
            trio.lowlevel.reschedule(task)
        self._tasks.clear()

    async def wait(self, deadline: float) -> None:
        """Wait until this place in the queue or a deadline is reached. A cancellation ends the wait, but is not raised.

        A call that a callback makes, itself or in a task that it has started, does not wait: it would wait for itself.
        """
        if self._reached or self._in_callback():
            return
        task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            # The wait ends without raising Cancelled, because the response has arrived and would be lost (rule 11 of
            # docs/design.md). The cancellation takes effect at the task's next checkpoint.
            self._tasks.remove(task)
            trio.lowlevel.reschedule(task)
            return trio.lowlevel.Abort.FAILED

        with trio.CancelScope(deadline=deadline):
            self._tasks.add(task)
            await trio.lowlevel.wait_task_rescheduled(abort)


class Notices:
    """The queue of notifications and faults ("notices"), and the one task that passes them to their handlers.

    Args:
        hooks: The hooks that handle notices.
        options: How many notices may wait here, and how many bytes they may have together (beyond that they are
            dropped, with a warning in the log; a single notice may be larger); and which of them overtake others.
        spawn: Starts the task that calls the handlers, which runs only while there are notices.

    Attributes:
        handling: Whether there are notices that wait, or are being handled.
    """

    def __init__(
        self,
        hooks: NoticeHooks,
        options: HandlerOptions,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._hooks = hooks
        self._options = options
        self._bytes = 0  # the size of the waiting notices and of the one being handled
        self._spawn = spawn
        self._waiting: MessageQueue[_Notice | Delivery] = MessageQueue()
        self._count = 0  # the number of waiting notices; places of responses don't count
        self._last: Delivery | None = None  # the place after the newest notice, if a response has taken it
        self._cause: object = None  # marks the tasks of the callback that is running
        self.handling = False
        self._overrun = False

    def __len__(self) -> int:
        return self._count

    def put(self, notice: Notification | RemoteProtocolError, hold: Hold | None = None) -> None:
        """Queue a notice, without waiting; its ``hold`` on the transport is kept until the notice has been handled."""
        size = _size_of(notice)
        # A notice that is larger than the limit is accepted if there is no other one, because otherwise it could never
        # be accepted.
        too_large = self._bytes and self._bytes + size > self._options.max_incoming_bytes
        if self._count < self._options.max_pending_notifications and not too_large:
            self._overrun = False
            urgent = isinstance(notice, Notification) and self._options.is_urgent(notice)
            self._waiting.put((notice, hold), notice, urgent)
            # A response that arrives after this notice must not share a place in front of the notice, so the next
            # response gets a place of its own.
            self._last = None
            self._count += 1
            self._bytes += size
            if hold is not None:
                # The transport considers the message to be in progress until it has been handled.
                hold.keep()
            # The task lasts only until the queue is empty: an HTTP endpoint may have thousands of idle sessions, and a
            # task in each would cost memory.
            if not self.handling:
                self.handling = True
                self._spawn(self._handle)
        elif not self._overrun:  # only one warning is logged, or a peer could fill the log
            self._overrun = True
            logger.warning("notifications are arriving faster than they are handled; some are being dropped")

    def mark(self) -> Delivery:
        """Return the place in the queue of a response that has just arrived, while notices are being handled."""
        # Responses with no notice between them share a place. So there are never more places than notices, even if a
        # callback never ends.
        if self._last is None:
            self._last = Delivery(self._in_callback)
            self._waiting.put(self._last, None)
        return self._last

    def _in_callback(self) -> bool:
        return self._cause is not None and _CAUSE.get() is self._cause

    def clear(self) -> None:
        """Drop all notices that are still waiting."""
        # The notices are taken one by one, so that their holds are released and the calls that wait for them continue.
        while (next := self._next()) is not None:
            self._settle(*next)

    def _next(self) -> _Notice | None:
        """Take the next notice, and release the calls that wait at places before it in the queue."""
        while isinstance(next := self._waiting.take(), Delivery):
            # The place has been reached, so no later response may share it.
            if self._last is next:
                self._last = None
            next.reach()
        if next is not None:
            self._count -= 1
        return next

    def _settle(self, notice: Notification | RemoteProtocolError, hold: Hold | None) -> None:
        self._bytes -= _size_of(notice)
        if hold is not None:
            hold.release()

    async def _handle(self) -> None:
        handled = 0
        while (next := self._next()) is not None:
            notice, hold = next
            # Each notice has a mark of its own: a task that an earlier callback started may still be running, and its
            # calls may wait for this notice.
            self._cause = object()
            _CAUSE.set(self._cause)
            try:
                if isinstance(notice, Notification):
                    await self._hooks.received_notification(notice)
                else:
                    await self._hooks.received_error(notice)
            except RemoteProtocolError as exc:
                # The handler says that the peer is at fault, so the error goes to `on_error`. But if `on_error` itself
                # raised the error, the reports would never end.
                if isinstance(notice, Notification):
                    self.put(exc)
                else:
                    logger.exception("the on_error hook failed")
            except Exception:
                logger.exception("the handler of %s failed", notice)
            finally:
                self._cause = None
                # The notice is settled even if its callback was cancelled with the session, because the hold belongs to
                # the endpoint, which keeps running.
                self._settle(notice, hold)
            handled += 1
            # There is no checkpoint after each notice, because a checkpoint would keep calls waiting.
            if handled % BURST == 0:
                await trio.lowlevel.checkpoint()
        # There was no checkpoint since the queue was found empty, so nothing can have been queued that this task would
        # leave behind.
        self.handling = False


def _size_of(notice: Notification | RemoteProtocolError) -> int:
    # Faults are short texts that this library writes itself, so limiting their number is enough.
    return notice.size if isinstance(notice, Notification) else 0
