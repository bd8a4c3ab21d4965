"""The routing of a session's messages to its streams over HTTP.

A message goes on the stream of the request to which it belongs, or on the stream for messages that belong to no
request.

2025-11-25 `basic/transports`, Sending Messages, 6, and Listening for Messages, 4: every message is sent on only one
stream. Routing waits neither for a stream nor for the event store, which all streams share; senders do (`room`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import attrs
import trio
from pydantic_core import from_json

from trio_mcp._log import logger
from trio_mcp.errors import TransportError
from trio_mcp.http.server.legacy.numbered_stream import MAX_WAITING_BYTES, NumberedStream
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Incoming,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.session.sink import Owner
from trio_mcp.stores.contract import StaleWriter
from trio_mcp.stores.event_store import EventsLost, EventStore, StoredEvent

__all__ = ["MAX_FAULTY", "ROOM", "STORE_FAILED", "StreamRouter", "is_end", "newest_stored"]

ROOM = 64
"""How many messages may wait on a stream before the handler of its request has to wait (arbitrary)."""

MAX_UNSTORED = 64
"""How many messages may wait for the event store before senders have to wait (arbitrary)."""

MAX_FAULTY = 64
"""How many streams are kept for returning clients after the event store refused the response; beyond that, the oldest
are dropped (arbitrary)."""

STORE_FAILED = "the event store failed"

MAX_CONTROL = 2048
"""How many cancellations and immediate responses may wait for the store beyond `MAX_UNSTORED`; more are dropped.

A session's own queue of control messages has the same limit."""


@attrs.define(eq=False)
class Unstored:
    """A message that waits for the store; ``question`` is the message itself if it is a request, otherwise None."""

    stream: NumberedStream
    event: StoredEvent
    question: Request | None


_Owed: TypeAlias = Mapping[NumberedStream, Collection[RequestId]]
"""The requests that have no response yet, for each of some streams."""


class SharedStore(Protocol):
    """The store of a session that several processes serve, as a router sees it."""

    @property
    def membership(self) -> Any: ...

    async def append(
        self, session: str, events: Sequence[StoredEvent], *, ended: Collection[int] = ()
    ) -> Sequence[int]: ...

    async def note(self, stream: NumberedStream, requests: Collection[RequestId]) -> None: ...

    async def close(self, stream: NumberedStream) -> None: ...


class Later(Protocol):
    """A store of events, of sessions that one process serves or several."""

    async def after(self, session: str, stream: int, number: int, /) -> Sequence[StoredEvent]: ...


async def newest_stored(store: Later, key: str, stream: int, number: int) -> StoredEvent | None:
    """Return the newest event of a stream that a store has. A store that fails may have stored it nevertheless.

    Args:
        store: The store.
        key: The session's name in the store.
        stream: The number of the stream.
        number: The number of the last event that the store is known to have.

    Returns:
        None if the store has nothing after that event.
    """
    newest = None
    with contextlib.suppress(EventsLost):
        while events := await store.after(key, stream, number if newest is None else newest.number):
            newest = events[-1]
    return newest


def is_end(event: StoredEvent) -> bool:
    """Return whether an event of a stream is the response, or the responses, with which the stream ends."""
    message = from_json(event.data)
    return type(message) is list or "method" not in message


class RouterOwner(Protocol):
    """A session as its router sees it."""

    @property
    def primes(self) -> bool: ...

    def feed(self, message: Incoming) -> None: ...

    def start_soon(self, function: Callable[[], Awaitable[None]]) -> None: ...


class StreamRouter:
    """The router of a session's messages to its streams: the session's `SessionSink`.

    Args:
        owner: The session.
        store: The event store, or None.
        key: The session's name in the store.
        retry: Seconds after which a client should come back to a closed stream, unless the call says otherwise.
        one_stream: Whether everything goes on the stream for messages that belong to no request.
        copy: The store if other processes serve the session, too; None if only this one does.

    Attributes:
        streams: The open streams, by number.
        faulty: The streams that have ended without their response, because the store refused it; the oldest first.
        rest: The stream for messages that belong to no request.
    """

    def __init__(
        self,
        owner: RouterOwner,
        store: EventStore | None,
        key: str,
        *,
        retry: float | None,
        one_stream: bool = False,
        copy: SharedStore | None = None,
    ) -> None:
        self._owner = owner
        self._retry = retry
        self._one_stream = one_stream
        self.store = store
        self.key = key
        self._copy = copy
        self.rest = NumberedStream(0, set(), stored=store is not None, remote=copy is not None)
        self.streams: dict[int, NumberedStream] = {0: self.rest}
        self.faulty: dict[int, NumberedStream] = {}
        self._numbers = itertools.count(1) if copy is None else copy.membership.streams
        self._by_request: dict[RequestId, NumberedStream] = {}  # the client's requests that have no response yet
        self._asked: dict[RequestId, NumberedStream] = {}  # our requests, with the streams on which they were sent
        self._unstored: deque[Unstored] | None = None
        self._unstored_bytes = 0
        self._storing = False  # whether a task is handing messages to the store: only one may, to keep their order
        self._ended = False
        self._room: trio.lowlevel.ParkingLot | None = None

    @property
    def unanswered(self) -> int:
        """The number of requests that still await a response on their stream."""
        return len(self._by_request)

    @property
    def unstored(self) -> int:
        """The number of messages that wait for the event store."""
        return 0 if self._unstored is None else len(self._unstored)

    # --- streams -------------------------------------------------------------------------------------------------

    def open(self, owed: Iterable[RequestId], *, may_stream: bool) -> NumberedStream:
        """Open the stream of a POST, which owes responses to the given requests."""
        asked = tuple(owed)
        stream = NumberedStream(next(self._numbers), set(asked), may_stream, self.store is not None, asked=asked)
        self.streams[stream.number] = stream
        for request_id in stream.owed:
            self._by_request[request_id] = stream
        return stream

    def of_request(self, request_id: RequestId | None) -> NumberedStream | None:
        """Return the stream of a request that has no response yet."""
        if self._one_stream:
            return self.rest
        return None if request_id is None else self._by_request.get(request_id)

    def release(self, request_id: RequestId) -> None:
        """Record that a request gets no response; its stream ends if it owes no other response."""
        # The request is not found if its response has already been put on the stream.
        stream = self._by_request.pop(request_id, None)
        # A response is still owed if the session ends: the stream must not end in the store as if nothing were to come.
        if stream is not None and not self._ended:
            stream.owed.discard(request_id)
            self.tidy(stream)

    def tidy(self, stream: NumberedStream) -> None:
        """End a stream that owes no response, and forget it once it is not needed."""
        if stream is self.rest:
            return
        if stream.remote:  # another process knows when it ends
            if stream.writer is None:
                self.streams.pop(stream.number, None)
            return
        # A last message that the store doesn't have yet keeps the stream open.
        if not stream.owed and (stream.lost or stream.ready == stream.last):
            stream.end()
        # With a store, a client that comes back is served from the store.
        if stream.ended and (stream.stored or stream.writer is None):
            self.streams.pop(stream.number, None)
            if self._copy is not None and (stream.noted or stream.fault is not None):
                stream.noted = False
                self._owner.start_soon(partial(self._copy.close, stream))
            # A stream with a fault is remembered, because the store alone would not show that it owed a response.
            if stream.fault is not None:
                self.faulty[stream.number] = stream
                if len(self.faulty) > MAX_FAULTY:
                    del self.faulty[next(iter(self.faulty))]

    async def look_again(self, stream: NumberedStream) -> None:
        """Drop the fault of a stream if its store has the response nevertheless: no error may follow that one."""
        assert self.store is not None
        newest = await newest_stored(self.store, self.key, stream.number, stream.last)
        stream.doubtful = False
        if newest is None:
            return
        stream.last = stream.ready = newest.number
        if is_end(newest):
            stream.fault = None
            self.faulty.pop(stream.number, None)

    def lose(self, stream: NumberedStream, why: str) -> None:
        """Give up a stream that no client will read; our requests that were sent on it fail."""
        if stream is not self.rest:  # the stream `rest` can be opened again at any time
            stream.lost = True
        stream.drop()
        # The client may never have received our requests on this stream, so the handlers that wait for a response might
        # wait in vain.
        for request_id in [asked for asked, where in self._asked.items() if where is stream]:
            self._fail(request_id, why)

    def give_up_questions(self, why: str) -> None:
        """Fail all our requests to which the client has not responded."""
        for request_id in [*self._asked]:
            self._fail(request_id, why)

    def answered(self, request_id: RequestId | None) -> None:
        """Record that the client has responded to one of our requests."""
        if request_id is not None:
            self._asked.pop(request_id, None)

    def _fail(self, request_id: RequestId, why: str) -> None:
        # The failure is fed to the session like a response, so that calls fail in one place, with one kind of error.
        self._asked.pop(request_id, None)
        self._owner.feed(TransportFailure(TransportError(why), request_id))

    # --- the sink of the session -----------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        if self._ended or self._unstored is None:
            return True
        return len(self._unstored) < MAX_UNSTORED and self._unstored_bytes < MAX_WAITING_BYTES

    async def room(self, related: RequestId | None = None, urgent: bool = False) -> None:
        """Wait until the event store has caught up, and the client has read enough of the request's stream."""
        while not self.has_room:
            if self._room is None:
                self._room = trio.lowlevel.ParkingLot()
            await self._room.park()
        stream = self.of_request(related)
        # The wait goes on only while a client has the stream open: if it has left, a handler must not wait for its
        # return.
        while stream is not None and stream.last - stream.taken >= ROOM and stream.writer is not None:
            await stream.change()

    def put(self, message: SessionMessage, owner: Owner = None) -> None:
        if self._ended:
            return
        # The request is marked as sent, because from now on the peer has to be told if the caller gives up.
        if type(owner) is OutgoingRequest:
            owner.sent = True
        self._route(message)

    def put_control(self, message: SessionMessage) -> bool:
        # Control messages never wait for room, so they need bounds of their own: otherwise, a slow store could make
        # them use up the memory.
        if self._ended or len(self._unstored or ()) >= MAX_UNSTORED + MAX_CONTROL:
            return False
        if self._unstored_bytes >= 2 * MAX_WAITING_BYTES:
            return False
        self._route(message)
        return True

    @property
    def waiting(self) -> tuple[int, int]:
        """The numbers of waiting messages, always zero: `put` routes every message at once."""
        return 0, 0

    @property
    def idle(self) -> bool:
        return True

    async def flush(self) -> None:
        pass

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        """Close the HTTP response that carries a stream, so that the client comes back for the rest."""
        stream = self.rest if related is None else self.of_request(related)
        if stream is None or not stream.stored or not stream.may_stream or stream.writer is None:
            return False
        if not self._owner.primes and not stream.taken:
            return False  # the client has no event id yet, so it couldn't say where to resume
        # The writer ends after the last message so far; later messages wait for the client's return.
        if stream.writer.until is None:
            stream.writer.retry = self._retry if retry is None else retry
            stream.writer.until = stream.last
            stream.wake()
        return True

    def give_up(self) -> None:
        # Writers send the queued messages, then end their responses; senders that wait for the store continue.
        self._ended = True
        for stream in self.streams.values():
            stream.end()
        if self._room is not None:
            self._room.unpark_all()

    async def aclose(self) -> None:
        self.give_up()

    def _route(self, value: SessionMessage) -> None:
        message = value.message
        assert not isinstance(message, TransportFailure)
        data, problem = encode_or_replace(message)
        # A response that can't be encoded has been replaced by an error, because the client is owed a response. But a
        # request that can't be encoded fails its call at once.
        if problem is not None:
            if data is None and isinstance(message, Request):
                self._fail(message.id, f"{message.method!r} was not sent: {problem}")
            else:
                logger.error("%s was not sent: %s", type(message).__name__, problem)
        if data is None:
            return
        # The request may have ended while its handler was sending; then there is no stream for the message.
        stream = self._stream_of(message, value.related_request_id)  # type: ignore[arg-type]
        if stream is not None:
            self._put(stream, message, data)  # type: ignore[arg-type]

    def _stream_of(self, message: Message, related: RequestId | None) -> NumberedStream | None:
        """Return the stream for a message, or None to drop the message; record requests and responses."""
        if self._one_stream:
            return self.rest
        match message:
            case Response() | ErrorResponse():
                return self._settle([message.id])
            case Batch():
                return self._settle([item.id for item in message.items])  # type: ignore[union-attr]
            case Request():
                # The request goes on the stream of the client's request that it serves, or else on the stream for
                # messages that belong to no request.
                stream = self.of_request(related) or self.rest
                if not stream.may_stream:
                    stream = self.rest
                self._asked[message.id] = stream
                return stream
        assert isinstance(message, Notification)
        if message.method == "notifications/cancelled":  # a cancellation goes on the stream of the cancelled request
            stream = self._asked.pop((message.params or {}).get("requestId", 0), self.rest)
            return self.rest if stream.ended else stream
        # A notification for a request whose stream carries only the response is dropped: see ``json_only`` of
        # `HttpSettings`.
        found = self.rest if related is None else self.of_request(related)
        return found if found is not None and found.may_stream else None

    def _settle(self, answered: Iterable[RequestId | None]) -> NumberedStream | None:
        stream: NumberedStream | None = None
        for request_id in answered:
            if request_id is not None and (found := self._by_request.pop(request_id, None)) is not None:
                found.owed.discard(request_id)
                stream = found
        # The responses to a batch are sent as one message, so no other is owed: a request without a response was
        # cancelled.
        if stream is not None:
            for request_id in stream.owed:
                self._by_request.pop(request_id, None)
            stream.owed.clear()
        return stream

    def _put(self, stream: NumberedStream, message: Message, data: bytes) -> None:
        if stream.lost:
            if isinstance(message, Request):
                self._fail(message.id, f"{message.method!r} was not sent: the client has closed the stream")
        elif self.store is not None:
            # The message is stored before it is sent: a client must be able to come back with any event id that it has
            # seen, even after a crash. What another process may write, too, is numbered by the store.
            stream.last += not stream.remote
            if self._unstored is None:
                self._unstored = deque()
            question = message if isinstance(message, Request) else None
            number = 0 if stream.remote else stream.last
            self._unstored.append(Unstored(stream, StoredEvent(stream.number, number, data), question))
            self._unstored_bytes += len(data)
            if not self._storing:
                self._storing = True
                self._owner.start_soon(self._store_all)
        else:
            stream.put(data)
            if stream.overrun:
                self._overrun(stream, message)
        self.tidy(stream)

    def _overrun(self, stream: NumberedStream, message: Message) -> None:
        # If no client has the stream open, the oldest messages are kept and the newest is dropped. But a client that
        # reads too slowly loses the stream: if a message were missing, the client might wait for a response that never
        # comes.
        if stream.writer is None:
            stream.unput()
            logger.debug("no client has the stream of a session open; dropping a %s", type(message).__name__)
            if isinstance(message, Request):
                self._fail(message.id, f"{message.method!r} was not sent: the client has no stream open")
            return
        logger.warning("a client is not reading a stream of its session; closing the stream")
        stream.writer.leave()
        stream.detach(stream.writer)
        self.lose(stream, "the client is not reading the stream that the request was sent on")
        for request_id in tuple(stream.owed):
            # Act as if the client had cancelled the request, because the handler's result can't reach the client.
            params = {"requestId": request_id, "reason": "the client is not reading the response"}
            self._owner.feed(Notification("notifications/cancelled", params))

    # --- the store -----------------------------------------------------------------------------------------------

    async def _store_all(self) -> None:
        try:
            await self.store_rest()
        finally:
            self._storing = False

    async def store_rest(self) -> None:
        """Hand the store every message that it doesn't have yet.

        If the store refuses the messages of a stream, they are lost, and only the exchange to which they belong fails.
        """
        while self._unstored:
            some = tuple(self._unstored)  # more may be queued while the store works
            failed: set[NumberedStream] = set()
            for part in self._parts(some):
                # Responses may be put on the streams while the store works: these come after what it has in hand.
                owed = {each.stream: tuple(each.stream.owed) for each in part}
                failed |= await self._append(part, owed)
            for each in some:
                if each.stream not in failed:
                    each.stream.keep(each.event)
            # The later messages of a stream that failed are dropped, too, because its numbers must have no gap.
            kept = deque(each for each in tuple(self._unstored)[len(some) :] if each.stream not in failed)
            for each in set(self._unstored).difference(kept):
                self._unstored_bytes -= len(each.event.data)
                if each.stream in failed and each.question is not None:
                    self._fail(each.question.id, f"{each.question.method!r} was not sent: {STORE_FAILED}")
            self._unstored = kept
            for stream in failed:
                # Take back the numbers of the messages that were not stored. If a response was among them, its request
                # gets an error from `HttpSession._finish` instead.
                stream.last = stream.ready
                stream.doubtful = not stream.remote
                if stream is not self.rest and not stream.owed:
                    stream.fault = STORE_FAILED
            for stream in {each.stream for each in some}:
                self.tidy(stream)
            if self._room is not None:
                self._room.unpark_all()
        self._unstored = None

    def _parts(self, some: Sequence[Unstored]) -> Iterable[Sequence[Unstored]]:
        """Divide messages into those that the store is handed together.

        What the store numbers is handed over by itself, so that it is not handed over again when others fail: an
        attempt that failed may have stored it.
        """
        if self._copy is None:
            return (some,)
        own = [each for each in some if not each.stream.remote]
        return filter(None, (own, [each for each in some if each.stream.remote]))

    async def _append(self, some: Sequence[Unstored], owed: _Owed) -> set[NumberedStream]:
        """Hand events to the store. If it refuses them together, try again for each stream by itself.

        Args:
            some: The events.
            owed: The requests whose responses come after them, for each stream.

        Returns:
            The streams whose events the store refused.
        """
        assert self.store is not None
        streams = set(owed)
        try:
            await self._hand_over(some, owed)
        except StaleWriter:  # the membership has logged what happened, and ends the session
            return streams
        except Exception:
            if len(streams) == 1:
                logger.exception("the event store failed; messages on a stream are lost")
                return streams
        else:
            return set()
        failed: set[NumberedStream] = set()
        for stream in streams:
            failed |= await self._append([each for each in some if each.stream is stream], {stream: owed[stream]})
        return failed

    async def _hand_over(self, some: Sequence[Unstored], owed: _Owed) -> None:
        assert self.store is not None
        for stream in owed:
            if stream.doubtful:
                await self._count_again(stream)
        events = [each.event for each in some]
        if self._copy is None:
            await self.store.append(self.key, events)
            return
        # The response ends its stream for the processes that carry it as well.
        ended = [stream for stream, requests in owed.items() if stream is not self.rest and not requests]
        for stream, requests in owed.items():
            # Nothing is stored on a stream that the other processes do not know of: they may have to end it.
            if requests:
                await self._copy.note(stream, requests)
        numbers = await self._copy.append(self.key, events, ended=[stream.number for stream in ended])
        for stream in ended:
            stream.noted = False
        for each, number in zip(some, numbers, strict=True):
            if not each.event.number:
                each.event = StoredEvent(each.event.stream, number, each.event.data)
                each.stream.last = max(each.stream.last, number)

    async def _count_again(self, stream: NumberedStream) -> None:
        """Learn what the store has of the events that it refused, and give what follows the numbers after these.

        An event with a number that the store has would not be stored, and a client may have got the other one.
        """
        assert self.store is not None
        newest = await newest_stored(self.store, self.key, stream.number, stream.ready)
        stream.doubtful = False
        if newest is None:
            return
        found = newest.number - stream.ready
        for each in self._unstored or ():
            if each.stream is stream:
                each.event = attrs.evolve(each.event, number=each.event.number + found)
        stream.last += found
        stream.allow(newest.number)
