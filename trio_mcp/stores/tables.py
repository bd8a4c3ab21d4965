"""The tables of `SqliteStores`, and the operations on them, each within a transaction.

These functions are called in the thread of the database. They return the error for a call that is refused instead of
raising it, because an exception would roll back the other operations in the transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence

import attrs

from trio_mcp.stores.contract import Claim, JournalEntry, StoredTask, StoreError
from trio_mcp.stores.event_stores import SCHEMA as EVENTS
from trio_mcp.stores.refusals import other_server, stale_writer, store_full, task_exists
from trio_mcp.stores.session_tables import SCHEMA as SESSIONS
from trio_mcp.stores.shared_tables import SCHEMA as SHARED
from trio_mcp.stores.times import SLICE, Moment

__all__ = [
    "add",
    "adopt",
    "check_layout",
    "claim",
    "claimable",
    "journal",
    "lay_out",
    "note",
    "own",
    "put",
    "renew",
    "sweep",
    "task_of",
    "versions",
]

APPLICATION = 0x54726D53
"""SQLite's id of the application: "TrmS"."""

LAYOUT = 3
"""The version of the tables below. A file with a different version is refused."""

# The index `ready` has only tasks that are ready, and `leased` only tasks with a lease, so that a poll reads nothing
# while there are none. The row in `held` saves counting all tasks whenever one is added.
SCHEMA = f"""
CREATE TABLE tasks (
    id INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    owner TEXT NOT NULL,
    tool TEXT NOT NULL,
    status TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL,
    expires REAL,
    version INTEGER NOT NULL,
    token TEXT NOT NULL,
    begun INTEGER NOT NULL,
    takeovers INTEGER NOT NULL,
    cancelling INTEGER NOT NULL,
    message TEXT,
    boot TEXT NOT NULL DEFAULT '',
    until REAL NOT NULL DEFAULT 0,
    duration REAL NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    asked BLOB NOT NULL,
    result BLOB NOT NULL
);
CREATE INDEX expiring ON tasks (expires) WHERE expires IS NOT NULL;
CREATE INDEX ready ON tasks (tool, created) WHERE status = 'working' AND token = '';
CREATE INDEX leased ON tasks (boot, until) WHERE token != '';
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    task INTEGER NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    UNIQUE (task, key)
);
CREATE TABLE held (tasks INTEGER NOT NULL, server TEXT);
INSERT INTO held VALUES (0, NULL);
{EVENTS}
{SHARED}
{SESSIONS}
"""

# One statement reads one state of the file, which another process may be laying out.
FOUND = """
SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)
FROM pragma_application_id, pragma_user_version
"""

COLUMNS = tuple(field.name for field in attrs.fields(StoredTask))
NAMES = ", ".join(COLUMNS)
ALIVE = "(expires IS NULL OR expires > ?)"

ADD = f"INSERT INTO tasks ({NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})"
REPLACE = f"UPDATE tasks SET {', '.join(f'{name} = ?' for name in COLUMNS)} WHERE id = ?"
TASK = f"SELECT {NAMES} FROM tasks WHERE key = ? AND {ALIVE}"
LEASE = "UPDATE tasks SET boot = ?, until = ?, duration = ? WHERE key = ?"
NOTE = "INSERT OR IGNORE INTO entries (task, key, value) VALUES (?, ?, ?)"
READY = f"SELECT created, id, 0 FROM tasks WHERE status = 'working' AND token = '' AND tool = ? AND {ALIVE}"
LOST = f"""
SELECT created, id, 1, tool FROM tasks INDEXED BY leased
WHERE token != '' AND boot = ? AND until <= ? AND status = 'working' AND {ALIVE}
"""


# --- the file ---------------------------------------------------------------------------------------------------------


def check_layout(connection: sqlite3.Connection, name: str) -> bool:
    """Check that a file has these tables or is empty; return whether it has them.

    Raises:
        StoreError: If it has other tables.
    """
    application, layout, entries = connection.execute(FOUND).fetchone()
    if application == APPLICATION:
        if layout != LAYOUT:
            raise StoreError(
                f"{name} was created by another version of trio_mcp (its layout is {layout}, and this version needs"
                f" {LAYOUT}): use that version, or a different file"
            )
        return True
    if application or layout or entries:
        raise StoreError(
            f"{name} is a database of another program: give the path of a file of SqliteStores, or of a new file"
        )
    return False


def lay_out(connection: sqlite3.Connection, name: str) -> None:
    """Create the tables in an empty file.

    Raises:
        StoreError: If the file has other tables.
    """
    if not check_layout(connection, name):
        # Not `executescript`, which would begin by ending the transaction.
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {LAYOUT}")


def own(connection: sqlite3.Connection, server: str, name: str) -> StoreError | None:
    """Record the name of the server, or return the error if another name is recorded."""
    found = connection.execute("SELECT server FROM held").fetchone()[0]
    if found is None:
        connection.execute("UPDATE held SET server = ?", (server,))
        return None
    return None if found == server else other_server(name, found, server)


def adopt(connection: sqlite3.Connection, moment: Moment) -> None:
    """Restart the leases from before the last start of the machine now, with their full durations.

    The clock of leases began again with that start, so the times of earlier leases mean nothing.
    """
    connection.execute(
        "UPDATE tasks SET until = ? + duration, boot = ? WHERE token != '' AND (boot < ? OR boot > ?)",
        (moment.clock, moment.boot, moment.boot, moment.boot),
    )


def sweep(connection: sqlite3.Connection, moment: Moment) -> None:
    """Delete some of the tasks that have expired."""
    rows = connection.execute("SELECT id FROM tasks WHERE expires <= ? LIMIT ?", (moment.now, SLICE)).fetchall()
    if rows:
        _delete(connection, rows)


def _delete(connection: sqlite3.Connection, rows: Sequence[tuple[int]]) -> None:
    connection.executemany("DELETE FROM entries WHERE task = ?", rows)
    connection.executemany("DELETE FROM tasks WHERE id = ?", rows)
    connection.execute("UPDATE held SET tasks = tasks - ?", (len(rows),))


# --- tasks ------------------------------------------------------------------------------------------------------------


def add(
    connection: sqlite3.Connection,
    task: StoredTask,
    entries: Iterable[JournalEntry],
    moment: Moment,
    *,
    lease: float | None,
    limit: int | None,
) -> Exception | None:
    """Add a task, or return the error."""
    known = connection.execute("SELECT id, expires FROM tasks WHERE key = ?", (task.key,)).fetchone()
    if known is not None:
        if known[1] is None or known[1] > moment.now:
            return task_exists(task.key)
        _delete(connection, [(known[0],)])
    if limit is not None and _count(connection, moment, limit) >= limit:
        return store_full(limit)
    added = connection.execute(ADD, _row(task)).lastrowid
    connection.execute("UPDATE held SET tasks = tasks + 1")
    if lease is not None:
        connection.execute(LEASE, (moment.boot, moment.clock + lease, lease, task.key))
    connection.executemany(NOTE, [(added, *entry) for entry in entries])
    return None


def _count(connection: sqlite3.Connection, moment: Moment, limit: int) -> int:
    """Return the number of tasks; expired ones are left out if the limit would be reached with them."""
    count: int = connection.execute("SELECT tasks FROM held").fetchone()[0]
    if count >= limit:
        count -= connection.execute("SELECT count(*) FROM tasks WHERE expires <= ?", (moment.now,)).fetchone()[0]
    return count


def task_of(connection: sqlite3.Connection, key: str, moment: Moment) -> StoredTask | None:
    """Return a task."""
    row = connection.execute(TASK, (key, moment.now)).fetchone()
    return None if row is None else _task(row)


def journal(connection: sqlite3.Connection, key: str, moment: Moment) -> tuple[JournalEntry, ...]:
    """Return the journal of a task."""
    rows = connection.execute(
        "SELECT entries.key, entries.value FROM tasks JOIN entries ON entries.task = tasks.id"
        f" WHERE tasks.key = ? AND {ALIVE} ORDER BY entries.id",
        (key, moment.now),
    )
    return tuple(rows)


def note(
    connection: sqlite3.Connection, key: str, token: str, entry: JournalEntry, moment: Moment
) -> StoreError | None:
    """Add an entry to the journal of a task, or return the error."""
    row = connection.execute(
        f"SELECT id FROM tasks WHERE key = ? AND token = ? AND token != '' AND {ALIVE}", (key, token, moment.now)
    ).fetchone()
    if row is None:
        return stale_writer(key)
    connection.execute(NOTE, (row[0], *entry))
    return None


def put(
    connection: sqlite3.Connection,
    task: StoredTask,
    entries: Iterable[JournalEntry],
    token: str | None,
    moment: Moment,
) -> bool | StoreError:
    """Replace a task and return whether it was replaced, or return the error."""
    row = connection.execute(
        f"SELECT id, version, token FROM tasks WHERE key = ? AND {ALIVE}", (task.key, moment.now)
    ).fetchone()
    if row is None:
        return False
    number, version, held = row
    if token is not None and not (token and token == held):
        return stale_writer(task.key)
    if version != task.version - 1:
        return False
    if task.token not in ("", held):
        return stale_writer(task.key)
    connection.execute(REPLACE, (*_row(task), number))
    connection.executemany(NOTE, [(number, *entry) for entry in entries])
    return True


def claimable(connection: sqlite3.Connection, tools: Collection[str], moment: Moment) -> bool:
    """Return whether `claim` would claim a task, or `adopt` a lease."""
    foreign = "SELECT 1 FROM tasks INDEXED BY leased WHERE token != '' AND boot {} ? LIMIT 1"
    if any(connection.execute(foreign.format(sign), (moment.boot,)).fetchone() for sign in "<>"):
        return True
    if any(connection.execute(f"{READY} LIMIT 1", (tool, moment.now)).fetchone() for tool in tools):
        return True
    return any(row[3] in tools for row in connection.execute(LOST, (moment.boot, moment.clock, moment.now)))


def claim(
    connection: sqlite3.Connection, tools: Collection[str], tokens: Sequence[str], lease: float, moment: Moment
) -> list[Claim]:
    """Claim tasks that are ready or lost, one for each token, the oldest first."""
    adopt(connection, moment)
    found: list[tuple[float, int, int]] = []
    for tool in tools:
        found += connection.execute(f"{READY} ORDER BY created, id LIMIT ?", (tool, moment.now, len(tokens)))
    lost = connection.execute(LOST, (moment.boot, moment.clock, moment.now))
    found += [row[:3] for row in lost if row[3] in tools]
    claims = []
    for (_, number, was_lost), token in zip(sorted(found), tokens, strict=False):
        connection.execute(
            "UPDATE tasks SET token = ?, version = version + 1, boot = ?, until = ?, duration = ? WHERE id = ?",
            (token, moment.boot, moment.clock + lease, lease, number),
        )
        row = connection.execute(f"SELECT {NAMES} FROM tasks WHERE id = ?", (number,)).fetchone()
        claims.append(Claim(_task(row), bool(was_lost)))
    return claims


def renew(
    connection: sqlite3.Connection, leases: Mapping[str, str], lease: float, moment: Moment
) -> dict[str, StoredTask | None]:
    """Renew those of the leases that are still held."""
    found: dict[str, StoredTask | None] = {}
    for key, token in leases.items():
        task = task_of(connection, key, moment)
        found[key] = task if task is not None and token and task.token == token else None
        if found[key] is not None:
            connection.execute(LEASE, (moment.boot, moment.clock + lease, lease, key))
    return found


def versions(connection: sqlite3.Connection, keys: Collection[str], moment: Moment) -> dict[str, int]:
    """Return the versions of tasks."""
    statement = f"SELECT version FROM tasks WHERE key = ? AND {ALIVE}"
    rows = ((key, connection.execute(statement, (key, moment.now)).fetchone()) for key in keys)
    return {key: row[0] for key, row in rows if row is not None}


def _row(task: StoredTask) -> tuple[object, ...]:
    return tuple(getattr(task, name) for name in COLUMNS)


def _task(row: Sequence[object]) -> StoredTask:
    values = dict(zip(COLUMNS, row, strict=True))
    # SQLite has no booleans.
    values |= {"begun": bool(values["begun"]), "cancelling": bool(values["cancelling"])}
    return StoredTask(**values)  # type: ignore[arg-type]
