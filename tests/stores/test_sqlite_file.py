"""The file of a `SqliteEventStore`: once `append` has returned, events are stored, whatever other processes do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio

from tests import forks
from tests.killed_stores import NET, PROCESSES, Round
from tests.waiting import eventually
from trio_mcp import SqliteEventStore, StoredEvent
from trio_mcp.stores import database
from trio_mcp.stores.database import Database


def event(number: int) -> StoredEvent:
    return StoredEvent(1, number, b"%d" % number)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.db"


def descriptors(path: Path) -> int:
    """Return the number of descriptors of a file in this process."""
    return [each.path for each in psutil.Process().open_files()].count(str(path.resolve()))


OTHER = """
import sys, trio
from trio_mcp import SqliteEventStore

async def main():
    async with SqliteEventStore(sys.argv[1]) as store:
        print([event.number for event in await store.after("a", 1, 0)])

trio.run(main)
"""


async def in_another_process(path: Path) -> str:
    """Open and close the file in another process, and return the numbers of the events that it reads."""
    program = path.with_name("other.py")
    program.write_text(OTHER)
    command = [*forks.command(str(program), *forks.LOADED), str(path)]
    return (await trio.run_process(command, capture_stdout=True)).stdout.decode().strip()


async def test_what_is_stored_outlives_other_processes_that_open_and_close_the_file(path: Path) -> None:
    """With two stores on it here: https://www.sqlite.org/howtocorrupt.html, section 2.2."""
    async with SqliteEventStore(path) as one, SqliteEventStore(path) as two:
        await one.append("a", [event(1)])
        assert await in_another_process(path) == "[1]"
        await two.append("a", [event(2)])
        assert await in_another_process(path) == "[1, 2]"


async def test_what_is_stored_outlives_the_processes_that_are_killed(tmp_path: Path) -> None:
    """`.ci/long stores` does it for a minute."""
    killed = Round(tmp_path, seed=1, lives=3)
    with trio.fail_after(NET):
        await killed.run()
    assert killed.faults == []
    assert {session.rsplit("-", 1)[0] for session, _ in killed.stored} == {f"1-{place}" for place in range(PROCESSES)}


@pytest.fixture(params=["same name", "relative", "symbolic link", "link to the folder"])
def name(request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return another name for the file."""
    match request.param:
        case "relative":
            monkeypatch.chdir(path.parent)
            return Path(path.name)
        case "symbolic link":
            path.with_name("link").symlink_to(path.name)
            return path.with_name("link")
        case "link to the folder":
            path.with_name("folder").symlink_to(".")
            return path.with_name("folder") / path.name
    return path


async def test_a_process_has_one_connection_to_a_file_until_its_last_store_is_closed(path: Path, name: Path) -> None:
    one, two = SqliteEventStore(path), SqliteEventStore(name)
    for store in (one, two):
        await store.append("a", [event(1)])
        assert descriptors(path) == 1
    await one.aclose()
    await one.aclose()  # closing twice closes nothing of the other one
    assert descriptors(path) == 1
    await two.append("a", [event(2)])
    await one.append("a", [event(3)])
    await two.aclose()
    assert await one.after("a", 1, 0) == [event(1), event(2), event(3)]
    await one.aclose()
    assert descriptors(path) == 0


async def test_a_store_that_is_dropped_unclosed_does_not_keep_the_file_open(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store need not be closed."""
    monkeypatch.setattr(database, "IDLE", 0)
    async with SqliteEventStore(path) as store:
        await SqliteEventStore(path).append("a", [event(1)])
        assert await store.after("a", 1, 0) == [event(1)]
    del store
    await eventually(lambda: not descriptors(path))


async def test_a_file_in_the_place_of_another_is_another_file(path: Path) -> None:
    async with SqliteEventStore(path) as one:
        await one.append("a", [event(1)])
        for each in path.parent.glob("events.db*"):
            each.rename(each.with_name(f"former-{each.name}"))
        async with SqliteEventStore(path) as two:
            await two.append("a", [event(1), event(2)])
            assert await one.after("a", 1, 0) == [event(1)]
    assert await in_another_process(path) == "[1, 2]"


def test_a_file_with_a_second_hard_link_is_refused(path: Path) -> None:
    """SQLite names the -wal after the path, so it would not find it under the other name: howtocorrupt.html, 2.6."""
    path.touch()
    path.with_name("other.db").hardlink_to(path)
    store = SqliteEventStore(path)
    with pytest.raises(OSError, match="hard links"):
        trio.run(store.__aenter__)
    path.with_name("other.db").unlink()
    trio.run(store.__aenter__)
    trio.run(store.aclose)


@pytest.fixture
def no_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


@pytest.mark.parametrize("file", ["events.db", "a link", "odd %41?mode=ro#\n\udcff"])
async def test_the_files_are_their_owners_alone(path: Path, file: str, no_umask: None) -> None:
    """Under any name, including that of a link to a missing file."""
    path.with_name("a link").symlink_to("target")
    async with SqliteEventStore(path.with_name(file)) as store:
        await store.append("a", [event(1)])
        modes = {each.name: each.lstat().st_mode & 0o777 for each in path.parent.iterdir()}
    real = path.with_name(file).resolve().name
    assert {modes[real + each] for each in ("", "-wal", "-shm")} == {0o600}


@pytest.mark.parametrize(("make", "error"), [(Path.mkdir, IsADirectoryError), (None, FileNotFoundError)])
async def test_a_path_that_can_be_no_file_is_an_error(path: Path, make: object, error: type[OSError]) -> None:
    file = path / "events.db"
    if callable(make):
        make(path)
        make(file)
    with pytest.raises(error, match=r"events\.db"):
        await SqliteEventStore(file).append("a", [event(1)])


async def test_stores_in_several_threads(path: Path) -> None:
    """Each thread has a separate run of Trio, which opens and closes the file."""

    async def store(session: str) -> None:
        for number in range(1, 21):
            async with SqliteEventStore(path) as each:
                await each.append(session, [event(number)])

    threads = [threading.Thread(target=trio.run, args=(store, session)) for session in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        await trio.to_thread.run_sync(thread.join)
    async with SqliteEventStore(path) as each:
        for session in "abc":
            assert await each.after(session, 1, 0) == [event(number) for number in range(1, 21)]
    assert descriptors(path) == 0


# --- transactions -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def another_connection(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to the file as another process would, but without waiting for its locks."""
    connect = partial(sqlite3.connect, timeout=0, isolation_level=None, check_same_thread=False)
    with contextlib.closing(connect(path)) as connection:
        yield connection


async def test_no_other_process_writes_while_an_operation_reads_and_writes(path: Path) -> None:
    def prepare(connection: sqlite3.Connection) -> None:
        connection.executescript("PRAGMA journal_mode = WAL; CREATE TABLE numbers (number INTEGER)")

    def count(connection: sqlite3.Connection) -> None:
        found = connection.execute("SELECT count(*) FROM numbers").fetchone()
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("INSERT INTO numbers VALUES (100)")
        connection.execute("INSERT INTO numbers VALUES (?)", found)

    numbers = Database(str(path), prepare)
    await numbers.run(lambda _: None)
    with another_connection(path) as other:
        for _ in range(3):
            await numbers.run(count)
        assert other.execute("SELECT number FROM numbers").fetchall() == [(0,), (1,), (2,)]
    await numbers.close()


async def test_a_file_that_stays_locked_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY", 0)
    async with SqliteEventStore(path) as store:
        with another_connection(path) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError, match=r"events\.db is locked: another process"):
                await store.append("a", [event(1)])
        await store.append("a", [event(1)])
        assert await store.after("a", 1, 0) == [event(1)]
