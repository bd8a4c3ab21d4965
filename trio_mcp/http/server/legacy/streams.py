"""The streams of a session over HTTP, and on which of them each message goes: that of its request, or one for the rest.

A stream outlives the HTTP answers that carry it: a client whose connection broke comes back for the rest, if there is
an event store. What is on a stream is numbered, and a writer is a cursor over the numbers, in the store or, without
one, in the stream's own queue. So nothing is lost between what is replayed and what is new, and nothing comes twice.

2025-11-25 `basic/transports`, Sending Messages, 6, and Listening for Messages, 4: every message is sent on one stream
only. Routing never waits for a stream. It waits for the event store, which all streams share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.errors import TransportError
from trio_mcp.http.server.event_store import EventStore, StoredEvent
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Failure,
    Incoming,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
)
from trio_mcp.session.sink import Owner

__all__ = ["MAX_DETACHED", "MAX_WAITING", "MAX_WAITING_BYTES", "ROOM", "Router", "Stream", "Writer"]

ROOM = 64
"""How many messages wait on a stream before the handler that it belongs to waits."""

MAX_WAITING = 1024
MAX_WAITING_BYTES = 4 * 1024 * 1024
"""What waits on a stream before it is given up: more comes only from what does not wait for room."""

MAX_DETACHED = 64
"""The same while nobody has the stream open, without a store."""

MAX_UNSTORED = 64
"""Messages that wait for the event store before those who send wait."""

STORE_FAILED = "the event store failed"

MAX_CONTROL = 2048
"""Answers given on the spot and cancellations that wait for it besides; further ones are dropped."""


@attrs.define(eq=False)
class Writer:
    """An HTTP answer that carries a stream.

    Attributes:
        scope: Of the task that writes it.
        gone: The client has left: nothing more arrives.
        until: It ends after the message of this number, for the client to come back; None if it does not.
        retry: After so many seconds; None if the client is not told when.
        fault: Why it can't carry the stream to its end.
    """

    scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    gone: bool = False
    until: int | None = None
    retry: float | None = None
    fault: str | None = None

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
        asked: The requests that it was opened for.
        fault: Why the answer to them is on no stream.
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
    _queue: deque[StoredEvent] | None = None
    _bytes: int = 0
    _changed: trio.lowlevel.ParkingLot | None = None

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
        self.last += 1
        self._queue.append(StoredEvent(self.number, self.last, data))
        self._bytes += len(data)
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
        self._bytes -= len(self._queue.pop().data)
        self.last -= 1
        self.ready = self.last

    def take(self) -> Sequence[StoredEvent]:
        """What is queued."""
        queue, self._queue, self._bytes = self._queue or (), None, 0
        return queue

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

    def attach(self, writer: Writer) -> None:
        """Let a writer carry it; the one before leaves."""
        self.turn += 1
        if self.writer is not None:
            self.writer.scope.cancel("the client has opened the stream anew")
        self.writer = writer

    def detach(self, writer: Writer) -> None:
        if self.writer is writer:
            self.writer = None
            self.taken = self.start  # what was taken from the queue and not written is lost
            self.wake()


@attrs.frozen(eq=False)
class Unstored:
    """A message that waits for the store; of a request of ours, that."""

    stream: Stream
    event: StoredEvent
    question: Request | None


class RouterOwner(Protocol):
    """What a router needs of its session."""

    @property
    def primes(self) -> bool: ...

    def feed(self, message: Incoming) -> None: ...

    def start_soon(self, function: Callable[[], Awaitable[None]]) -> None: ...


class Router:
    """The way out of a session: its `SessionSink`.

    Args:
        owner: Whose way out it is.
        store: Where messages are kept; None for nowhere.
        key: What the session is called in there.
        retry: Seconds after which a client comes back whose stream was closed, unless it is said then.
        one_stream: Everything goes on the stream of what belongs to no request.

    Attributes:
        streams: The streams that are open, by number.
        rest: The one for what belongs to no request.
    """

    def __init__(
        self, owner: RouterOwner, store: EventStore | None, key: str, *, retry: float | None, one_stream: bool = False
    ) -> None:
        self._owner = owner
        self._retry = retry
        self._one_stream = one_stream
        self.store = store
        self.key = key
        self.rest = Stream(0, set(), stored=store is not None)
        self.streams: dict[int, Stream] = {0: self.rest}
        self._numbers = 0
        self._by_request: dict[RequestId, Stream] = {}
        self._asked: dict[RequestId, Stream] = {}
        self._unstored: deque[Unstored] | None = None
        self._unstored_bytes = 0
        self._storing = False
        self._ended = False
        self._room: trio.lowlevel.ParkingLot | None = None

    @property
    def unanswered(self) -> int:
        """How many requests have a stream that owes them an answer."""
        return len(self._by_request)

    @property
    def unstored(self) -> int:
        """How many messages wait for the event store."""
        return 0 if self._unstored is None else len(self._unstored)

    # --- streams -------------------------------------------------------------------------------------------------

    def open(self, owed: Iterable[RequestId], *, may_stream: bool) -> Stream:
        """Open the stream of a POST."""
        self._numbers += 1
        asked = tuple(owed)
        stream = Stream(self._numbers, set(asked), may_stream, self.store is not None, asked=asked)
        self.streams[stream.number] = stream
        for request_id in stream.owed:
            self._by_request[request_id] = stream
        return stream

    def of_request(self, request_id: RequestId | None) -> Stream | None:
        """The stream of a request that has not been answered."""
        if self._one_stream:
            return self.rest
        return None if request_id is None else self._by_request.get(request_id)

    def release(self, request_id: RequestId) -> None:
        """A request gets no answer any more; its stream ends if it owes no other."""
        stream = self._by_request.pop(request_id, None)
        if stream is not None:
            stream.owed.discard(request_id)
            self.tidy(stream)

    def tidy(self, stream: Stream) -> None:
        """End a stream that owes nothing any more, and forget it when nobody needs it."""
        if stream is self.rest:
            return
        if not stream.owed and (stream.lost or stream.ready == stream.last):
            stream.end()
        if stream.ended and (stream.stored or stream.writer is None):
            self.streams.pop(stream.number, None)

    def lose(self, stream: Stream, why: str) -> None:
        """Nobody will ever read a stream: what was asked on it fails."""
        if stream is not self.rest:
            stream.lost = True
        stream.drop()
        for request_id in [asked for asked, where in self._asked.items() if where is stream]:
            self._fail(request_id, why)

    def answered(self, request_id: RequestId | None) -> None:
        """The client has answered what it was asked."""
        if request_id is not None:
            self._asked.pop(request_id, None)

    def _fail(self, request_id: RequestId, why: str) -> None:
        self._asked.pop(request_id, None)
        self._owner.feed(Failure(TransportError(why), request_id))

    # --- the sink of the session -----------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        if self._ended or self._unstored is None:
            return True
        return len(self._unstored) < MAX_UNSTORED and self._unstored_bytes < MAX_WAITING_BYTES

    async def room(self, related: RequestId | None = None) -> None:
        """Wait until the event store has caught up, and whoever reads the stream of a request."""
        while not self.has_room:
            if self._room is None:
                self._room = trio.lowlevel.ParkingLot()
            await self._room.park()
        stream = self.of_request(related)
        while stream is not None and stream.last - stream.taken >= ROOM and stream.writer is not None:
            await stream.change()

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        if self._ended:
            return
        if type(owner) is OutgoingRequest:
            owner.sent = True
        self._route(message)

    def put_control(self, message: SessionMessage) -> bool:
        if self._ended or len(self._unstored or ()) >= MAX_UNSTORED + MAX_CONTROL:
            return False
        if self._unstored_bytes >= 2 * MAX_WAITING_BYTES:
            return False
        self._route(message)
        return True

    @property
    def waiting(self) -> tuple[int, int]:
        """Everything is routed when it is put."""
        return 0, 0

    @property
    def idle(self) -> bool:
        return True

    async def flush(self) -> None:
        pass

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        """Close the HTTP answer that carries a stream, so that the client comes back for the rest."""
        stream = self.rest if related is None else self.of_request(related)
        if stream is None or not stream.stored or not stream.may_stream or stream.writer is None:
            return False
        if not self._owner.primes and not stream.taken:
            return False  # the client could not say where to go on
        if stream.writer.until is None:
            stream.writer.retry = self._retry if retry is None else retry
            stream.writer.until = stream.last
            stream.wake()
        return True

    def give_up(self) -> None:
        self._ended = True
        for stream in self.streams.values():
            stream.end()
        if self._room is not None:
            self._room.unpark_all()

    async def aclose(self) -> None:
        self.give_up()

    def _route(self, value: SessionMessage) -> None:
        message = value.message
        assert not isinstance(message, Failure)
        data, problem = encode_or_replace(message)  # type: ignore[arg-type]
        if problem is not None:
            if data is None and isinstance(message, Request):
                self._fail(message.id, f"{message.method!r} was not sent: {problem}")
            else:
                logger.error("%s was not sent: %s", type(message).__name__, problem)
        if data is None:
            return
        stream = self._stream_of(message, value.related_request_id)  # type: ignore[arg-type]
        if stream is not None:
            self._put(stream, message, data)  # type: ignore[arg-type]

    def _stream_of(self, message: Message, related: RequestId | None) -> Stream | None:
        if self._one_stream:
            return self.rest
        match message:
            case Response() | ErrorResponse():
                return self._settle([message.id])
            case Batch():
                return self._settle([item.id for item in message.items])  # type: ignore[union-attr]
            case Request():
                stream = self.of_request(related) or self.rest
                if not stream.may_stream:
                    stream = self.rest
                self._asked[message.id] = stream
                return stream
        assert isinstance(message, Notification)
        if message.method == "notifications/cancelled":  # goes where the question went
            stream = self._asked.pop((message.params or {}).get("requestId", 0), self.rest)
            return self.rest if stream.ended else stream
        found = self.rest if related is None else self.of_request(related)
        return found if found is not None and found.may_stream else None

    def _settle(self, answered: Iterable[RequestId | None]) -> Stream | None:
        stream: Stream | None = None
        for request_id in answered:
            if request_id is not None and (found := self._by_request.pop(request_id, None)) is not None:
                found.owed.discard(request_id)
                stream = found
        if stream is not None:  # a batch is answered as a whole; what its client has cancelled has no answer
            for request_id in stream.owed:
                self._by_request.pop(request_id, None)
            stream.owed.clear()
        return stream

    def _put(self, stream: Stream, message: Message, data: bytes) -> None:
        if stream.lost:
            if isinstance(message, Request):
                self._fail(message.id, f"{message.method!r} was not sent: the client has left the request")
        elif self.store is not None:
            stream.last += 1
            if self._unstored is None:
                self._unstored = deque()
            question = message if isinstance(message, Request) else None
            self._unstored.append(Unstored(stream, StoredEvent(stream.number, stream.last, data), question))
            self._unstored_bytes += len(data)
            if not self._storing:
                self._storing = True
                self._owner.start_soon(self._store_all)
        else:
            stream.put(data)
            if stream.overrun:
                self._overrun(stream, message)
        self.tidy(stream)

    def _overrun(self, stream: Stream, message: Message) -> None:
        if stream.writer is None:
            stream.unput()
            logger.debug("nobody has the stream of a session open; %s is dropped", type(message).__name__)
            if isinstance(message, Request):
                self._fail(message.id, f"{message.method!r} was not sent: the client has no stream open")
            return
        logger.warning("a client does not read a stream of its session; the stream is closed")
        stream.writer.leave()
        stream.detach(stream.writer)
        self.lose(stream, "the client does not read the stream that the request was sent on")
        for request_id in tuple(stream.owed):
            # As if the client had cancelled it.
            params = {"requestId": request_id, "reason": "the client does not read the answer"}
            self._owner.feed(Notification("notifications/cancelled", params))

    # --- the store -----------------------------------------------------------------------------------------------

    async def _store_all(self) -> None:
        try:
            await self.store_rest()
        finally:
            self._storing = False

    async def store_rest(self) -> None:
        """Hand everything to the store that it has not got. What it does not take costs the exchange that it is of."""
        while self._unstored:
            some = tuple(self._unstored)
            failed = await self._append(some)
            for each in some:
                if each.stream not in failed:
                    each.stream.advance(each.event.number)
            # Of a stream that failed nothing can follow: there would be a gap.
            kept = deque(each for each in tuple(self._unstored)[len(some) :] if each.stream not in failed)
            for each in set(self._unstored).difference(kept):
                self._unstored_bytes -= len(each.event.data)
                if each.stream in failed and each.question is not None:
                    self._fail(each.question.id, f"{each.question.method!r} was not sent: {STORE_FAILED}")
            self._unstored = kept
            for stream in failed:
                stream.last = stream.ready
                if stream is not self.rest and not stream.owed:
                    stream.fault = STORE_FAILED
            for stream in {each.stream for each in some}:
                self.tidy(stream)
            if self._room is not None:
                self._room.unpark_all()
        self._unstored = None

    async def _append(self, some: Sequence[Unstored]) -> set[Stream]:
        """Hand some events to the store: if it does not take them all, those of each stream by themselves.

        Returns:
            The streams whose events it has not taken.
        """
        assert self.store is not None
        streams = {each.stream for each in some}
        try:
            await self.store.append(self.key, [each.event for each in some])
        except Exception:
            if len(streams) == 1:
                logger.exception("the event store failed; what it was to keep of a stream is lost")
                return streams
        else:
            return set()
        failed: set[Stream] = set()
        for stream in streams:
            failed |= await self._append([each for each in some if each.stream is stream])
        return failed
