"""A bounded channel whose receiver may be handed each message at once, by the sender, without a turn of the loop.

A transport reads a message, and the session acts on it: with a memory channel in between, the message waits for the
session's task to run, which costs more than acting on it. Here the session's task says what is to be called with each
message (`DirectReceiveChannel.deliver_to`) and sleeps until the channel ends.
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
"""The function that is called with each message: a plain one, which does not wait."""

BURST = 64
"""Messages that are taken before other tasks get to run. Chosen: large enough to hide the cost of the checkpoint, small
enough to delay other tasks little. A link holds as many (docs/design/sessions.md, Backpressure)."""


def open_direct_channel(limit: int) -> tuple[DirectSendChannel, DirectReceiveChannel]:
    """Open a channel that holds up to `limit` messages while nothing is called with them: a sender and a receiver."""
    into, out_of = trio.open_memory_channel[SessionMessage](limit)
    sender = DirectSendChannel(into, limit)
    return sender, DirectReceiveChannel(out_of, sender)


class Closeable(trio.abc.AsyncResource):
    """A half of a channel, which a ``with`` block closes, too."""

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
    """The sending half: that of a memory channel, until the receiver has named a function.

    Args:
        queue: The sending half of the memory channel.
        limit: How many messages that holds.
    """

    def __init__(self, queue: trio.MemorySendChannel[SessionMessage], limit: int) -> None:
        self._queue = queue
        self._limit = limit
        # The most messages that can wait in it. This is counted up with each message meant for it, even one that then
        # waits for room in `send`, and set to 0 when the receiver's task has found it empty.
        self._queued = 0
        # The function that the receiver's task has named, that task, and the rest of the burst; None before and after.
        self._take: Take | None = None
        self._task: trio.lowlevel.Task | None = None
        self._left = 0
        self._failure: BaseException | None = None

    @property
    def full(self) -> bool:
        """Whether `send_nowait` raises `trio.WouldBlock` now."""
        # This is asked before each message, so the statistics, which cost more than a send, are read only when they
        # matter.
        if self._take is not None or self._queued < self._limit:
            return False
        queue = self.statistics()
        return queue.current_buffer_used >= queue.max_buffer_size and queue.open_receive_channels > 0

    def statistics(self) -> trio.MemoryChannelStatistics:
        """Return what `trio.MemorySendChannel.statistics` does, about the messages that wait."""
        return self._queue.statistics()

    def send_nowait(self, value: SessionMessage) -> None:
        """Hand a message over, or let it wait in the channel.

        Raises:
            trio.WouldBlock: If the channel is full.
            trio.BrokenResourceError: If the receiver is closed.
            trio.ClosedResourceError: If this half is closed.
        """
        take, task, left = self._take, self._task, self._left
        if take is None or task is None or not left:
            # When the burst is spent, other tasks have to run first; and while a message is being taken, no other one
            # is. So it waits, and the receiver's task takes it.
            self.detach()
            self._queued += 1
            self._queue.send_nowait(value)
            return
        self._left = 0
        try:
            # The function gets the context variables of the receiver's task, as if that had received the message.
            task.context.run(take, value)
        except BaseException as exc:  # noqa: ASYNC103 - it is raised in the receiver
            # It is the receiver's failure, and the message has been taken.
            self._failure = exc
            self.detach()
        self._left = left - 1

    def renew(self) -> None:
        """Begin a new burst: the sender has passed a checkpoint."""
        self._left = BURST

    async def send(self, value: SessionMessage) -> None:
        """Hand a message over, or wait for room in the channel. If cancelled, it has not been sent.

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
        """Close this half: the receiver gets what waits, and then the end."""
        self._queue.close()
        self.detach()

    async def attach(self, take: Take) -> None:
        """Call a function with each message that is sent, until either half is closed; for the receiver.

        Raises:
            BaseException: What the function raised.
        """
        if self._take is not None:
            raise trio.BusyResourceError("another task receives from this channel")
        self._take, self._task, self._left = take, trio.lowlevel.current_task(), BURST
        self._queued = 0

        # This is called within the cancellation, so nothing is handed over after it.
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
        """Let the task in `attach` continue, if there is one."""
        task, self._take, self._task = self._task, None, None
        if task is not None:
            trio.lowlevel.reschedule(task)


class DirectReceiveChannel(Closeable, trio.abc.ReceiveChannel[SessionMessage]):
    """The receiving half: that of a memory channel, whose task may name a function that gets the values instead.

    Args:
        queue: The receiving half of the memory channel.
        sender: The other half.
    """

    def __init__(self, queue: trio.MemoryReceiveChannel[SessionMessage], sender: DirectSendChannel) -> None:
        self._queue = queue
        self._sender = sender

    async def deliver_to(self, take: Take) -> NoReturn:
        """Call a function with each message in turn: with those that wait, and then with each as it is sent.

        It is called in the task of the sender, with the context variables of this one, and never inside a call of
        itself. What it raises is raised here, and it is not called again. If cancelled, neither is it called again.
        Only one task may do this at a time, and no other may receive meanwhile.

        Args:
            take: A plain function, which does not wait.

        Raises:
            trio.EndOfChannel: When the sender is closed, and everything has been taken.
            trio.ClosedResourceError: When this half is closed.
            BaseException: What the function raised.
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
            # There is no checkpoint after the queue was found empty, so nothing can get in between.
            if left:
                await self._sender.attach(take)
            else:
                await trio.lowlevel.checkpoint()

    def statistics(self) -> trio.MemoryChannelStatistics:
        """Return what `trio.MemoryReceiveChannel.statistics` does, about the messages that wait."""
        return self._queue.statistics()

    def receive_nowait(self) -> SessionMessage:
        """Do what `trio.MemoryReceiveChannel.receive_nowait` does."""
        return self._queue.receive_nowait()

    async def receive(self) -> SessionMessage:
        """Do what `trio.MemoryReceiveChannel.receive` does."""
        return await self._queue.receive()

    def close(self) -> None:
        """Close this half: what waits is dropped, and later messages are refused."""
        self._queue.close()
        self._sender.detach()
