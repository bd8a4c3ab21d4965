"""The content of a file of `SqliteStores`, and whether the file is fit for use."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from trio_mcp.stores import tables
from trio_mcp.stores.contract import StoreError
from trio_mcp.stores.sqlite_stores import REASONS, check_closed

__all__ = ["Inspection", "inspect_file"]

TRIES: Final = 20
"""How many times the lock for writing is taken, a twentieth of a second apart (arbitrary)."""

PATIENCE: Final = 5.0
"""Seconds to wait for the lock: as long as `SqliteStores` waits by default."""

COUNTS: Final = {
    "sessions": "SELECT sessions FROM serving",
    "streams": "SELECT count(*) FROM streams WHERE member != 0",
    "members": "SELECT count(*) FROM members",
    "events": "SELECT count(*) FROM events",
    "states": "SELECT count(*) FROM states",
    "topics": "SELECT count(*) FROM topics",
    "buckets": "SELECT count(*) FROM buckets",
    "remembered": "SELECT count(*) FROM remembered",
}


@attrs.frozen
class Inspection:
    """The result of `inspect_file`.

    Attributes:
        server: The name of the server that the file belongs to; None if none has used it yet.
        layout: The version of the tables.
        tasks: How many tasks there are, by status.
        running: How many of them a process holds.
        journal: Bytes of the journals of the tasks.
        counts: How many sessions, open streams, processes that serve sessions, events of sessions, states of users,
            topics that have changed, token buckets, and remembered keys there are.
        size: Bytes of the file.
        log: Bytes of the write-ahead log beside it.
        longest_wait: The longest of several waits for the lock for writing, in seconds: as long as the longest
            transaction of other processes meanwhile.
    """

    server: str | None
    layout: int
    tasks: Mapping[str, int]
    running: int
    journal: int
    counts: Mapping[str, int]
    size: int
    log: int
    longest_wait: float


def inspect_file(path: str) -> Inspection:
    """Inspect a file of `SqliteStores`, which processes may be using; this takes about a second.

    Raises:
        FileNotFoundError: If there is no such file.
        StoreError: If it is damaged, no file of `SqliteStores`, or that of another version, can't be opened, or stays
            locked by another process, or is open to all users of the machine.
    """
    size = Path(path).stat().st_size
    try:
        # Only SQLite may open a file that other processes use; `mode=rw` does not create one.
        connection = sqlite3.connect(
            f"{Path(path).resolve().as_uri()}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None
        )
        try:
            if not tables.check_layout(connection, path):
                raise StoreError(f"{path} is empty: no server has used it yet")
            check_closed(path)
            return _inspected(connection, path, size)
        finally:
            connection.close()
    except sqlite3.Error as exc:
        code = getattr(exc, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            raise StoreError(
                f"{path} is locked: a process has been writing to it for more than {PATIENCE:g} s; if it was stopped,"
                " let it go on, or end it"
            ) from None
        raise StoreError(f"{path} {REASONS.get(code, 'could not be used')} (SQLite: {exc})") from None


def _inspected(connection: sqlite3.Connection, path: str, size: int) -> Inspection:
    def one(statement: str) -> int:
        found: int = connection.execute(statement).fetchone()[0]
        return found

    (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if check != "ok":
        raise StoreError(f"{path} {REASONS[sqlite3.SQLITE_CORRUPT]} (SQLite: {check})")
    log = f"{path}-wal"
    return Inspection(
        server=connection.execute("SELECT server FROM held").fetchone()[0],
        layout=one("PRAGMA user_version"),
        tasks=dict(connection.execute("SELECT status, count(*) FROM tasks GROUP BY status ORDER BY status")),
        running=one("SELECT count(*) FROM tasks WHERE token != ''"),
        journal=one("SELECT ifnull(sum(length(value)), 0) FROM entries"),
        counts={name: one(statement) for name, statement in COUNTS.items()},
        size=size,
        log=Path(log).stat().st_size if os.path.exists(log) else 0,
        longest_wait=_longest_wait(connection),
    )


def _longest_wait(connection: sqlite3.Connection) -> float:
    longest = 0.0
    for _ in range(TRIES):
        began = time.monotonic()
        connection.execute("BEGIN IMMEDIATE")
        longest = max(longest, time.monotonic() - began)
        connection.execute("ROLLBACK")
        time.sleep(1 / TRIES)
    return longest
