"""Stores in an SQLite file, for the processes on one machine."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Final, Literal, NoReturn, Self, TypeVar
from weakref import WeakValueDictionary

import attrs
import trio

from trio_mcp._checks import check_choice, check_count, check_hook, check_seconds
from trio_mcp._platform import FILES_HAVE_OWNERS, boot_id, network_file_system
from trio_mcp.stores import session_tables, shared_tables, tables
from trio_mcp.stores.bell import Bell
from trio_mcp.stores.contract import (
    LOOK,
    Changed,
    Claim,
    JournalEntry,
    StateEntry,
    StatePut,
    StoreBusy,
    StoredTask,
    StoreError,
    Stores,
)
from trio_mcp.stores.database import Database
from trio_mcp.stores.listeners import TopicListener, TopicListeners
from trio_mcp.stores.refusals import not_open
from trio_mcp.stores.sqlite_file import LockedFile
from trio_mcp.stores.sqlite_sessions import SqliteSessions
from trio_mcp.stores.times import Moment

__all__ = ["REASONS", "SqliteStores", "check_closed"]

T = TypeVar("T")

SYNCHRONOUS: Final = {"process": "NORMAL", "power": "FULL"}
"""SQLite's settings, by what a commit must survive."""

REASONS: Final = {
    sqlite3.SQLITE_CORRUPT: "is damaged: restore it, or move it away together with its -wal and -shm files",
    sqlite3.SQLITE_NOTADB: "is not an SQLite database: give the path of a file of SqliteStores, or of a new file",
    sqlite3.SQLITE_READONLY: "can't be written: check its permissions, and those of its folder",
    sqlite3.SQLITE_PERM: "can't be opened: check its permissions, and those of its folder",
    sqlite3.SQLITE_CANTOPEN: "can't be opened: check its permissions, and those of its folder",
    sqlite3.SQLITE_FULL: "can't grow, because the disk is full: make room on it",
    sqlite3.SQLITE_IOERR: "can't be read or written: check that its disk works, and has room",
    sqlite3.SQLITE_NOMEM: "can't be used, because there is not enough memory",
}
"""The descriptions of failures, by SQLite's primary error code."""


class SqliteStores(Stores):
    """Stores in an SQLite file, which several processes on one machine may use.

    ``async with SqliteStores(path) as stores:`` opens the file and closes it at the end. Two threads, which end when
    they are idle, read and write it; operations that wait at the same time become one transaction. Reading does not
    wait for writers.

    An operation that is cancelled before its thread has begun it has no effect; otherwise it continues until the
    database has finished, and returns.

    Args:
        path: The file. A missing file is created; it and the files that SQLite puts beside it are then readable only by
            their owner.
        durable: What a committed change survives: ``"process"`` the death of any process, ``"power"`` also a loss of
            power; each transaction then waits for the disk.
        timeout: Seconds for which an operation waits for its turn and for other processes, before it fails with
            `StoreBusy`.
        max_events: The maximum number of events of sessions; beyond it, the oldest are deleted.
        max_age: Seconds for which an event is kept.
        clock: Returns the seconds by which leases age, on a clock that all processes share; by default
            `time.monotonic`. On Linux and macOS it stands still while the machine is suspended, as Trio's clock does.
        now: Returns the seconds since the epoch, by which tasks expire.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument has a value that is not allowed, such as the path ``":memory:"``.
        StoreError: When the file is opened, if it can't be created, read or written, is damaged, is not a database, was
            created by another program or version, is open to all users of the machine, or is on a network file system;
            later, if it can't be read or written, or is no longer at its path.
        StoreBusy: When the file is opened or later, if other processes kept it locked until the timeout.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durable: Literal["process", "power"] = "process",
        timeout: float = 5.0,
        max_events: int = 100_000,
        max_age: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
            raise TypeError(f"path must be a string or a path, got {path!r}")
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(f"path must name a file, got {path!r}: MemoryStores() keeps everything in memory")
        self._path = os.path.abspath(path)  # the file is opened later, and again for reading
        check_choice("durable", durable, SYNCHRONOUS)
        check_seconds("timeout", timeout, zero=True, finite=True)
        check_count("max_events", max_events)
        check_seconds("max_age", max_age)
        check_hook("clock", clock, sync=True)
        check_hook("now", now, sync=True)
        self._sessions = SqliteSessions(self._read, self._write, self.wake, max_events=max_events, max_age=max_age)
        self._clock = clock
        self._now = now
        self._boot = boot_id()
        self._bell = Bell(self._path)
        self._users = 0
        self._listeners: TopicListeners | None = None
        self._place = (0, 0)  # device and inode of the file
        self._writer = Database(self._path, self._prepare, timeout=timeout, synchronous=SYNCHRONOUS[durable])
        self._reader = Database(self._path, self._prepare_reader, timeout=timeout, reading=True)

    async def __aenter__(self) -> Self:
        self._users += 1
        try:
            moment = self._moment()
            with self._clear_errors():
                self._listeners = await self._writer.run(partial(self._open, moment))
                # A reader that opened the file later would create one where it is gone.
                await self._reader.run(lambda _: None)
        except BaseException:
            with trio.CancelScope(shield=True):
                await self._leave()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        # This is shielded, because a cancelled caller must close the file, too; the wait is bounded by timeouts.
        with trio.CancelScope(shield=True):
            await self._leave()
        with trio.CancelScope(shield=exc[0] is not None):  # a Cancelled must not replace the block's exception
            await trio.lowlevel.checkpoint()

    @property
    def sessions(self) -> SqliteSessions:
        return self._sessions

    async def own(self, server: str) -> None:
        await self._write(lambda each, _: tables.own(each, server, self._path))

    def clock(self) -> float:
        return self._clock()

    def now(self) -> float:
        return self._now()

    def wake(self, topic: str) -> None:
        self._opened().wake(topic)
        self._bell.ring()

    async def hear(self) -> NoReturn:
        await self._bell.hear(self._opened().wake_all)

    def listen(self, topic: str, *, look: float = LOOK) -> AbstractContextManager[TopicListener]:
        # All who listen look at the same moments, so that a process with nothing to do wakes up once for all of them.
        return self._opened().listen(topic, lambda: look - trio.current_time() % look)

    # --- tasks ---------------------------------------------------------------------------------------------------

    async def add_task(
        self,
        task: StoredTask,
        entries: Sequence[JournalEntry] = (),
        *,
        lease: float | None = None,
        limit: int | None = None,
    ) -> StoredTask:
        task = attrs.evolve(task, token="" if lease is None else secrets.token_urlsafe(16))
        await self._write(lambda each, moment: tables.add(each, task, entries, moment, lease=lease, limit=limit))
        return task

    async def task(self, key: str) -> StoredTask | None:
        return await self._read(lambda each, moment: tables.task_of(each, key, moment))

    async def journal(self, key: str) -> Sequence[JournalEntry]:
        return await self._read(lambda each, moment: tables.journal(each, key, moment))

    async def note(self, key: str, token: str, entry: JournalEntry) -> None:
        await self._write(lambda each, moment: tables.note(each, key, token, entry, moment))

    async def put_task(
        self, task: StoredTask, entries: Sequence[JournalEntry] = (), *, token: str | None = None
    ) -> bool:
        return await self._write(lambda each, moment: tables.put(each, task, entries, token, moment))

    async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
        # Each process polls once a second, and most polls find nothing: those must not wait for the write lock.
        if not await self._read(lambda each, moment: tables.claimable(each, tools, moment)):
            return []
        tokens = [secrets.token_urlsafe(16) for _ in range(most)]
        return await self._write(lambda each, moment: tables.claim(each, tools, tokens, lease, moment))

    async def renew(self, leases: Mapping[str, str], *, lease: float) -> Mapping[str, StoredTask | None]:
        return await self._write(lambda each, moment: tables.renew(each, leases, lease, moment))

    async def versions(self, keys: Collection[str]) -> Mapping[str, int]:
        return await self._read(lambda each, moment: tables.versions(each, keys, moment))

    # --- changes, the state of users, and counters ---------------------------------------------------------------

    async def announce(self, topics: Collection[str]) -> int:
        return await self._write(lambda each, moment: shared_tables.announce(each, topics, moment))

    async def changed(self, after: int) -> Changed:
        return await self._read(lambda each, _: shared_tables.changed(each, after))

    async def state(self, user: str, name: str) -> StateEntry | None:
        return await self._read(lambda each, moment: shared_tables.state_of(each, user, name, moment))

    async def put_state(
        self, user: str, name: str, value: bytes, *, tag: str | None, expires: float | None
    ) -> StatePut:
        return await self._write(
            lambda each, moment: shared_tables.put_state(each, user, name, value, tag, expires, moment)
        )

    async def forget_states(self, user: str) -> None:
        await self._write(lambda each, _: shared_tables.forget(each, user))

    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        return await self._write(lambda each, moment: shared_tables.take(each, bucket, rate, burst, moment))

    async def remember(self, key: str, *, seconds: float) -> bool:
        return await self._write(lambda each, moment: shared_tables.remember(each, key, seconds, moment))

    # --- inside --------------------------------------------------------------------------------------------------

    def _moment(self) -> Moment:
        return Moment(self._boot, self._clock(), self._now())

    def _opened(self) -> TopicListeners:
        if self._listeners is None:
            raise not_open(self._path)
        return self._listeners

    async def _read(self, work: Callable[[sqlite3.Connection, Moment], T]) -> T:
        self._opened()
        # The clocks are read here, because a clock may be Trio's, which the thread can't read.
        moment = self._moment()
        with self._clear_errors():

            def read(connection: sqlite3.Connection) -> T:
                self._check_place()
                return work(connection, moment)

            return await self._reader.run(read)

    async def _write(self, work: Callable[[sqlite3.Connection, Moment], T | Exception | None]) -> T:
        self._opened()
        moment = self._moment()

        def write(connection: sqlite3.Connection) -> T | Exception | None:
            self._check_place()
            done = work(connection, moment)
            tables.sweep(connection, moment)
            session_tables.sweep(connection, moment)
            return done

        with self._clear_errors():
            result = await self._writer.run(write)
        if isinstance(result, Exception):
            raise result
        return result  # type: ignore[return-value]  # None is T's, too

    async def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            with self._clear_errors():
                self._listeners = None
                await self._reader.close()
                await self._writer.close()

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Everything is checked before the file is changed, because it may belong to another program.
        tables.check_layout(connection, self._path)
        check_closed(self._path)
        if (kind := network_file_system(Path(self._path))) is not None:
            raise StoreError(
                f"{self._path} is on a network file system ({kind}), where processes can't share memory: use a file on"
                " a local disk"
            )
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(
                f"{self._path} can't have a write-ahead log, which needs shared memory (its mode is {mode!r}): use a"
                " file on a local disk"
            )
        connection.execute("PRAGMA fullfsync = ON")  # on macOS, a plain fsync does not flush the drive's cache

    def _prepare_reader(self, connection: sqlite3.Connection) -> None:
        self._check_place()
        connection.execute("PRAGMA query_only = ON")

    def _open(self, moment: Moment, connection: sqlite3.Connection) -> TopicListeners:
        tables.lay_out(connection, self._path)
        tables.adopt(connection, moment)
        session_tables.adopt(connection, moment)
        shared_tables.drop_buckets(connection, moment)
        self._place = self._found()
        with _LOCK:
            return _LISTENERS.setdefault(self._place, TopicListeners())

    def _found(self) -> tuple[int, int]:
        found = os.stat(self._path)
        return found.st_dev, found.st_ino

    def _check_place(self) -> None:
        # A file that was deleted stays open. But what is written to it is gone in the end, and processes that are
        # started later use another one.
        with contextlib.suppress(FileNotFoundError):
            if self._found() == self._place:
                return
        raise StoreError(
            f"{self._path} was deleted or replaced while it was open: put it back, or restart all processes that use it"
        )

    @contextlib.contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn errors of SQLite and of the operating system into a `StoreError` that names the file."""
        try:
            yield
        except LockedFile as exc:
            if self.on_busy is not None:
                self.on_busy(self._writer.timeout)
            raise StoreBusy(str(exc)) from None
        except sqlite3.Error as exc:
            code = getattr(exc, "sqlite_errorcode", 0) & 0xFF  # the primary error code
            raise StoreError(f"{self._path} {REASONS.get(code, 'could not be used')} (SQLite: {exc})") from None
        except FileNotFoundError:
            raise StoreError(f"{self._path} can't be created, because its folder does not exist: create it") from None
        except OSError as exc:
            raise StoreError(f"{self._path} can't be used: {exc.strerror}") from None


def check_closed(path: str) -> None:
    """Check that not all users of the machine can use a file, which has what clients have sent.

    Raises:
        StoreError: If they can.
    """
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if FILES_HAVE_OWNERS and mode & 0o006:
        raise StoreError(
            f"{path} is open to all users of this machine (mode {mode:04o}), and has what clients have sent: run"
            f" chmod 600 {path}"
        )


_LOCK = threading.Lock()
_LISTENERS: WeakValueDictionary[tuple[int, int], TopicListeners] = WeakValueDictionary()
"""The listeners in this process, by the device and inode of the file; `_LOCK` guards it."""
