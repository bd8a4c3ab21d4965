"""An SQLite file: one connection for all its users in this process, and transactions that begin by locking it."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

__all__ = ["LockedFile", "SqliteFile"]

T = TypeVar("T")

BUSY = 30.0
"""Seconds that an operation waits for the transactions of other processes (arbitrary); each takes milliseconds."""

LARGEST_WAL = 32 * 1024 * 1024
"""Bytes of the ``-wal`` file beyond which a writer waits for the readers and truncates it (arbitrary)."""

PAUSE = 0.005
"""Seconds between two attempts to prepare a connection while other processes have locked the file (arbitrary)."""

LETTING_GO = 10.0
"""Seconds until the next attempt to truncate the ``-wal`` file, if one fails (arbitrary): a reader may be stopped."""


class LockedFile(sqlite3.OperationalError):
    """Another process kept the file locked until this process timed out."""


class SqliteFile:
    """An SQLite file that is open while it has users. Its methods may be called in any thread; one runs at a time.

    SQLite locks a file with POSIX locks, which belong to the process: when the process closes any descriptor of the
    file, all its locks are gone. Another process then believes that it is the last to use the file, and deletes the
    ``-wal`` file beside it, with what was committed (https://www.sqlite.org/howtocorrupt.html, section 2.2). Therefore
    nothing but SQLite opens a file that exists, and all names of a file in this process lead to one connection.
    """

    def __init__(
        self, name: str, real: Path | None = None, identity: tuple[int, int] | None = None, *, reading: bool = False
    ) -> None:
        self._name = name
        self._real = real
        self._identity = identity
        self._begin = "BEGIN" if reading else "BEGIN IMMEDIATE"
        self._settings: dict[str, str] = {}  # the pragmas of the connection, and their values
        self._let_go_at = 0.0  # when the `-wal` file may next be emptied, on the monotonic clock
        self._lock = threading.Lock()  # guards `_users` and `_connection` while the file is opened, used and closed
        self._users = 0
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def at(cls, path: str | bytes, *, reading: bool = False) -> SqliteFile:
        """Return the file at a path.

        Args:
            path: The path. A missing file is created, readable only by its owner. Each ``:memory:`` is a new database.
            reading: Whether the file is only read. Readers have a separate connection, whose transactions do not wait
                for writers.

        Raises:
            OSError: If the file can't be created, read or written, or has a second hard link.
        """
        name = os.fsdecode(path)
        if name == ":memory:":
            return cls(name)
        # Symbolic links are resolved, because O_EXCL does not follow them, and SQLite puts its files beside the target.
        real = Path(os.path.realpath(name))
        with _CREATING:
            identity = _create(real)
            return _FILES.setdefault((*identity, reading), cls(name, real, identity, reading=reading))

    def open(self, prepare: Callable[[sqlite3.Connection], object], within: float) -> None:
        """Open the file for one more user, which has to close it.

        Args:
            prepare: Called with the connection, unless another user has the file open already; called again while other
                processes have locked the file.
            within: Seconds to wait for other processes.

        Raises:
            OSError: If the file has been replaced.
            sqlite3.Error: If the file is not a database; `LockedFile` if another process keeps it locked.
        """
        with self._held(within), self._saying_what_is_locked():
            if self._connection is None:
                self._connection = self._connected(prepare, within)
            self._users += 1

    def _connected(self, prepare: Callable[[sqlite3.Connection], object], within: float) -> sqlite3.Connection:
        # `mode=rw` keeps SQLite from creating the file, which others could then read. `isolation_level=None` keeps
        # Python from beginning transactions by itself.
        address = ":memory:" if self._real is None else f"{self._real.as_uri()}?mode=rw"
        connection = sqlite3.connect(address, uri=True, timeout=within, isolation_level=None, check_same_thread=False)
        try:
            if self._real is not None and _identity(self._real) != self._identity:
                raise OSError(errno.ESTALE, "the file was replaced while it was being opened: try again", self._name)
            connection.execute(f"PRAGMA journal_size_limit = {LARGEST_WAL}")
            self._settings.clear()
            _persist(partial(prepare, connection), within)
        except BaseException:
            connection.close()
            raise
        return connection

    def transact(
        self, works: Sequence[Callable[[sqlite3.Connection], T]], within: float, synchronous: str = "NORMAL"
    ) -> list[T]:
        """Call functions in one transaction, and return their results; if one fails, the transaction is rolled back.

        Meanwhile no other process writes, because the transaction begins by taking the write lock. If it began with a
        read, others could write between that read and its own writes. A file that is only read is not locked.

        Args:
            works: The functions.
            within: Seconds to wait for other processes, and for other users in this one.
            synchronous: SQLite's setting. With ``NORMAL``, a file in WAL mode is synced only at a checkpoint: a crash
                of the process loses nothing, and a power failure only the last transactions. With ``FULL``, a power
                failure loses nothing either (https://www.sqlite.org/pragma.html#pragma_synchronous).

        Raises:
            LockedFile: If another process keeps the file locked.
            Exception: Whatever a function or the transaction raises.
        """
        with self._held(within), self._saying_what_is_locked():
            connection: Any = self._connection
            # The time is rounded up, so that it rarely changes and the pragma is rarely needed.
            self._set("busy_timeout", str(100 * math.ceil(10 * max(0.0, within))))
            self._set("synchronous", synchronous)
            connection.execute(self._begin)
            try:
                values = [work(connection) for work in works]
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # some errors end the transaction themselves
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
                raise
            if self._real is not None and self._begin != "BEGIN":
                self._bound_wal(connection)
        return values

    def _set(self, pragma: str, value: str) -> None:
        connection: Any = self._connection
        if self._settings.get(pragma) != value:
            connection.execute(f"PRAGMA {pragma} = {value}")
            self._settings[pragma] = value

    def _bound_wal(self, connection: sqlite3.Connection) -> None:
        # SQLite starts again at the beginning of the -wal file only when no reader uses it. With many processes that
        # read all the time there is no such moment, and the file would grow without bound.
        try:
            size = os.stat(f"{self._real}-wal").st_size
        except FileNotFoundError:  # in another mode
            return
        if size <= LARGEST_WAL or time.monotonic() < self._let_go_at:
            return
        # SQLite waits until it can lock the read marks of old readers, which readers of the newest state may take
        # meanwhile, one after another. So several short waits succeed sooner than a long one.
        self._set("busy_timeout", "100")
        with contextlib.suppress(sqlite3.Error):  # what was committed is safe in any case
            for _ in range(10):
                busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    return
            self._let_go_at = time.monotonic() + LETTING_GO

    def close(self) -> None:
        """Close the file for one user; the last user closes the connection."""
        with self._lock:
            self._users -= 1
            if not self._users and self._connection is not None:
                connection, self._connection = self._connection, None
                connection.close()

    def __del__(self) -> None:
        # A store need not be closed, but from 3.13 on, Python warns about a connection that was not closed.
        if self._connection is not None:
            self._connection.close()

    @contextlib.contextmanager
    def _held(self, within: float) -> Iterator[None]:
        """Hold the lock of this object. Another user in this process may hold it while it waits for other processes."""
        if not self._lock.acquire(timeout=max(0.0, within)):
            raise self._locked()
        try:
            yield
        finally:
            self._lock.release()

    def _locked(self) -> LockedFile:
        return LockedFile(
            f"{self._name} is locked: another process has been writing to it for too long; end that process, or use"
            " a different file"
        )

    @contextlib.contextmanager
    def _saying_what_is_locked(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as exc:
            if not _is_busy(exc):
                raise
            raise self._locked() from exc


def _persist(prepare: Callable[[], object], within: float) -> None:
    """Repeat a function while other processes have locked the file, for some seconds.

    SQLite does not wait for processes that write, or open a new file, where it changes the mode of the journal.
    """
    until = time.monotonic() + within
    while True:
        try:
            prepare()
            return
        except sqlite3.OperationalError as exc:
            if not _is_busy(exc) or time.monotonic() >= until:
                raise
        time.sleep(PAUSE)


def _is_busy(exc: sqlite3.OperationalError) -> bool:
    # The low byte is the primary error code. An exception that a function has raised itself may have no code.
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


_CREATING = threading.Lock()
"""Held while a file is created, so that its descriptor is closed before this process holds any lock on the file."""
_FILES: WeakValueDictionary[tuple[int, int, bool], SqliteFile] = WeakValueDictionary()
"""The files that are in use, keyed by device, inode, and whether they are only read."""


def _create(path: Path) -> tuple[int, int]:
    """Create a file unless it exists, and return its identity."""
    # SQLite alone would use the permissions of the umask. The files beside it (-wal, -shm) get the same mode.
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if not os.access(path, os.R_OK | os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return _identity(path)


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if found.st_nlink > 1:
        # SQLite names the -wal after the path, so a process that opened the file by another name would not find it
        # (https://www.sqlite.org/howtocorrupt.html, section 2.6).
        raise OSError(errno.EMLINK, "the file has other names (hard links): use a copy", str(path))
    return found.st_dev, found.st_ino
