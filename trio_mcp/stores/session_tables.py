"""The tables of `SqliteStores` for the sessions of the legacy era; as those of `tables`, for tasks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from trio_mcp.stores.contract import StoreError
from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.event_stores import delete_events
from trio_mcp.stores.refusals import mailbox_full, session_exists, sessions_full, stale_member
from trio_mcp.stores.session_store import Letter, Member, OpenStream, StoredSession
from trio_mcp.stores.times import SLICE, Moment

__all__ = [
    "SCHEMA",
    "Turn",
    "add",
    "adopt",
    "append",
    "carry",
    "change",
    "drop",
    "end",
    "join",
    "leave",
    "letters",
    "losable",
    "open_stream",
    "open_streams",
    "send",
    "session_of",
    "stay",
    "sweep",
    "take_over",
]

# `serving` has the number of sessions, and the number of the newest member. `streams` has the streams that are open,
# and stream 0 of a session once it is used; there, `member` is 0. `carrier` is 0 if no member carries the stream. Most
# streams are carried by those who have them open, so that `carried` is nearly empty.
SCHEMA = """
CREATE TABLE serving (sessions INTEGER NOT NULL, members INTEGER NOT NULL);
INSERT INTO serving VALUES (0, 0);
CREATE TABLE members (
    number INTEGER PRIMARY KEY,
    token TEXT NOT NULL UNIQUE,
    boot TEXT NOT NULL,
    until REAL NOT NULL,
    duration REAL NOT NULL,
    newest INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
CREATE TABLE letters (
    member INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind TEXT NOT NULL,
    session TEXT NOT NULL,
    stream INTEGER NOT NULL,
    event INTEGER NOT NULL,
    ended INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (member, number)
);
CREATE UNIQUE INDEX waiting ON letters (member, session, stream, kind) WHERE kind != 'message';
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    expires REAL NOT NULL,
    version INTEGER NOT NULL,
    declaration BLOB NOT NULL
);
CREATE INDEX sessions_expiring ON sessions (expires);
CREATE TABLE fields (
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (session, name)
) WITHOUT ROWID;
CREATE TABLE streams (
    session INTEGER NOT NULL,
    stream INTEGER NOT NULL,
    member INTEGER NOT NULL,
    carrier INTEGER NOT NULL,
    newest INTEGER NOT NULL,
    requests TEXT NOT NULL,
    PRIMARY KEY (session, stream)
) WITHOUT ROWID;
CREATE INDEX opened ON streams (member) WHERE member != 0;
CREATE INDEX carried ON streams (carrier) WHERE carrier != 0 AND carrier != member;
"""

PAGE: Final = 100
"""The maximum number of letters that `letters` returns (arbitrary)."""

OPEN: Final = "EXISTS (SELECT 1 FROM streams WHERE streams.session = sessions.id AND streams.member != 0)"

# One statement finds the caller and the session.
CALLER: Final = """
SELECT members.number, sessions.id, sessions.expires FROM members LEFT JOIN sessions ON sessions.key = ?
WHERE members.token = ?
"""

Insert: TypeAlias = Callable[[sqlite3.Connection, str, Sequence[StoredEvent], float], list[int]]
"""Stores events: `insert_events`, with its bounds."""


@attrs.define
class Turn:
    """A transaction that writes.

    Attributes:
        connection: The connection to the file.
        moment: When the call began.
        posted: Whether it has put letters into mailboxes.
    """

    connection: sqlite3.Connection
    moment: Moment
    posted: bool = False

    def post(
        self,
        member: int,
        kind: str,
        session: str,
        stream: int = 0,
        event: int = 0,
        ended: bool = False,
        data: bytes = b"",
    ) -> None:
        """Put a letter into the mailbox of a member, if there is one with this number."""
        found = self.connection.execute(
            "UPDATE members SET newest = newest + 1, bytes = bytes + ? WHERE number = ?", (len(data), member)
        )
        if found.rowcount:
            # It replaces the letter that waits about the same thing: see the index `waiting`.
            self.connection.execute(
                "INSERT OR REPLACE INTO letters SELECT number, newest, ?, ?, ?, ?, ?, ? FROM members WHERE number = ?",
                (kind, session, stream, event, ended, data, member),
            )
            self.posted = True


@attrs.frozen
class _Found:
    """The member that calls, and the session; ``session`` is 0 if it does not exist."""

    member: int
    session: int
    expires: float


def _found(turn: Turn, key: str, token: str) -> _Found | None:
    """Find the caller and a session; return None if the token is stale."""
    row = turn.connection.execute(CALLER, (key, token)).fetchone()
    if row is None:
        return None
    number, session, expires = row
    if session is None or (expires <= turn.moment.now and not _is_open(turn.connection, session)):
        return _Found(number, 0, 0.0)
    return _Found(number, session, expires)


def _is_open(connection: sqlite3.Connection, session: int) -> bool:
    statement = "SELECT 1 FROM streams WHERE session = ? AND member != 0 LIMIT 1"
    return connection.execute(statement, (session,)).fetchone() is not None


def _alive(connection: sqlite3.Connection, key: str, moment: Moment) -> int:
    """Return the id of a session, 0 if no session has this key."""
    row = connection.execute("SELECT id, expires FROM sessions WHERE key = ?", (key,)).fetchone()
    return row[0] if row is not None and (row[1] > moment.now or _is_open(connection, row[0])) else 0


# --- members ----------------------------------------------------------------------------------------------------------


def adopt(connection: sqlite3.Connection, moment: Moment) -> None:
    """Do what `tables.adopt` does, for the leases of members."""
    connection.execute(
        "UPDATE members SET until = ? + duration, boot = ? WHERE boot != ?", (moment.clock, moment.boot, moment.boot)
    )


def join(turn: Turn, token: str, lease: float) -> Member:
    """Add a member."""
    turn.connection.execute("UPDATE serving SET members = members + 1")
    (number,) = turn.connection.execute("SELECT members FROM serving").fetchone()
    turn.connection.execute(
        "INSERT INTO members VALUES (?, ?, ?, ?, ?, 0, 0)",
        (number, token, turn.moment.boot, turn.moment.clock + lease, lease),
    )
    return Member(number, token)


def stay(turn: Turn, token: str, lease: float, read: int) -> StoreError | None:
    """Renew the lease of a member, and delete the letters that it has read."""
    number = _number(turn.connection, token)
    if number is None:
        return stale_member()
    if read:
        which = "FROM letters WHERE member = ? AND number <= ?"
        (size,) = turn.connection.execute(f"SELECT ifnull(sum(length(data)), 0) {which}", (number, read)).fetchone()
        turn.connection.execute(f"DELETE {which}", (number, read))
        turn.connection.execute("UPDATE members SET bytes = bytes - ? WHERE number = ?", (size, number))
    turn.connection.execute(
        "UPDATE members SET boot = ?, until = ?, duration = ? WHERE number = ?",
        (turn.moment.boot, turn.moment.clock + lease, lease, number),
    )
    return None


def _number(connection: sqlite3.Connection, token: str) -> int | None:
    row = connection.execute("SELECT number FROM members WHERE token = ?", (token,)).fetchone()
    return None if row is None else row[0]


def letters(connection: sqlite3.Connection, token: str, after: int) -> list[Letter] | None:
    """Return a page of the letters of a member; None if the token is stale."""
    number = _number(connection, token)
    if number is None:
        return None
    rows = connection.execute(
        "SELECT number, kind, session, stream, event, ended, data FROM letters WHERE member = ? AND number > ?"
        " ORDER BY number LIMIT ?",
        (number, after, PAGE),
    )
    return [
        Letter(number, kind, session, stream, event, bool(ended), data)
        for number, kind, session, stream, event, ended, data in rows
    ]


def losable(connection: sqlite3.Connection, moment: Moment) -> bool:
    """Return whether `take_over` would take over a member, or `adopt` a lease."""
    statement = "SELECT 1 FROM members WHERE boot != ? OR until <= ? LIMIT 1"
    return connection.execute(statement, (moment.boot, moment.clock)).fetchone() is not None


def take_over(turn: Turn, tokens: Sequence[str], lease: float) -> list[Member]:
    """Take over members whose lease was lost, one for each token."""
    adopt(turn.connection, turn.moment)
    rows = turn.connection.execute(
        "SELECT number FROM members WHERE until <= ? ORDER BY number LIMIT ?", (turn.moment.clock, len(tokens))
    ).fetchall()
    members = [Member(number, token) for (number,), token in zip(rows, tokens, strict=False)]
    for member in members:
        turn.connection.execute("DELETE FROM letters WHERE member = ?", (member.number,))
        turn.connection.execute(
            "UPDATE members SET token = ?, bytes = 0, until = ?, duration = ? WHERE number = ?",
            (member.token, turn.moment.clock + lease, lease, member.number),
        )
    return members


def open_streams(connection: sqlite3.Connection, token: str, most: int) -> list[OpenStream] | None:
    """Return streams that a member has open; None if the token is stale."""
    number = _number(connection, token)
    if number is None:
        return None
    rows = connection.execute(
        "SELECT sessions.key, stream, requests FROM streams JOIN sessions ON sessions.id = streams.session"
        " WHERE member = ? AND member != 0 LIMIT ?",
        (number, most),
    )
    return [OpenStream(key, stream, tuple(json.loads(requests))) for key, stream, requests in rows]


def leave(turn: Turn, token: str) -> None:
    """Remove a member."""
    number = _number(turn.connection, token)
    if number is None:
        return
    turn.connection.execute("DELETE FROM members WHERE number = ?", (number,))
    turn.connection.execute("DELETE FROM letters WHERE member = ?", (number,))
    others = turn.connection.execute(
        "SELECT sessions.key, stream, carrier, newest FROM streams JOIN sessions ON sessions.id = streams.session"
        " WHERE member = ? AND member != 0 AND carrier NOT IN (0, member) ORDER BY sessions.key, stream",
        (number,),
    ).fetchall()
    for key, stream, carrier, newest in others:
        turn.post(carrier, "events", key, stream, _newest(turn.connection, key, stream, newest), ended=True)
    turn.connection.execute("DELETE FROM streams WHERE member = ? AND member != 0", (number,))
    turn.connection.execute(
        "UPDATE streams SET carrier = 0 WHERE carrier = ? AND carrier != 0 AND carrier != member", (number,)
    )


# --- sessions ---------------------------------------------------------------------------------------------------------


def sweep(connection: sqlite3.Connection, moment: Moment) -> None:
    """Delete some of the sessions that have expired."""
    rows = connection.execute(
        f"SELECT id, key FROM sessions WHERE expires <= ? AND NOT {OPEN} LIMIT ?", (moment.now, SLICE)
    ).fetchall()
    for session, key in rows:
        _delete(connection, session, key)


def _delete(connection: sqlite3.Connection, session: int, key: str) -> None:
    connection.execute("DELETE FROM streams WHERE session = ?", (session,))
    connection.execute("DELETE FROM fields WHERE session = ?", (session,))
    connection.execute("DELETE FROM sessions WHERE id = ?", (session,))
    connection.execute("UPDATE serving SET sessions = sessions - 1")
    delete_events(connection, key)


def add(turn: Turn, session: StoredSession, limit: int, unless: str) -> Exception | None:
    """Add a session, or return the error."""
    connection, moment = turn.connection, turn.moment
    if _alive(connection, session.key, moment):
        return session_exists(session.key)
    old = connection.execute("SELECT id, key FROM sessions WHERE key = ?", (session.key,)).fetchone()
    if old is not None:
        _delete(connection, *old)
    if _count(connection) >= limit:
        sweep(connection, moment)
    if _count(connection) >= limit:
        spare = _spare(connection, unless)
        if spare is None:
            return sessions_full(limit)
        _end(turn, *spare)
    added = connection.execute(
        "INSERT INTO sessions (key, expires, version, declaration) VALUES (?, ?, 1, ?)",
        (session.key, session.expires, session.declaration),
    ).lastrowid
    connection.executemany("INSERT INTO fields VALUES (?, ?, ?)", [(added, *each) for each in session.fields.items()])
    connection.execute("UPDATE serving SET sessions = sessions + 1")
    return None


def _count(connection: sqlite3.Connection) -> int:
    count: int = connection.execute("SELECT sessions FROM serving").fetchone()[0]
    return count


def _spare(connection: sqlite3.Connection, unless: str) -> tuple[int, str] | None:
    """Return the session without a field, and without an open stream, that expires first."""
    if not unless:
        return None
    found: tuple[int, str] | None = connection.execute(
        "SELECT id, key FROM sessions"
        " WHERE NOT EXISTS (SELECT 1 FROM fields WHERE fields.session = sessions.id AND fields.name = ?)"
        f" AND NOT {OPEN} ORDER BY expires LIMIT 1",
        (unless,),
    ).fetchone()
    return found


def session_of(connection: sqlite3.Connection, key: str, known: int, moment: Moment) -> StoredSession | None:
    """Return a session."""
    row = connection.execute(
        "SELECT id, expires, version, CASE version WHEN ? THEN x'' ELSE declaration END FROM sessions WHERE key = ?",
        (known, key),
    ).fetchone()
    if row is None:
        return None
    session, expires, version, declaration = row
    if expires <= moment.now and not _is_open(connection, session):
        return None
    fields: dict[str, bytes] = {}
    if version != known:
        fields.update(connection.execute("SELECT name, value FROM fields WHERE session = ?", (session,)))
    return StoredSession(key, declaration, fields, expires, version)


def change(
    turn: Turn, key: str, token: str, expires: float | None, fields: Mapping[str, bytes | None] | None
) -> int | StoreError | None:
    """Change a session, and return its version."""
    found = _found(turn, key, token)
    if found is None:
        return stale_member()
    if not found.session:
        return None
    _prolong(turn.connection, found, expires)
    if fields:
        for name, value in fields.items():
            if value is None:
                statement = "DELETE FROM fields WHERE session = ? AND name = ?"
                turn.connection.execute(statement, (found.session, name))
            else:
                statement = "INSERT OR REPLACE INTO fields VALUES (?, ?, ?)"
                turn.connection.execute(statement, (found.session, name, value))
        turn.connection.execute("UPDATE sessions SET version = version + 1 WHERE id = ?", (found.session,))
        carrier = _stream(turn.connection, found.session, 0).carrier
        if carrier != found.member:
            turn.post(carrier, "changed", key)
    (version,) = turn.connection.execute("SELECT version FROM sessions WHERE id = ?", (found.session,)).fetchone()
    return version  # type: ignore[no-any-return]


def _prolong(connection: sqlite3.Connection, found: _Found, expires: float | None) -> None:
    if expires is not None and expires > found.expires:
        connection.execute("UPDATE sessions SET expires = ? WHERE id = ?", (expires, found.session))


def end(turn: Turn, key: str) -> None:
    """Delete a session."""
    session = _alive(turn.connection, key, turn.moment)
    if session:
        _end(turn, session, key)


def _end(turn: Turn, session: int, key: str) -> None:
    members = {
        number
        for row in turn.connection.execute("SELECT member, carrier FROM streams WHERE session = ?", (session,))
        for number in row
    }
    _delete(turn.connection, session, key)
    for number in members:
        turn.post(number, "ended", key)


# --- streams ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class _Stream:
    """The row of a stream; ``known`` is False if it has no row."""

    member: int = 0
    carrier: int = 0
    newest: int = 0
    known: bool = False


def _stream(connection: sqlite3.Connection, session: int, stream: int) -> _Stream:
    statement = "SELECT member, carrier, newest FROM streams WHERE session = ? AND stream = ?"
    row = connection.execute(statement, (session, stream)).fetchone()
    if row is None:
        return _Stream()
    member, carrier, newest = row
    return _Stream(member, carrier, newest, known=True)


def _newest(connection: sqlite3.Connection, key: str, stream: int, noted: int) -> int:
    """Return the number of the newest event of a stream, which may be stored or only noted."""
    statement = "SELECT max(number) FROM events WHERE session = ? AND stream = ?"
    return max(noted, connection.execute(statement, (key, stream)).fetchone()[0] or 0)


def open_stream(turn: Turn, key: str, token: str, stream: int, requests: Collection[str]) -> bool | StoreError:
    """Record that a member has a stream open."""
    found = _found(turn, key, token)
    if found is None:
        return stale_member()
    if found.session:
        turn.connection.execute(
            "INSERT INTO streams VALUES (?, ?, ?, ?, 0, ?)"
            " ON CONFLICT DO UPDATE SET member = excluded.member, requests = excluded.requests",
            (found.session, stream, found.member, found.member, json.dumps([*requests])),
        )
    return bool(found.session)


def append(
    turn: Turn,
    insert: Insert,
    key: str,
    events: Sequence[StoredEvent],
    token: str | None,
    ended: Collection[int],
    expires: float | None,
) -> list[int] | StoreError:
    """Store events, end streams, and return the numbers of the events."""
    connection, moment = turn.connection, turn.moment
    if token is None:
        session = _alive(connection, key, moment)
        if session:
            events, _ = _numbered(connection, session, key, events)
        return insert(connection, key, events, moment.now)
    found = _found(turn, key, token)
    if found is None:
        return stale_member()
    if not found.session:
        return [event.number for event in events]
    events, streams = _numbered(connection, found.session, key, events, ended)
    numbers = insert(connection, key, events, moment.now)
    for number, stream in streams.items():
        if number in ended and stream.member:
            statement = "DELETE FROM streams WHERE session = ? AND stream = ?"
            connection.execute(statement, (found.session, number))
        if stream.carrier not in (0, found.member):
            newest = _newest(connection, key, number, stream.newest)
            turn.post(stream.carrier, "events", key, number, newest, ended=number in ended)
    _prolong(connection, found, expires)
    return numbers


def _numbered(
    connection: sqlite3.Connection,
    session: int,
    key: str,
    events: Iterable[StoredEvent],
    ended: Collection[int] = (),
) -> tuple[list[StoredEvent], dict[int, _Stream]]:
    """Return the events with their numbers, of which the newest are noted; and the streams, by number."""
    grouped: dict[int, list[StoredEvent]] = {number: [] for number in ended}
    numbered = []
    for event in events:
        grouped.setdefault(event.stream, [])
    streams = {number: _stream(connection, session, number) for number in grouped}
    for event in events:
        before = grouped[event.stream]
        if not event.number:
            newest = _newest(connection, key, event.stream, streams[event.stream].newest)
            event = attrs.evolve(event, number=max([newest, *(each.number for each in before)]) + 1)
        before.append(event)
        numbered.append(event)
    for number, those in grouped.items():
        newest = max((event.number for event in those), default=0)
        if newest > streams[number].newest and number not in ended and (streams[number].known or not number):
            connection.execute(
                "INSERT INTO streams VALUES (?, ?, 0, 0, ?, '[]') ON CONFLICT DO UPDATE SET newest = excluded.newest",
                (session, number, newest),
            )
    return numbered, streams


def carry(turn: Turn, key: str, token: str, stream: int) -> tuple[int, bool] | StoreError | None:
    """Record that a member carries a stream."""
    found = _found(turn, key, token)
    if found is None:
        return stale_member()
    if not found.session:
        return None
    turn.connection.execute(
        "DELETE FROM letters WHERE member = ? AND session = ? AND stream = ? AND kind IN ('events', 'taken')"
        " AND kind != 'message'",
        (found.member, key, stream),
    )
    noted = _stream(turn.connection, found.session, stream)
    newest = _newest(turn.connection, key, stream, noted.newest)
    if stream and not noted.known:
        return newest, False
    if noted.carrier not in (0, found.member):
        turn.post(noted.carrier, "taken", key, stream)
    turn.connection.execute(
        "INSERT INTO streams VALUES (?, ?, 0, ?, 0, '[]') ON CONFLICT DO UPDATE SET carrier = excluded.carrier",
        (found.session, stream, found.member),
    )
    return newest, True


def drop(turn: Turn, key: str, token: str, stream: int) -> None:
    """Record that a member no longer carries a stream."""
    found = _found(turn, key, token)
    if found is not None:
        turn.connection.execute(
            "UPDATE streams SET carrier = 0 WHERE session = ? AND stream = ? AND carrier = ?",
            (found.session, stream, found.member),
        )


def send(turn: Turn, key: str, data: bytes, member: int | None, request: str | None, limit: int) -> bool | StoreError:
    """Put a message into the mailboxes of members."""
    session = _alive(turn.connection, key, turn.moment)
    if not session:
        return False
    numbers = {member}
    if member is None:
        statement = "SELECT member, requests FROM streams WHERE session = ? AND member != 0"
        rows = turn.connection.execute(statement, (session,))
        numbers = {number for number, requests in rows if request in json.loads(requests)}
    statement = "SELECT number, bytes FROM members WHERE number = ?"
    found = [row for number in numbers for row in turn.connection.execute(statement, (number,))]
    for number, waiting in found:
        if waiting and waiting + len(data) > limit:
            return mailbox_full(number, limit)
    for number, _ in found:
        turn.post(number, "message", key, data=data)
    return bool(found)
