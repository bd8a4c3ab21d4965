"""The tables of `SqliteStores` for changes, the state of users and counters; as those of `tables`, for tasks."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Collection

from trio_mcp.stores.contract import MOST_TOPICS, TOPIC_AGE, Changed, StateEntry, StatePut
from trio_mcp.stores.times import SLICE, Moment, taken

__all__ = ["SCHEMA", "announce", "changed", "drop_buckets", "forget", "put_state", "remember", "state_of", "take"]

# `changes` saves a search for the newest number, and has the highest number of a topic that was dropped.
SCHEMA = """
CREATE TABLE changes (newest INTEGER NOT NULL, dropped INTEGER NOT NULL);
INSERT INTO changes VALUES (0, 0);
CREATE TABLE topics (number INTEGER PRIMARY KEY, topic TEXT NOT NULL UNIQUE, time REAL NOT NULL);
CREATE TABLE states (
    user TEXT NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    tag TEXT NOT NULL,
    expires REAL,
    PRIMARY KEY (user, name)
);
CREATE INDEX states_expiring ON states (expires) WHERE expires IS NOT NULL;
CREATE TABLE buckets (name TEXT PRIMARY KEY, boot TEXT NOT NULL, full_at REAL NOT NULL);
CREATE INDEX buckets_full ON buckets (full_at);
CREATE TABLE remembered (key TEXT PRIMARY KEY, until REAL NOT NULL);
CREATE INDEX remembered_until ON remembered (until);
"""


def announce(connection: sqlite3.Connection, topics: Collection[str], moment: Moment) -> int:
    """Give each topic the next number, drop those that are too old or too many, and return the newest number."""
    (newest,) = connection.execute("SELECT newest FROM changes").fetchone()
    connection.executemany(
        "INSERT OR REPLACE INTO topics VALUES (?, ?, ?)",
        [(number, topic, moment.now) for number, topic in enumerate(topics, newest + 1)],
    )
    (dropped,) = connection.execute(
        "SELECT max(max(ifnull((SELECT number FROM topics ORDER BY number DESC LIMIT 1 OFFSET ?), 0)),"
        " ifnull((SELECT number FROM topics WHERE time <= ? ORDER BY number LIMIT 1), 0))",
        (MOST_TOPICS, moment.now - TOPIC_AGE),
    ).fetchone()
    connection.execute("DELETE FROM topics WHERE number <= ?", (dropped,))
    newest += len(topics)
    connection.execute("UPDATE changes SET newest = ?, dropped = max(dropped, ?)", (newest, dropped))
    return newest  # type: ignore[no-any-return]


def changed(connection: sqlite3.Connection, after: int) -> Changed:
    """Return what has changed since a number."""
    newest, dropped = connection.execute("SELECT newest, dropped FROM changes").fetchone()
    rows = connection.execute("SELECT topic, number FROM topics WHERE number > ? ORDER BY number", (after,))
    return Changed(newest, dict(rows), after >= dropped)


def state_of(connection: sqlite3.Connection, user: str, name: str, moment: Moment) -> StateEntry | None:
    """Return what is kept for a user under a name."""
    row = connection.execute(
        "SELECT value, tag FROM states WHERE user = ? AND name = ? AND (expires IS NULL OR expires > ?)",
        (user, name, moment.now),
    ).fetchone()
    return None if row is None else StateEntry(*row)


def put_state(
    connection: sqlite3.Connection,
    user: str,
    name: str,
    value: bytes,
    tag: str | None,
    expires: float | None,
    moment: Moment,
) -> StatePut:
    """Keep a value for a user if the one before has this tag."""
    connection.execute(
        "DELETE FROM states WHERE rowid IN (SELECT rowid FROM states WHERE expires <= ? LIMIT ?)", (moment.now, SLICE)
    )
    entry = state_of(connection, user, name, moment)
    if (None if entry is None else entry.tag) != tag:
        return StatePut(False, entry)
    entry = StateEntry(value, secrets.token_urlsafe(8))
    row = (user, name, value, entry.tag, expires)
    connection.execute("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?)", row)
    return StatePut(True, entry)


def forget(connection: sqlite3.Connection, user: str) -> None:
    """Delete what is kept for a user."""
    connection.execute("DELETE FROM states WHERE user = ?", (user,))


def drop_buckets(connection: sqlite3.Connection, moment: Moment) -> None:
    """Drop the buckets from before the machine was last started, whose clock was another one."""
    connection.execute("DELETE FROM buckets WHERE boot != ?", (moment.boot,))


def take(connection: sqlite3.Connection, bucket: str, rate: float, burst: int, moment: Moment) -> float:
    """Take a token, and return 0.0; or return the seconds until there is one."""
    connection.execute(
        "DELETE FROM buckets WHERE name IN (SELECT name FROM buckets WHERE full_at <= ? LIMIT ?)",
        (moment.clock, SLICE),
    )
    row = connection.execute(
        "SELECT full_at FROM buckets WHERE name = ? AND boot = ?", (bucket, moment.boot)
    ).fetchone()
    wait, full_at = taken(moment.clock if row is None else row[0], moment.clock, rate=rate, burst=burst)
    if not wait:
        connection.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?, ?)", (bucket, moment.boot, full_at))
    return wait


def remember(connection: sqlite3.Connection, key: str, seconds: float, moment: Moment) -> bool:
    """Remember a key, and return whether it is new."""
    connection.execute(
        "DELETE FROM remembered WHERE key IN (SELECT key FROM remembered WHERE until <= ? LIMIT ?)",
        (moment.now, SLICE),
    )
    row = connection.execute("SELECT until FROM remembered WHERE key = ?", (key,)).fetchone()
    if row is not None and row[0] > moment.now:
        return False
    connection.execute("INSERT OR REPLACE INTO remembered VALUES (?, ?)", (key, moment.now + seconds))
    return True
