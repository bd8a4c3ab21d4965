"""Events in a file, which outlive the process."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

import trio

from trio_mcp.http.server.legacy.stores._checks import check_limit
from trio_mcp.http.server.legacy.stores.events import PAGE, EventsLost, EventStore, StoredEvent

__all__ = ["SqliteEventStore"]

T = TypeVar("T")

SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    stream INTEGER NOT NULL,
    number INTEGER NOT NULL,
    time REAL NOT NULL,
    data BLOB NOT NULL,
    UNIQUE (session, stream, number)
);
CREATE INDEX IF NOT EXISTS by_time ON events (time);
"""


class SqliteEventStore(EventStore, trio.abc.AsyncResource):
    """Keeps events in an SQLite database, in a worker thread.

    ``async with SqliteEventStore(path) as store:`` opens the file, and closes it at the end. Without that it is opened
    when it is first needed.

    Args:
        path: The file; it is made if it is not there, for its owner alone.
        max_events: How many are kept; beyond that the oldest go.
        max_age: Seconds that one is kept.

    Raises:
        TypeError, ValueError: A limit is no number above 0.
        OSError, sqlite3.Error: When it is opened: the file can't be had, or is no database.

    A cancelled operation ends when the database has done it.
    """

    def __init__(self, path: str | os.PathLike[str], *, max_events: int = 100_000, max_age: float = 86_400.0) -> None:
        check_limit("max_events", max_events, whole=True)
        check_limit("max_age", max_age, whole=False)
        self._path = os.fspath(path)
        self._max_events = max_events
        self._max_age = max_age
        self._connection: sqlite3.Connection | None = None
        self._lock = trio.Lock()

    async def __aenter__(self) -> Self:
        await self._run(lambda _: None)
        return self

    async def append(self, session: str, events: Sequence[StoredEvent]) -> None:
        now = time.time()
        rows = [(session, event.stream, event.number, now, event.data) for event in events]

        def insert(connection: sqlite3.Connection) -> None:
            with connection:
                connection.executemany(
                    "INSERT OR IGNORE INTO events (session, stream, number, time, data) VALUES (?, ?, ?, ?, ?)", rows
                )
                connection.execute("DELETE FROM events WHERE time < ?", (now - self._max_age,))
                connection.execute(
                    "DELETE FROM events WHERE id <= (SELECT max(id) FROM events) - ?", (self._max_events,)
                )

        await self._run(insert)

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        oldest = time.time() - self._max_age

        def select(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            return connection.execute(
                "SELECT number, data FROM events WHERE session = ? AND stream = ? AND number >= ? AND time >= ?"
                " ORDER BY number LIMIT ?",
                (session, stream, number, oldest, PAGE + 1),
            ).fetchall()

        rows = await self._run(select)
        if not rows or rows[0][0] > number + 1:
            raise EventsLost(f"what followed event {number} of stream {stream} is no longer kept")
        return [StoredEvent(stream, each, data) for each, data in rows if each > number]

    async def forget(self, session: str) -> None:
        def delete(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("DELETE FROM events WHERE session = ?", (session,))

        await self._run(delete)

    async def aclose(self) -> None:
        """Close the file; using the store again opens it again."""
        with trio.CancelScope(shield=True):  # who is cancelled wants it closed, too
            async with self._lock:
                connection, self._connection = self._connection, None
                if connection is not None:
                    await trio.to_thread.run_sync(connection.close)
        await trio.lowlevel.checkpoint_if_cancelled()

    async def _run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        def work() -> T:
            if self._connection is None:
                self._connection = self._open()
            return function(self._connection)

        async with self._lock:  # one connection, one thread at a time
            return await trio.to_thread.run_sync(work)

    def _open(self) -> sqlite3.Connection:
        if self._path != ":memory:":
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
        connection: Any = sqlite3.connect(self._path, check_same_thread=False, timeout=30)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(SCHEMA)
        except BaseException:
            connection.close()
            raise
        opened: sqlite3.Connection = connection
        return opened
