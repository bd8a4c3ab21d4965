"""The event stores of this library: one in memory, and one in a file, which outlives the process."""

from __future__ import annotations

import os
import sqlite3
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Self

import trio

from trio_mcp._checks import check_count, check_seconds
from trio_mcp.stores.database import Database
from trio_mcp.stores.event_store import EventsLost, EventStore, StoredEvent

__all__ = ["SCHEMA", "MemoryEventStore", "SqliteEventStore", "delete_events", "insert_events", "lost", "select_events"]

PAGE = 100
"""The maximum number of events that `after` returns (arbitrary): a long replay is never in memory as a whole."""

# `number` restarts with each stream, so all events are ordered by `id`: a new row gets the highest id plus one.
# AUTOINCREMENT, or an index of the times, would each mean one more page to write for every append.
SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY,
    session TEXT NOT NULL,
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (session, stream, number)
);
"""

# Events are pruned by id instead of by count, because counting rows would read the whole index at each append.
# Deletions leave gaps in the ids, so fewer than max_events may be kept. Every event before the first that is not too
# old is deleted; if the clock was set back, expired events after that one stay for a while, but `after` ignores them.
PRUNE = """
DELETE FROM events WHERE id < max(
    (SELECT id FROM events WHERE time >= ? ORDER BY id LIMIT 1),
    (SELECT max(id) FROM events) - ? + 1
)
"""


def lost(stream: int, number: int) -> EventsLost:
    """Return the error for events that are no longer stored."""
    return EventsLost(f"the events after event {number} of stream {stream} are no longer stored")


def insert_events(
    connection: sqlite3.Connection,
    session: str,
    events: Sequence[StoredEvent],
    now: float,
    *,
    max_age: float,
    max_events: int,
) -> list[int]:
    """Store events that are not stored yet, delete those beyond the bounds, and return the numbers of all."""
    numbers = []
    for event in events:
        number = event.number
        if not number:
            newest = connection.execute(
                "SELECT max(number) FROM events WHERE session = ? AND stream = ?", (session, event.stream)
            )
            number = (newest.fetchone()[0] or 0) + 1
        connection.execute(
            "INSERT OR IGNORE INTO events (session, stream, number, time, data) VALUES (?, ?, ?, ?, ?)",
            (session, event.stream, number, now, event.data),
        )
        numbers.append(number)
    connection.execute(PRUNE, (now - max_age, max_events))
    return numbers


def select_events(
    connection: sqlite3.Connection, session: str, stream: int, number: int, oldest: float
) -> list[StoredEvent] | None:
    """Return a page of the events after ``number`` that are not older than ``oldest``; None if events are missing."""
    # The query includes the event `number` itself, because if only that event is stored, no event follows it yet. So
    # the limit is one more than a page.
    rows = connection.execute(
        "SELECT number, data FROM events WHERE session = ? AND stream = ? AND number >= ? AND time >= ?"
        " ORDER BY number LIMIT ?",
        (session, stream, number, oldest, PAGE + 1),
    ).fetchall()
    if not rows or rows[0][0] > number + 1:
        return None
    return [StoredEvent(stream, each, data) for each, data in rows if each > number]


def delete_events(connection: sqlite3.Connection, session: str) -> None:
    """Delete the events of a session."""
    connection.execute("DELETE FROM events WHERE session = ?", (session,))


class MemoryEventStore(EventStore):
    """An event store in memory. Beyond a limit, the oldest events are deleted, whichever session they belong to.

    Args:
        max_events: The maximum number of events.
        max_bytes: The maximum size of all messages, in bytes.
        max_age: Seconds for which an event is kept.
        clock: Returns the time in seconds; for tests.

    Raises:
        TypeError: If a limit is not a number.
        ValueError: If a limit is not above 0.
    """

    def __init__(
        self,
        *,
        max_events: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        max_age: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_count("max_events", max_events)
        check_count("max_bytes", max_bytes)
        check_seconds("max_age", max_age)
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._clock = clock
        self._bytes = 0
        self._streams: dict[str, dict[int, deque[StoredEvent]]] = {}
        # Every event in the order of arrival, with its time; the first is the next to be deleted.
        self._order: OrderedDict[tuple[str, int, int], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        await trio.lowlevel.checkpoint()
        self.insert(session, events)

    def insert(self, session: str, events: Sequence[StoredEvent]) -> list[int]:
        """Do what `insert_events` does."""
        now = self._clock()
        numbers = []
        for event in events:
            kept = self._streams.setdefault(session, {}).setdefault(event.stream, deque())
            newest = kept[-1].number if kept else 0
            if not event.number:
                event = StoredEvent(event.stream, newest + 1, event.data)
            numbers.append(event.number)
            if event.number <= newest:
                continue  # an earlier attempt, which was cancelled, has stored this event
            kept.append(event)
            self._order[session, event.stream, event.number] = now
            self._bytes += len(event.data)
        self._drop(now)
        return numbers

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        await trio.lowlevel.checkpoint()
        self._drop(self._clock())
        kept = self._streams.get(session, {}).get(stream)
        # The next event must be stored, or must be the one after the newest; otherwise, some are missing.
        if not kept or not kept[0].number <= number + 1 <= kept[-1].number + 1:
            raise lost(stream, number)
        start = number + 1 - kept[0].number  # numbers have no gaps
        return [kept[index] for index in range(start, min(len(kept), start + PAGE))]

    def newest(self, session: str, stream: int) -> int:
        """Return the number of the newest event of a stream that is stored; 0 for none."""
        kept = self._streams.get(session, {}).get(stream)
        return kept[-1].number if kept else 0

    async def forget(self, session: str) -> None:
        await trio.lowlevel.checkpoint()
        self.delete(session)

    def delete(self, session: str) -> None:
        """Do what `forget` does."""
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
            kept = streams[stream]  # the oldest event is the first in its stream, because events arrive in order
            self._bytes -= len(kept.popleft().data)
            if not kept:
                del streams[stream]
                if not streams:
                    del self._streams[session]


class SqliteEventStore(EventStore, trio.abc.AsyncResource):
    """An event store in an SQLite database, which a worker thread reads and writes.

    ``async with SqliteEventStore(path) as store:`` opens the file and closes it at the end. Otherwise the file is
    opened when first needed.

    Several stores, in one process or in several, may use the same file. Within a process they share one connection.

    If an operation is cancelled before the thread has begun it, it has no effect; otherwise it continues until the
    database has finished.

    Args:
        path: The file. A missing file is created, readable only by its owner.
        max_events: The maximum number of events; beyond it, the oldest are deleted.
        max_age: Seconds for which an event is kept.

    Raises:
        TypeError: If a limit is not a number.
        ValueError: If a limit is not above 0.
        OSError: When the file is opened, if it can't be created, read or written, or has a second hard link.
        sqlite3.Error: When the file is opened, if it is not a database; later, if the file can't grow; at any
            time, if another process has kept the file locked for 30 seconds.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_events: int = 100_000, max_age: float = 86_400.0) -> None:
        check_count("max_events", max_events)
        check_seconds("max_age", max_age)
        self._max_events = max_events
        self._max_age = max_age
        self._database = Database(os.fspath(path), self._prepare)

    async def __aenter__(self) -> Self:
        await self._database.run(lambda _: None)
        return self

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        # The time is that of the wall clock, unlike in the store in memory, because it must keep its meaning after a
        # restart.
        now = time.time()
        await self._database.run(
            lambda each: insert_events(each, session, events, now, max_age=self._max_age, max_events=self._max_events)
        )

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        oldest = time.time() - self._max_age
        found = await self._database.run(lambda each: select_events(each, session, stream, number, oldest))
        if found is None:
            raise lost(stream, number)
        return found

    async def forget(self, session: str) -> None:
        await self._database.run(lambda each: delete_events(each, session))

    async def aclose(self) -> None:
        """Close the file; using the store again reopens it."""
        # This is shielded, because a cancelled caller must close the file, too. The wait is bounded, because each
        # operation before it has a timeout.
        with trio.CancelScope(shield=True):
            await self._database.close()
        await trio.lowlevel.checkpoint_if_cancelled()

    @staticmethod
    def _prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
