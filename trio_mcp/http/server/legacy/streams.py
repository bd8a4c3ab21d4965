"""The streams of a session over HTTP: what waits to be sent on each, and writing it to whoever asks for it.

A stream outlives the HTTP answers that carry it: a client whose connection broke comes back for the rest, if there is
an event store. What is on a stream is numbered, and a writer is a cursor over the numbers, in the store or, without
one, in the stream's own queue. So nothing is lost between what is replayed and what is new, and nothing comes twice.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import attrs
import trio

from trio_mcp.http.server.event_store import StoredEvent
from trio_mcp.jsonrpc.messages import RequestId

if TYPE_CHECKING:
    from trio_mcp.http.server.asgi import HttpRequest

__all__ = ["MAX_DETACHED", "MAX_WAITING", "MAX_WAITING_BYTES", "ROOM", "Stream", "Writer", "watching"]

ROOM = 64
"""How many messages wait on a stream before the handler that it belongs to waits."""

MAX_WAITING = 1024
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""What waits on a stream before it is given up: more comes only from what does not wait for room."""

MAX_DETACHED = 64
"""The same while nobody has the stream open, without a store."""


@attrs.define(eq=False)
class Writer:
    """An HTTP answer that carries a stream.

    Attributes:
        scope: Of the task that writes it.
        gone: The client has left: nothing more arrives.
        until: It ends after the message of this number, for the client to come back; None if it does not.
        retry: After so many seconds; None if the client is not told when.
        ended: Another one carries the stream now, or nobody.
    """

    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    gone: bool = False
    until: int | None = None
    retry: float | None = None
    ended: bool = False

    def leave(self) -> None:
        """The client has left."""
        self.gone = True
        self.scope.cancel("the client closed the stream")


@attrs.define(eq=False)
class Stream:
    """One stream.

    Attributes:
        number: Its number within the session; 0 for what belongs to no request.
        owed: The requests whose answers are yet to come; the last ends the stream.
        may_stream: Whether anything but the answer may be sent.
        stored: Whether there is a store: then a client may come back.
        last: The number of the last message.
        ready: The number of the last message that may be sent.
        taken: The number of the last message that was written.
        lost: Nobody will ever read it.
        ended: Nothing more will come.
        writer: Who carries it.
        turn: How often it has been asked for.
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
    _queue: deque[bytes] | None = None
    _bytes: int = 0
    _changed: trio.lowlevel.ParkingLot | None = None

    @property
    def backlog(self) -> int:
        """How many messages have not been written."""
        return self.last - self.taken

    @property
    def overrun(self) -> bool:
        """Whether more waits than is kept, for the writer or until there is one."""
        if self._queue is None:
            return False
        limit = MAX_WAITING if self.writer is not None else MAX_DETACHED
        return len(self._queue) > limit or (self._bytes > MAX_WAITING_BYTES and len(self._queue) > 1)

    def put(self, data: bytes) -> None:
        """Queue a message; only without a store."""
        if self._queue is None:
            self._queue = deque()
        self._queue.append(data)
        self._bytes += len(data)
        self.last += 1
        self.advance(self.last)

    def advance(self, number: int) -> None:
        """The messages up to a number may be sent."""
        self.ready = number
        self.wake()

    @property
    def start(self) -> int:
        """Where a writer begins that knows of nothing: after what was written, or where what is queued begins."""
        return self.taken if self.stored else self.ready - len(self._queue or ())

    def drop(self) -> None:
        """Forget what is queued."""
        self._queue, self._bytes = None, 0
        self.taken = self.last

    def unput(self) -> None:
        """Forget what was queued last."""
        assert self._queue is not None
        self._bytes -= len(self._queue.pop())
        self.last -= 1
        self.ready = self.last

    def take(self) -> list[StoredEvent]:
        """What is queued."""
        queue, self._queue, self._bytes = self._queue or (), None, 0
        first = self.ready - len(queue) + 1
        return [StoredEvent(self.number, first + index, data) for index, data in enumerate(queue)]

    def wake(self) -> None:
        if self._changed is not None:
            self._changed.unpark_all()

    async def change(self) -> None:
        """Wait until something has happened."""
        if self._changed is None:
            self._changed = trio.lowlevel.ParkingLot()
        await self._changed.park()

    def end(self) -> None:
        """Nothing more will come."""
        self.ended = True
        self.wake()

    def next_turn(self) -> int:
        """Somebody asks for it: who has asked before gives way."""
        self.turn += 1
        return self.turn

    def attach(self, writer: Writer) -> None:
        """Let a writer carry it; the one before leaves."""
        self.turn += 1
        if self.writer is not None:
            self.writer.ended = True
            self.writer.scope.cancel("the client has opened the stream anew")
        self.writer = writer

    def detach(self, writer: Writer) -> None:
        if self.writer is writer:
            self.writer = None
            self.taken = self.start  # what was taken from the queue and not written is lost
            self.wake()


@contextlib.asynccontextmanager
async def watching(request: HttpRequest, left: Callable[[], object]) -> AsyncIterator[None]:
    """A block during which a function is called if the client leaves."""
    extension = request.extension
    if extension is not None:
        extension.call(left)
        try:
            yield
        finally:
            extension.call(None)
        return

    async def watch() -> None:
        await request.gone()
        left()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel("the exchange is over")
