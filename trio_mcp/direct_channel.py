"""A bounded channel whose sender may hand each message to the receiver at once, without a turn of the event loop.

A transport reads a message, and the session acts on it: with a memory channel in between, the message waits for the
session's task to run, which costs more than acting on the message. Instead, the session's task attaches a function to
be called with each message (`DirectReceiveChannel.deliver_to`) and sleeps until the channel ends.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self, TypeAlias

import trio

from trio_mcp.jsonrpc.messages import SessionMessage

__all__ = ["BURST", "Closeable", "DirectReceiveChannel", "DirectSendChannel", "Take", "open_direct_channel"]

Take: TypeAlias = Callable[[SessionMessage], object]
"""The function that is called with each message; it must be synchronous, and must not wait."""

BURST = 64
"""The number of messages that are taken before other tasks get to run. An arbitrary choice: large enough to hide the
cost of the checkpoint, small enough to delay other tasks little. A link buffers just as many messages
(docs/design/sessions.md, Backpressure)."""


def open_direct_channel(limit: int) -> tuple[DirectSendChannel, DirectReceiveChannel]:
    """Open a channel that buffers up to ``limit`` messages for a busy receiver; return its sender and receiver."""
    into, out_of = trio.open_memory_channel[SessionMessage](limit)
    sender = DirectSendChannel(into, limit)
    return sender, DirectReceiveChannel(out_of, sender)


class Closeable(trio.abc.AsyncResource):
    """One half of a channel, which can also be closed by a ``with`` block."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close this half, without waiting."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def aclose(self) -> None:
        """Do what `close` does, and let other tasks run."""
        self.close()
        await trio.lowlevel.checkpoint()


class DirectSendChannel(Closeable, trio.abc.SendChannel[SessionMessage]):
    """Sends messages through a memory channel, or passes them to the function that the receiver has attached.

    Args:
        queue: The sending half of the memory channel.
        limit: The capacity of the memory channel.
    """

    def __init__(self, queue: trio.MemorySendChannel[SessionMessage], limit: int) -> None:
        self._queue = queue
        self._limit = limit
        # An upper bound on the number of messages in the queue. The bound grows with each message meant for the queue,
        # even if that message has to wait for room in `send`, and is set to 0 when the receiver's task has found the
        # queue empty.
        self._queued = 0
        # The function that the receiver's task has attached, and that task (both are None while no task is in
        # `attach`); and the number of messages that may still be handed over in the current burst.
        self._take: Take | None = None
        self._task: trio.lowlevel.Task | None = None
        self._left = 0
        self._failure: BaseException | None = None

    @property
    def full(self) -> bool:
        """Whether `send_nowait` would raise `trio.WouldBlock` now."""
        # This property is read before each message, so the statistics, which cost more than a send, are read only when
        # they matter.
        if self._take is not None or self._queued < self._limit:
            return False
        queue = self.statistics()
        return queue.current_buffer_used >= queue.max_buffer_size and queue.open_receive_channels > 0

    def statistics(self) -> trio.MemoryChannelStatistics:
        """Return what `trio.MemorySendChannel.statistics` does, for the messages in the queue."""
        return self._queue.statistics()

    def send_nowait(self, value: SessionMessage) -> None:
        """Hand a message over, or put it into the queue.

        Raises:
            trio.WouldBlock: If the channel is full.
            trio.BrokenResourceError: If the receiver is closed.
            trio.ClosedResourceError: If this half is closed.
        """
        take, task, left = self._take, self._task, self._left
        if take is None or task is None or not left:
            # Either the receiver's task has not attached a function, or the burst is used up, so that other tasks have
            # to run first, or the function is taking another message right now. In each case the message is queued, and
            # the receiver's task takes it later.
            self.detach()
            self._queued += 1
            self._queue.send_nowait(value)
            return
        self._left = 0
        try:
            # The function runs with the context variables of the receiver's task, as if that task had received the
            # message.
            task.context.run(take, value)
        except BaseException as exc:  # noqa: ASYNC103 - it is raised in the receiver
            # The message has been taken, and the failure concerns only the receiver. So the sender continues, and
            # `attach` raises the exception in the receiver's task.
            self._failure = exc
            self.detach()
        self._left = left - 1

    def renew(self) -> None:
        """Begin a new burst, because the sender has passed a checkpoint."""
        self._left = BURST

    async def send(self, value: SessionMessage) -> None:
        """Hand a message over, or wait for room in the queue. If the call is cancelled, the message has not been sent.

        Raises:
            trio.BrokenResourceError: If the receiver is closed.
            trio.ClosedResourceError: If this half is closed.
        """
        await trio.lowlevel.checkpoint()
        self.renew()
        try:
            self.send_nowait(value)
        except trio.WouldBlock:
            await self._queue.send(value)

    def close(self) -> None:
        """Close this half: the receiver gets the messages still queued, and then the end of the channel."""
        self._queue.close()
        self.detach()

    async def attach(self, take: Take) -> None:
        """Wait in the receiver's task until `detach` is called; meanwhile `send_nowait` gives messages to a function.

        Raises:
            BaseException: Whatever the function raised.
        """
        if self._take is not None:
            raise trio.BusyResourceError("another task is already receiving from this channel")
        self._take, self._task, self._left = take, trio.lowlevel.current_task(), BURST
        self._queued = 0

        # Trio calls this function as part of the cancellation itself, so no message is handed over afterwards.
        def abort(_: Callable[[], NoReturn]) -> trio.lowlevel.Abort:
            self._take = self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        try:
            await trio.lowlevel.wait_task_rescheduled(abort)
        finally:
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure

    def detach(self) -> None:
        """Let the task that waits in `attach` continue, if a task does."""
        task, self._take, self._task = self._task, None, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class DirectReceiveChannel(Closeable, trio.abc.ReceiveChannel[SessionMessage]):
    """Receives messages from a memory channel, or lets the sender pass them to a function.

    Args:
        queue: The receiving half of the memory channel.
        sender: The other half.
    """

    def __init__(self, queue: trio.MemoryReceiveChannel[SessionMessage], sender: DirectSendChannel) -> None:
        self._queue = queue
        self._sender = sender

    async def deliver_to(self, take: Take) -> NoReturn:
        """Call a function with each message in turn: with those in the queue, then with each new one as it is sent.

        The function may be called in the sender's task, with the context variables of the calling task; two calls of
        the function never overlap. This method raises the function's exceptions. After an exception or a cancellation,
        the function is not called again. Only one task at a time may call this method, and no other task may receive
        meanwhile.

        Args:
            take: A synchronous function, which does not wait.

        Raises:
            trio.EndOfChannel: When the sender is closed, and everything has been taken.
            trio.ClosedResourceError: When this half is closed.
            BaseException: Whatever the function raised.
        """
        while True:
            left = BURST
            while left:
                try:
                    value = self._queue.receive_nowait()
                except trio.WouldBlock:
                    break
                left -= 1
                take(value)
            # There is no checkpoint between finding the queue empty and `attach`, so no message can arrive in between.
            if left:
                await self._sender.attach(take)
            else:
                await trio.lowlevel.checkpoint()

    def statistics(self) -> trio.MemoryChannelStatistics:
        """Return what `trio.MemoryReceiveChannel.statistics` does, for the messages in the queue."""
        return self._queue.statistics()

    def receive_nowait(self) -> SessionMessage:
        """Do what `trio.MemoryReceiveChannel.receive_nowait` does."""
        return self._queue.receive_nowait()

    async def receive(self) -> SessionMessage:
        """Do what `trio.MemoryReceiveChannel.receive` does."""
        return await self._queue.receive()

    def close(self) -> None:
        """Close this half: the messages still queued are dropped, and later ones are refused."""
        self._queue.close()
        self._sender.detach()
