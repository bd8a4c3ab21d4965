"""Queues a session's outgoing messages in two bounded lanes; one task hands the messages to the link.

Control messages (cancellations, and responses sent without a handler) overtake all others, the "bulk", and handing one
over never waits. Senders of bulk wait for room, so a peer that does not read slows down only those who write to it.
Within bulk, urgent messages overtake others, and have room of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

from trio_mcp.jsonrpc.events import IncomingRequest, OutgoingRequest
from trio_mcp.jsonrpc.messages import RequestId, SessionMessage
from trio_mcp.jsonrpc.order import MessageQueue
from trio_mcp.session.sink import Owner

__all__ = ["Outbox"]

_Entry: TypeAlias = tuple[SessionMessage, Owner]


class Outbox:
    """A `Sink` that hands all messages of a session to one link.

    Args:
        channel: The link's sending half; closed by `aclose`.
        spawn: Starts the task of the writer, which runs only while there is something to write.
        max_bulk: How many bulk messages may be queued before their senders have to wait; urgent ones are counted apart.
        max_control: How many control messages may be queued; further ones are dropped.
    """

    # The default of max_control is an arbitrary choice: a well-behaved peer never leaves so many messages unread, so
    # further responses to a peer that does may be dropped.
    def __init__(
        self,
        channel: trio.abc.SendChannel[SessionMessage],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        *,
        max_bulk: int = 128,
        max_control: int = 2048,
    ) -> None:
        self._channel = channel
        self._spawn = spawn
        # Many channels can take a message without waiting. If nothing is queued, the message goes straight to such a
        # channel, because the writer would cost two task switches per message.
        self._send_nowait: Callable[[SessionMessage], None] | None = getattr(channel, "send_nowait", None)
        self._max_bulk = max_bulk
        self._max_control = max_control
        self._bulk: MessageQueue[_Entry] = MessageQueue(_worth_sending)
        self._control: deque[_Entry] = deque()
        self._senders = trio.lowlevel.ParkingLot()
        self._urgent_senders = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        # Whether the writer has taken a message from its queue that the link has not accepted yet.
        self._writing = False
        self._has_writer = False
        self._broken = False

    @property
    def waiting(self) -> tuple[int, int]:
        """The numbers of messages that are queued: first that of bulk messages, then that of control messages."""
        return len(self._bulk), len(self._control)

    @property
    def idle(self) -> bool:
        """Whether all messages have been handed to the link."""
        return not (self._bulk or self._control or self._writing)

    @property
    def has_room(self) -> bool:
        """Whether `put` may be called now, for a message that is not urgent."""
        return len(self._bulk.plain) < self._max_bulk

    async def room(self, related: RequestId | None = None, urgent: bool = False) -> None:
        """Wait until `put` may be called; return at once, without a checkpoint, if it may be called now.

        Cancellation leaves everything as it was.
        """
        lane, senders = (self._bulk.urgent, self._urgent_senders) if urgent else (self._bulk.plain, self._senders)
        if len(lane) < self._max_bulk or self._broken:
            return
        # The wait is a loop, because another sender that did not have to wait may use up the room first.
        while not (len(lane) < self._max_bulk or self._broken):
            await senders.park()
        # Each sender that wakes up wakes one more: its own message may go straight to the link, and then there is no
        # entry in the queue whose removal would wake the next sender.
        senders.unpark()

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        """Send a bulk message: straight to the link if nothing else waits, otherwise through the writer."""
        bulk = self._bulk
        waits = bulk.plain or bulk.urgent or self._control or self._writing
        if not waits and self._try_now(message, owner):
            return
        if not self._broken:
            bulk.put((message, owner), message.message, message.urgent)
            self._start_writer()

    def put_control(self, message: SessionMessage) -> bool:
        """Send a control message without waiting.

        Returns:
            Whether the message was accepted; False if ``max_control`` messages already wait, because the peer does not
            read.
        """
        # Waiting bulk messages don't matter, because control messages may overtake them. A message that is being
        # written can't be overtaken.
        if not self._control and not self._writing and self._try_now(message, None):
            return True
        if len(self._control) >= self._max_control or self._broken:
            return False
        self._control.append((message, None))
        self._start_writer()
        return True

    def release(self, request_id: RequestId) -> None:
        """Do nothing: one link carries everything, so there is nothing to release."""

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        """Return False: a link has no streams to close."""
        return False

    def _start_writer(self) -> None:
        if not self._has_writer:
            # `_has_writer` is set now, because the task starts only later, and a message that came before that would
            # start another task.
            self._has_writer = True
            self._spawn(self._write)

    def _try_now(self, message: SessionMessage, owner: Owner) -> bool:
        if self._send_nowait is None:
            return False
        try:
            self._send_nowait(message)
        except trio.WouldBlock:
            return False
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.give_up()
            return True  # the message is dropped: the peer is gone, and the reader will end the call
        if type(owner) is OutgoingRequest:
            owner.sent = True  # from now on the peer must be told if the request is cancelled
        return True

    async def _write(self) -> None:
        """Hand everything to the link, one message at a time, until nothing is left or the link breaks."""
        while (entry := self._next()) is not None:
            message, owner = entry
            if self._try_now(message, owner):
                continue
            # `sent` is set before the wait: if the wait is cancelled, nothing says whether the message got through.
            if type(owner) is OutgoingRequest:
                owner.sent = True
            self._writing = True
            try:
                await self._channel.send(message)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                self.give_up()
            finally:
                self._writing = False
        self._has_writer = False
        self._drained.unpark_all()

    def _next(self) -> _Entry | None:
        # Control messages are sent without a check, because each is a cancellation, or a response that is due to the
        # peer.
        if self._control:
            return self._control.popleft()
        before = len(self._bulk.plain), len(self._bulk.urgent)
        entry = self._bulk.take()
        self._senders.unpark(count=before[0] - len(self._bulk.plain))
        self._urgent_senders.unpark(count=before[1] - len(self._bulk.urgent))
        return entry

    def give_up(self) -> None:
        """Drop all messages, those that are queued and any later ones, and wake up all tasks that wait here."""
        # From now on no method raises an exception: senders learn from the session why the link is gone.
        self._broken = True
        self._bulk.clear()
        self._control.clear()
        self._senders.unpark_all()
        self._urgent_senders.unpark_all()
        self._drained.unpark_all()

    async def flush(self) -> None:
        """Wait until all messages have been handed to the link, or the link is broken."""
        while not self.idle and not self._broken:
            await self._drained.park()

    async def aclose(self) -> None:
        """Close the link's sending half; messages that still wait are dropped."""
        self.give_up()
        await self._channel.aclose()


def _worth_sending(entry: _Entry) -> bool:
    # A message is not worth sending if it became pointless while it waited: a request that its caller has given up, or
    # a message about a request that the peer has cancelled.
    _, owner = entry
    if type(owner) is OutgoingRequest:
        return not owner.settled
    return type(owner) is not IncomingRequest or not owner.cancelled
