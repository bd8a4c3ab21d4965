"""What a client can still ask for after its connection broke: the events of the streams of HTTP sessions.

2025-11-25 `basic/transports`, Resumability and Redelivery.
"""

from __future__ import annotations

import abc
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

import attrs

from trio_mcp.http.server.legacy.stores._checks import check_limit

__all__ = ["EventStore", "EventsLost", "MemoryEventStore", "StoredEvent"]

PAGE = 100
"""How many events are given at once."""


class EventsLost(Exception):
    """What followed an event is no longer there, or not all of it."""


@attrs.frozen
class StoredEvent:
    """One message on its way to the client.

    Attributes:
        stream: The number of the stream within its session.
        number: Its number within the stream: 1, 2, 3, without a gap.
        data: The message, as JSON.
    """

    stream: int
    number: int
    data: bytes


class EventStore(abc.ABC):
    """Keeps the messages of streams, so that a client can resume one that broke. Write your own with three methods.

    One task at a time appends for a session, and each event once, unless an attempt failed or was cancelled. A session
    is named by a digest of its id, so that what is stored lets nobody in.

    What a method raises, but for `EventsLost`, ends the session that it was called for, with a line in the log.
    """

    @abc.abstractmethod
    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        """Keep some events, all or none. An event that is there already is kept as it is.

        When it returns, the events may be sent: what is then lost with the process is lost to the client.
        """

    @abc.abstractmethod
    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        """The events of a stream that follow a number, in order: all, or at least one of the first.

        Raises:
            EventsLost: The next one is gone; or there is none, and neither is the event of that number, so that nothing
                can be said.
        """

    @abc.abstractmethod
    async def forget(self, session: str) -> None:
        """The session has ended: nobody will ask for its events."""


class MemoryEventStore(EventStore):
    """Keeps events in memory. Beyond a limit the oldest go, whosever they are.

    Args:
        max_events: How many are kept.
        max_bytes: How many bytes of messages.
        max_age: Seconds that one is kept.
        clock: Gives the time in seconds, for tests.

    Raises:
        TypeError, ValueError: A limit is no number above 0.
    """

    def __init__(
        self,
        *,
        max_events: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_age: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_limit("max_events", max_events, whole=True)
        check_limit("max_bytes", max_bytes, whole=True)
        check_limit("max_age", max_age, whole=False)
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._clock = clock
        self._bytes = 0
        self._streams: dict[str, dict[int, deque[StoredEvent]]] = {}
        # Every event in the order of arrival, with its time.
        self._order: OrderedDict[tuple[str, int, int], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        now = self._clock()
        for event in events:
            kept = self._streams.setdefault(session, {}).setdefault(event.stream, deque())
            if kept and event.number <= kept[-1].number:
                continue
            kept.append(event)
            self._order[session, event.stream, event.number] = now
            self._bytes += len(event.data)
        self._drop(now)

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        self._drop(self._clock())
        kept = self._streams.get(session, {}).get(stream)
        if not kept or not kept[0].number <= number + 1 <= kept[-1].number + 1:
            raise EventsLost(f"what followed event {number} of stream {stream} is no longer kept")
        start = number + 1 - kept[0].number
        return [kept[index] for index in range(start, min(len(kept), start + PAGE))]

    async def forget(self, session: str) -> None:
        for stream, kept in self._streams.pop(session, {}).items():
            for event in kept:
                del self._order[session, stream, event.number]
                self._bytes -= len(event.data)

    def _drop(self, now: float) -> None:
        while self._order:
            (session, stream, _), since = next(iter(self._order.items()))
            if len(self._order) <= self._max_events and self._bytes <= self._max_bytes and since + self._max_age >= now:
                return
            self._order.popitem(last=False)
            streams = self._streams[session]
            kept = streams[stream]  # its first is the oldest: they came in order
            self._bytes -= len(kept.popleft().data)
            if not kept:
                del streams[stream]
                if not streams:
                    del self._streams[session]
