"""Notices, that is, incoming notifications and faults, and how they are delivered to callbacks."""

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

Chosen: a callback that writes to a screen, a file or a socket takes far less; and one that hangs delays each
call by no more than people tolerate.
"""

# The number of notices that are handled before other tasks get to run, as for messages (`BURST` in direct_channel.py).
BURST = 64

# Identifies a notice: the current task runs its callback, or was started by that callback.
_CAUSE: ContextVar[object] = ContextVar("trio_mcp_notice", default=None)


_Notice: TypeAlias = tuple[Notification | RemoteProtocolError, Hold | None]


class NoticeHooks(Protocol):
    """The hooks that handle notices, that is, notifications and faults."""

    async def received_notification(self, notification: Notification) -> None:
        """Handle one notification."""

    async def received_error(self, error: RemoteProtocolError) -> None:
        """Handle a fault in incoming messages that does not belong to a request."""


class Delivery:
    """The place of a response in the queue of notices: reached when all notices that arrived earlier have been handled.

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
            # The wait ends without raising: the response is there, and would be lost (rule 11 of docs/design.md). The
            # cancellation takes effect at the task's next checkpoint.
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
        self._bytes = 0  # of the notices that wait, and of the one being handled
        self._spawn = spawn
        self._waiting: MessageQueue[_Notice | Delivery] = MessageQueue()
        self._count = 0  # of the notices that wait, without the places of responses
        self._last: Delivery | None = None  # the place after the newest notice, if a response has taken it
        self._cause: object = None  # marks the tasks of the callback that is running
        self.handling = False
        self._overrun = False

    def __len__(self) -> int:
        return self._count

    def put(self, notice: Notification | RemoteProtocolError, hold: Hold | None = None) -> None:
        """Queue a notice, without waiting; its ``hold`` on the transport is kept until it has been handled."""
        size = _size_of(notice)
        # A notice larger than the limit is accepted if there is no other one: otherwise it never could be.
        too_large = self._bytes and self._bytes + size > self._options.max_incoming_bytes
        if self._count < self._options.max_pending_notifications and not too_large:
            self._overrun = False
            urgent = isinstance(notice, Notification) and self._options.is_urgent(notice)
            self._waiting.put((notice, hold), notice, urgent)
            # A response that arrives from now on belongs after this notice: it must not share an older place.
            self._last = None
            self._count += 1
            self._bytes += size
            if hold is not None:
                # The transport counts the message as under way until it has been handled.
                hold.keep()
            # The task lasts for one burst: an HTTP endpoint may have thousands of idle sessions, and a task in each
            # costs memory.
            if not self.handling:
                self.handling = True
                self._spawn(self._handle)
        elif not self._overrun:  # warn once, or a peer could fill the log
            self._overrun = True
            logger.warning("notifications arrive faster than they are handled; some are dropped")

    def mark(self) -> Delivery:
        """Return the place in the queue of a response that has just arrived, while notices are being handled."""
        # Responses with no notice between them share a place, so places can't outnumber the notices, even if a callback
        # never ends.
        if self._last is None:
            self._last = Delivery(self._in_callback)
            self._waiting.put(self._last, None)
        return self._last

    def _in_callback(self) -> bool:
        return self._cause is not None and _CAUSE.get() is self._cause

    def clear(self) -> None:
        """Drop all notices that are still waiting."""
        # The notices are taken one by one, to release their holds and the calls that wait for them.
        while (next := self._next()) is not None:
            self._settle(*next)

    def _next(self) -> _Notice | None:
        """Take the next notice, and release the calls that wait at places before it in the queue."""
        while isinstance(next := self._waiting.take(), Delivery):
            # No later response may share this place.
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
            # Each notice has a new mark: a task that was started by an earlier callback may still be running, and its
            # calls may wait.
            self._cause = object()
            _CAUSE.set(self._cause)
            try:
                if isinstance(notice, Notification):
                    await self._hooks.received_notification(notice)
                else:
                    await self._hooks.received_error(notice)
            except RemoteProtocolError as exc:
                # A handler blames the peer: pass the error to `on_error`, unless `on_error` itself raised it, as that
                # would never end.
                if isinstance(notice, Notification):
                    self.put(exc)
                else:
                    logger.exception("on_error failed")
            except Exception:
                logger.exception("the handler of %s failed", notice)
            finally:
                self._cause = None
                # This is done even if the callback was cancelled with its session: the hold belongs to the endpoint,
                # which keeps running.
                self._settle(notice, hold)
            handled += 1
            # A checkpoint after each notice would keep calls waiting.
            if handled % BURST == 0:
                await trio.lowlevel.checkpoint()
        # There was no checkpoint since the queue was found empty, so no notice can have been added in between, which
        # this task would not handle.
        self.handling = False


def _size_of(notice: Notification | RemoteProtocolError) -> int:
    # Faults are our own, short texts, and are bounded by their number alone.
    return notice.size if isinstance(notice, Notification) else 0
