"""A stream of numbered messages within a session over HTTP, and the HTTP responses that carry it, one at a time.

A stream outlives the HTTP responses that carry it: with an event store, a client whose connection broke comes back for
the rest. The messages on a stream are numbered, and a writer follows the numbers. It takes messages from the stream's
own queue and, if there is a store, from the store whenever the queue doesn't have the next one. Therefore nothing is
lost or sent twice between a replay and new messages.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import attrs
import trio

from trio_mcp.jsonrpc.messages import RequestId
from trio_mcp.stores.event_store import StoredEvent

__all__ = ["MAX_DETACHED", "MAX_WAITING", "MAX_WAITING_BYTES", "NumberedStream", "Writer"]

# A stream that a client does not read takes memory up to these bounds; then it is given up.
MAX_WAITING = 1024
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""How many messages, or bytes, may wait on a stream before it is given up (arbitrary).

A handler waits long before that, at `streams.ROOM`; this bounds messages that are sent without waiting for room."""

MAX_DETACHED = 64
"""How many messages may wait on a stream while no client has it open and there is no store (arbitrary)."""


@attrs.define(eq=False)
class Writer:
    """An HTTP response that carries a stream.

    Attributes:
        scope: The cancel scope of the task that writes it.
        gone: Whether the client has left, so that nothing more arrives.
        until: The number of the message after which the response ends early, so that the client comes back; None if it
            continues to the end of the stream.
        retry: Seconds after which the client should come back; None to leave that to the client.
        expires: The time, by Trio's clock, at which the token expires; the response then ends once the messages at hand
            have been written.
        fault: Why the response can't carry the stream to its end.
        first: The bytes to send before the first message; empty once they have been sent.
    """

    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    gone: bool = False
    until: int | None = None
    retry: float | None = None
    expires: float = math.inf
    fault: str | None = None
    first: bytes = b""

    def take_first(self) -> bytes:
        """Return the bytes to send before all messages; empty from the second call on."""
        first, self.first = self.first, b""
        return first

    def leave(self) -> None:
        """Record that the client has left, and stop writing."""
        self.gone = True
        self.scope.cancel("the client closed the stream")


@attrs.define(eq=False)
class NumberedStream:
    """A stream of numbered messages.

    Attributes:
        number: The number of the stream within its session; 0 for the stream of messages that belong to no request.
        owed: The requests whose responses are still to come; the last response ends the stream.
        may_stream: Whether anything but the response may be sent.
        stored: Whether messages go to an event store, so that a client can resume.
        last: The number of the last message.
        ready: The number of the last message that may be sent: the store has everything up to it.
        taken: The number of the last message that was written.
        lost: Whether no client will ever read the stream.
        ended: Whether no more messages will come.
        writer: The HTTP response that carries the stream now; None if there isn't one.
        turn: A number that grows each time that a client opens the stream; only the newest response may carry it.
        asked: The requests for which the stream was opened.
        fault: Why those requests get no response; None if they get one.
        remote: Whether another process may write the stream, so that events appear in the store.
        noted: Whether the store knows that the stream is open.
        doubtful: Whether the store may have events after ``ready``, because it failed when it was handed some.
    """

    number: int
    owed: set[RequestId]
    may_stream: bool = True
    stored: bool = False
    last: int = 0
    ready: int = 0
    taken: int = 0
    lost: bool = False
    ended: bool = False
    writer: Writer | None = None
    turn: int = 0
    asked: tuple[RequestId, ...] = ()
    fault: str | None = None
    remote: bool = False
    noted: bool = False
    doubtful: bool = False
    _queue: deque[StoredEvent] | None = None
    _bytes: int = 0
    _changed: trio.lowlevel.ParkingLot | None = None  # made when needed, because most streams end without a wait

    @property
    def complete(self) -> bool:
        """Whether the stream has ended with the response as its last message."""
        return self.ended and self.fault is None

    @property
    def overrun(self) -> bool:
        """Whether more is waiting than the limits allow; without a writer, fewer messages may wait."""
        if self._queue is None:
            return False
        limit = MAX_WAITING if self.writer is not None else MAX_DETACHED
        # A single message may exceed the limit in bytes, because it can't be cut.
        return len(self._queue) > limit or (self._bytes > MAX_WAITING_BYTES and len(self._queue) > 1)

    def put(self, data: bytes) -> None:
        """Queue a message; only for streams without a store."""
        # The queue is made when needed and dropped when empty, so that idle sessions take little memory.
        if self._queue is None:
            self._queue = deque()
        self.last += 1
        self._queue.append(StoredEvent(self.number, self.last, data))
        self._bytes += len(data)
        self.allow(self.last)

    def keep(self, event: StoredEvent) -> None:
        """Allow a stored message to be sent, and queue it for the writer, which then need not read the store."""
        if self.remote and event.number != self.ready + 1:
            self.take()  # another process has stored events before this one, so the writer has to read the store
        elif self.writer is not None:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(event)
            self._bytes += len(event.data)
            # The queue is dropped: the store has all its messages, and a client that reads slowly need not take more
            # memory.
            if len(self._queue) > MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
                self.take()
        self.allow(max(event.number, self.ready))

    def advance(self, number: int, *, ended: bool) -> None:
        """Learn that another process has stored the events up to a number, and whether the stream has ended."""
        self.last = max(self.last, number)
        self.allow(max(self.ready, number))
        if ended:
            self.end()

    def give_away(self) -> None:
        """End the response that carries the stream, as another process carries it now."""
        if self.writer is not None:
            self.writer.scope.cancel("the client has opened the stream again")
            self.wake()  # the writer may be waiting outside its scope

    def allow(self, number: int) -> None:
        """Allow the messages up to a number to be sent."""
        self.ready = number
        self.wake()

    @property
    def start(self) -> int:
        """The number after which a writer without a cursor starts: the last written, or the one before the queue."""
        return self.taken if self.stored else self.ready - len(self._queue or ())

    def drop(self) -> None:
        """Discard the queued messages."""
        self._queue, self._bytes = None, 0
        self.taken = self.last  # all count as written, so that no handler waits for room

    def unput(self) -> None:
        """Discard the message that was queued last."""
        assert self._queue is not None
        self._bytes -= len(self._queue.pop().data)
        self.last -= 1
        self.ready = self.last

    def take(self) -> Sequence[StoredEvent]:
        """Return the queued messages, and empty the queue. With a store, they may not be the next ones to send."""
        queue, self._queue, self._bytes = self._queue or (), None, 0
        return queue

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.unpark_all()

    async def change(self) -> None:
        """Wait until the state of the stream has changed."""
        if self._changed is None:
            self._changed = trio.lowlevel.ParkingLot()
        await self._changed.park()

    def end(self) -> None:
        """Mark the stream as ended: no more messages will come."""
        self.ended = True
        self.wake()

    def attach(self, writer: Writer) -> None:
        """Let a writer carry the stream, and cancel the previous writer."""
        # After its wait for the store, `HttpSession.resume` compares turns to learn whether it was overtaken.
        self.turn += 1
        self.give_away()  # a client may reconnect before the server notices that its old connection is dead
        self.writer = writer

    def detach(self, writer: Writer) -> None:
        if self.writer is writer:  # otherwise a newer response has taken over
            self.writer = None
            self.taken = self.start  # messages that were taken from the queue are lost if they were not written
            if self.stored:
                self.take()  # the next writer begins with the messages in the store
            self.wake()
