"""`SqliteStores`: its file, its waits for other processes, and the errors for files that it can't use."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests import forks
from trio_mcp import SqliteEventStore, StoredEvent
from trio_mcp._platform import boot_id, network_file_system
from trio_mcp.stores import SqliteStores, StoreBusy, StoredTask, StoreError, sqlite_file, sqlite_stores, tables
from trio_mcp.stores.contract import LOOK

NET = 300
"""Seconds after which a test that hangs fails."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stores.db"


def task(key: str, **columns: Any) -> StoredTask:
    usual = {"owner": "", "tool": "tool", "status": "working", "created": 1.0, "updated": 1.0, "expires": None}
    return StoredTask(key=key, **{**usual, **columns})


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Connect to the file as another process would, but without waiting for its locks."""
    connect = partial(sqlite3.connect, timeout=0, isolation_level=None, check_same_thread=False)
    with contextlib.closing(connect(path)) as connection:
        yield connection


# --- files that it can't use ------------------------------------------------------------------------------------------


def made(path: Path) -> None:
    """Make a file of stores with some tasks."""

    async def make() -> None:
        async with SqliteStores(path) as stores:
            await stores.own("name")
            for number in range(50):
                await stores.add_task(task(f"{number}", body=b"x" * 1000))

    trio.run(make)


def damaged(path: Path) -> None:
    made(path)
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)


def newer(path: Path) -> None:
    made(path)
    with connected(path) as connection:
        connection.execute("PRAGMA user_version = 99")


def foreign(path: Path) -> None:
    with connected(path) as connection:
        connection.execute("CREATE TABLE recipes (name TEXT)")


def open_to_all(path: Path) -> None:
    made(path)
    path.chmod(0o604)


def linked(path: Path) -> None:
    path.touch()
    path.with_name("other.db").hardlink_to(path)


def content(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda path: path.write_text("this is text, and nothing else\n" * 100), "is not an SQLite database: "),
    "damaged": (damaged, "is damaged: restore it"),
    "another version": (
        newer,
        r"created by another version of trio_mcp \(its layout is 99, and this version needs 3\)",
    ),
    "another program": (foreign, "is a database of another program: "),
    "open to all": (open_to_all, r"is open to all users of this machine \(mode 0604\), .* run chmod 600 "),
    "folder": (Path.mkdir, "Is a directory"),
    "hard link": (linked, "hard links"),
}


@pytest.mark.parametrize("what", UNUSABLE)
async def test_a_file_that_cannot_be_used_is_one_clear_error_each_time(path: Path, what: str) -> None:
    """The error has no chained exception of SQLite, and the file is unchanged."""
    make, match = UNUSABLE[what]
    await trio.to_thread.run_sync(make, path)
    before = content(path)
    for _ in range(2):
        with pytest.raises(StoreError, match=match) as caught:
            async with SqliteStores(path) as stores:
                for number in range(50):
                    await stores.task(f"{number}")
        assert str(path) in str(caught.value)
        assert (caught.value.__cause__, caught.value.__suppress_context__) in ((None, True), (None, False))
        assert type(caught.value) is StoreError
    assert content(path) == before
    assert not path.with_name("stores.db-wal").exists()


async def test_a_new_file_waits_for_the_process_that_has_it_first(path: Path) -> None:
    """Several programs start at the same time. SQLite itself does not wait as it changes the mode of a new file."""
    await trio.Path(path).touch(0o600)
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")

        async def use() -> None:
            async with SqliteStores(path) as stores:
                await stores.own("name")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(use)
            await trio.testing.wait_all_tasks_blocked(cushion=0.1)
            other.execute("COMMIT")


async def test_a_new_file_that_stays_locked_is_an_error_in_time(path: Path) -> None:
    await trio.Path(path).touch(0o600)
    with connected(path) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            async with SqliteStores(path, timeout=0.2):
                pass


def test_a_new_file_is_empty_or_whole_whenever_another_process_lays_it_out(tmp_path: Path) -> None:
    """At each step of the check, the other process does all that it can."""
    found = []
    for step in range(40):
        path = tmp_path / f"{step}.db"
        left = step

        def lay_out(path: Path = path) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                with connected(path) as other, contextlib.suppress(sqlite3.OperationalError):
                    other.execute("BEGIN IMMEDIATE")
                    tables.lay_out(other, str(path))
                    other.execute("COMMIT")

        with connected(path) as connection:
            connection.set_progress_handler(lay_out, 1)
            found.append(tables.check_layout(connection, str(path)))
    assert set(found) == {False, True}


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_file_that_is_gone_is_an_error_until_it_is_back(path: Path, replaced: bool) -> None:
    """What is written to it would be gone in the end, and processes that are started later would use another file."""

    def take() -> None:
        path.rename(away)
        if replaced:
            path.touch()

    away = path.with_name("away")
    async with SqliteStores(path) as stores:
        kept = await stores.add_task(task("a"))
        take()
        for use in (lambda: stores.task("a"), lambda: stores.add_task(task("b"))):
            with pytest.raises(StoreError, match=r"stores\.db was deleted or replaced while it was open: put it back"):
                await use()
        await trio.to_thread.run_sync(away.rename, path)
        assert await stores.task("a") == kept
        assert await stores.task("b") is None
        await stores.add_task(task("b"))


async def test_a_file_of_a_group_is_used(path: Path) -> None:
    """Its processes may belong to several users."""

    def make() -> None:
        made(path)
        path.chmod(0o660)

    await trio.to_thread.run_sync(make)
    async with SqliteStores(path) as stores:
        assert await stores.task("0") is not None


async def test_a_folder_that_is_missing_is_named(path: Path) -> None:
    with pytest.raises(StoreError, match=r"stores\.db can't be created, because its folder does not exist"):
        async with SqliteStores(path / "stores.db"):
            pass


async def test_a_file_that_cannot_be_written_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await trio.to_thread.run_sync(made, path)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anything
    with pytest.raises(StoreError, match=r"stores\.db can't be used: Permission denied"):
        async with SqliteStores(path):
            pass


async def test_a_file_on_a_network_drive_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_stores, "network_file_system", lambda _: "nfs4")
    with pytest.raises(StoreError, match=r"is on a network file system \(nfs4\)"):
        async with SqliteStores(path):
            pass


@pytest.mark.parametrize(("kind", "expected"), [("nfs4", "nfs4"), ("fuse.sshfs", "fuse.sshfs"), ("ext4", None)])
def test_a_network_drive_is_found_among_the_mounts(tmp_path: Path, kind: str, expected: str | None) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"36 35 0:9999 / /other rw - cifs //host/x rw\n37 35 {number} / /mnt rw,noatime shared:1 - {kind} host:/ rw\n"
    )
    assert network_file_system(tmp_path, mounts) == expected
    assert network_file_system(tmp_path, tmp_path / "missing") is None


def test_the_machine_has_one_id_from_one_start_to_the_next() -> None:
    assert boot_id() == boot_id() != ""


MISTAKES: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "no path": ((None,), {}, TypeError, "path must be a string or a path, got None"),
    "bytes": ((b"x",), {}, TypeError, "path must be a string or a path, got b'x'"),
    "memory": ((":memory:",), {}, ValueError, r"path must name a file, got ':memory:': MemoryStores\(\) keeps"),
    "empty": (("",), {}, ValueError, "path must name a file, got ''"),
    "durable": (("x",), {"durable": "disk"}, ValueError, "durable must be one of process, power; got 'disk'"),
    "timeout": (("x",), {"timeout": -1}, ValueError, "timeout must be at least 0 seconds and finite, got -1"),
    "endless": (
        ("x",),
        {"timeout": float("inf")},
        ValueError,
        "timeout must be at least 0 seconds and finite, got inf",
    ),
    "events": (("x",), {"max_events": 0}, ValueError, "max_events must be at least 1, got 0"),
    "age": (("x",), {"max_age": "1"}, TypeError, "max_age must be a number of seconds, got '1'"),
    "clock": (("x",), {"clock": 5}, TypeError, "clock must be callable, got int"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistaken_argument_is_refused_at_once(what: str) -> None:
    arguments, keywords, error, match = MISTAKES[what]
    with pytest.raises(error, match=match):
        SqliteStores(*arguments, **keywords)


async def test_stores_outside_of_their_block_say_so(path: Path) -> None:
    stores = SqliteStores(path)
    for _ in range(2):
        for use in (
            lambda: stores.task("a"),
            lambda: stores.add_task(task("a")),
            lambda: stores.sessions.append("a", [StoredEvent(1, 1, b"")]),
        ):
            with pytest.raises(StoreError, match=r"stores\.db is not open: use it inside `async with stores:`"):
                await use()
        with pytest.raises(StoreError, match="is not open"):
            stores.wake("topic")
        async with stores, stores:
            pass


DISK = """
import resource, signal, sys, trio
from trio_mcp.stores import SqliteStores, StoredTask, StoreError

def task(number):
    usual = {"owner": "", "tool": "tool", "status": "working", "created": 1.0, "updated": 1.0, "expires": None}
    return StoredTask(key=f"{number}", body=b"x" * 3000, **usual)

async def main():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    async with SqliteStores(sys.argv[1]) as stores:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, -1))
        added = 0
        try:
            while added < 1000:
                await stores.add_task(task(added))
                added += 1
        except StoreError as exc:
            print(exc)
        found = len(await stores.versions([f"{number}" for number in range(1000)]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (-1, -1))
        await stores.add_task(task("after"))
        print(0 < added < 1000, found - added)

trio.run(main)
"""


async def test_a_full_disk_is_an_error_and_costs_nothing_that_was_stored(path: Path, tmp_path: Path) -> None:
    """The limit on the size of files has the effect of a full disk."""
    program = tmp_path / "disk.py"
    program.write_text(DISK)
    done = await trio.run_process([*forks.command(str(program), *forks.LOADED), str(path)], capture_stdout=True)
    error, counts = done.stdout.decode().splitlines()
    assert error.startswith(f"{path} can't ")
    assert "disk" in error
    assert counts == "True 0"
    async with SqliteStores(path) as stores:
        assert await stores.task("after") is not None


# --- other processes --------------------------------------------------------------------------------------------------


async def test_a_process_that_was_stopped_while_it_writes_delays_writers_and_no_readers(path: Path) -> None:
    async with SqliteStores(path, timeout=0.3) as stores:
        first = await stores.add_task(task("a"))
        with connected(path) as other:
            other.execute("BEGIN IMMEDIATE")
            start = trio.current_time()
            with pytest.raises(StoreBusy, match=r"stores\.db is locked: another process"):
                await stores.add_task(task("b"))
            assert trio.current_time() - start >= 0.3
            assert await stores.task("a") == first
            assert dict(await stores.versions(["a"])) == {"a": 1}
            assert await stores.journal("a") == ()
            assert await stores.claim_tasks(["other tool"], lease=1, most=1) == []  # a look that finds nothing
            with pytest.raises(StoreBusy):
                await stores.claim_tasks(["tool"], lease=1, most=1)
            with pytest.raises(StoreBusy):
                async with SqliteStores(path, timeout=0):
                    pass
        assert len(await stores.claim_tasks(["tool"], lease=1, most=1)) == 1
        await stores.add_task(task("b"))


async def test_the_files_are_their_owners_alone(path: Path) -> None:
    former = os.umask(0)
    try:
        async with SqliteStores(path) as stores:
            await stores.add_task(task("a"))
            await stores.task("a")
            modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(former)
    assert modes == {"stores.db": 0o600, "stores.db-wal": 0o600, "stores.db-shm": 0o600}


@pytest.mark.parametrize(("durable", "expected"), [("process", 1), ("power", 2)])
async def test_only_power_waits_for_the_disk_with_each_transaction(
    path: Path, durable: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores of both kinds may share a file. 1 is NORMAL, and 2 is FULL."""
    seen = []

    def own(connection: sqlite3.Connection, server: str, name: str) -> None:
        seen.append(connection.execute("PRAGMA synchronous").fetchone()[0])

    monkeypatch.setattr(tables, "own", own)
    async with SqliteStores(path) as usual, SqliteStores(path, durable=durable) as stores:  # type: ignore[arg-type]
        await stores.own("name")
        await usual.own("name")
    assert seen == [expected, 1]


async def test_a_lease_of_another_start_of_the_machine_has_its_whole_duration(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock begins again with each start, so the times in the file mean nothing."""
    clock = 1000.0
    make = partial(SqliteStores, path, clock=lambda: clock)
    async with make() as stores:
        held = await stores.add_task(task("a"), lease=20)
        renewed = await stores.add_task(task("b"), lease=20)
    monkeypatch.setattr(sqlite_stores, "boot_id", lambda: "another")
    clock = 5.0
    async with make() as stores, make() as other:
        clock = 24.0
        assert [*await other.claim_tasks(["tool"], lease=20, most=5)] == []
        assert await stores.renew({"b": renewed.token}, lease=20) == {"b": renewed}
        clock = 25.0
        (claim,) = await other.claim_tasks(["tool"], lease=20, most=5)
        assert (claim.task.key, claim.lost, claim.task.token != held.token) == ("a", True, True)
        # A lease of a third start, which this process sees only now, restarts with its full duration, too.
        with connected(path) as connection:
            connection.execute("UPDATE tasks SET boot = 'third', until = 0 WHERE key = 'b'")
        assert [*await other.claim_tasks(["tool"], lease=20, most=5)] == []
        clock = 45.0
        assert [claim.task.key for claim in await other.claim_tasks(["tool"], lease=20, most=5)] == ["a", "b"]


LIVING = """
import itertools, os, sys, trio
from trio_mcp.stores import SqliteStores, StoredTask

async def main():
    path, name = sys.argv[1:]
    usual = {"owner": "", "tool": name, "status": "working", "created": 1.0, "updated": 1.0, "expires": None}

    async def run(stores, number):
        key = f"{name}-{number}"
        task = await stores.add_task(StoredTask(key=key, **usual), [("begun", b"")], lease=60)
        os.write(1, f"{key} begun\\n".encode())
        await stores.note(key, task.token, ("step", b"x" * 500))
        os.write(1, f"{key} step\\n".encode())

    async with SqliteStores(path) as stores:
        for first in itertools.count(0, 10):
            async with trio.open_nursery() as nursery:
                for number in range(first, first + 10):
                    nursery.start_soon(run, stores, number)

trio.run(main)
"""


async def test_what_was_stored_outlives_processes_that_are_killed_between_any_two_steps(
    path: Path, tmp_path: Path
) -> None:
    program = tmp_path / "living.py"
    program.write_text(LIVING)
    stored: list[list[str]] = []

    async def live(name: str, lines: int) -> None:
        command = [*forks.command(str(program), *forks.LOADED), str(path), name]
        process = await trio.lowlevel.open_process(command, stdout=-1)
        assert process.stdout is not None
        text = b""
        async with process.stdout:
            async for chunk in process.stdout:
                text += chunk
                if text.count(b"\n") >= lines:
                    process.kill()
        await process.wait()
        assert process.returncode == -9
        stored.extend(line.split() for line in text.decode().split("\n")[:-1])

    with trio.fail_after(NET):
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(live, f"process {number}".replace(" ", "-"), 25 + 30 * number)
    assert len(stored) >= 25 + 55 + 85
    async with SqliteStores(path) as stores:
        for key, step in stored:
            assert step in dict(await stores.journal(key)), key


# --- sizes ------------------------------------------------------------------------------------------------------------


COUNTS = "SELECT (SELECT count(*) FROM tasks), (SELECT count(*) FROM entries)"


async def fill(stores: SqliteStores, count: int, **columns: Any) -> None:
    """Add tasks, many at once."""
    numbers = iter(range(count))

    async def add() -> None:
        for number in numbers:
            await stores.add_task(
                task(f"{number:064}", body=b"x" * 300, asked=b"x" * 500, **columns),
                [("first", b"x" * 100), ("second", b"x" * 100)],
                limit=count,
            )

    async with trio.open_nursery() as nursery:
        for _ in range(64):
            nursery.start_soon(add)


async def test_ten_thousand_tasks_that_wait_take_four_kib_each_at_most(path: Path) -> None:
    async with SqliteStores(path) as stores:
        await fill(stores, 10_000, status="input_required", expires=1e12)
        assert os.stat(path).st_size <= 10_000 * 4096


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (f"{tables.READY} LIMIT 1", 2),
        (tables.LOST, 3),
        ("SELECT 1 FROM tasks INDEXED BY leased WHERE token != '' AND boot < ? LIMIT 1", 1),
        ("SELECT id FROM tasks WHERE expires <= ? LIMIT ?", 2),
        ("SELECT count(*) FROM tasks WHERE expires <= ?", 1),
        ("SELECT id FROM events WHERE session = ? AND stream = ?", 2),
    ],
)
def test_a_look_reads_an_index_and_never_all_tasks(statement: str, values: int) -> None:
    """Each process polls once a second, even with very many tasks."""
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(tables.SCHEMA)
        plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", (1,) * values).fetchall()
    assert [row[3].split(" USING ")[0] for row in plan] in (["SEARCH tasks"], ["SEARCH events"])


async def test_all_who_listen_look_once_a_second_and_at_the_same_moments(
    path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Other processes may not be able to wake them. A process with nothing to do wakes up once for all of them."""
    looked: list[float] = []

    async def listen(after: float, look: float) -> None:
        await trio.sleep(after)
        with stores.listen("a", look=look) as listener:
            while trio.current_time() < 4:
                await listener.woken()
                looked.append(trio.current_time())

    async with SqliteStores(path) as stores, trio.open_nursery() as nursery:
        for after, look in ((0.0, LOOK), (0.5, LOOK), (0.7, 2 * LOOK)):
            nursery.start_soon(listen, after, look)
    assert (LOOK, sorted(looked)) == (1, [1, 1, 2, 2, 2, 3, 3, 4, 4, 4])


async def test_expired_tasks_are_deleted_in_slices_by_the_writes_that_happen(path: Path) -> None:
    now = 0.0
    async with SqliteStores(path, now=lambda: now) as stores:
        await fill(stores, 100, expires=5.0)
        now = 5.0
        counts = []
        with connected(path) as other:
            for number in range(5):
                await stores.add_task(task(f"{number}"), limit=5)
                counts.append(other.execute(COUNTS).fetchone())
            (held,) = other.execute("SELECT tasks FROM held").fetchone()
    assert counts == [(69, 136), (38, 72), (7, 8), (4, 0), (5, 0)]
    assert held == 5


async def test_the_log_beside_the_file_is_bounded_even_if_there_is_always_a_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers that overlap keep SQLite from starting again at the beginning of the log."""
    monkeypatch.setattr(sqlite_file, "LARGEST_WAL", 200_000)
    log, largest, stop = path.with_name("stores.db-wal"), 0, threading.Event()

    def read(first: float) -> None:
        with connected(path) as connection:
            stop.wait(first)
            while not stop.is_set():
                connection.execute("BEGIN")
                connection.execute("SELECT count(*) FROM tasks").fetchone()
                stop.wait(0.02)
                connection.execute("COMMIT")

    async with SqliteStores(path) as stores, trio.open_nursery() as nursery:
        for first in (0, 0.007, 0.014):
            nursery.start_soon(trio.to_thread.run_sync, read, first)
        for number in range(200):
            await stores.add_task(task(f"{number}", body=b"x" * 10_000))
            largest = max(largest, log.stat().st_size)
        stop.set()
    assert 100_000 < largest < 400_000


async def test_a_reader_that_was_stopped_delays_no_writer_for_long(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log grows until the reader continues, and not every writer waits for that."""
    monkeypatch.setattr(sqlite_file, "LARGEST_WAL", 200_000)
    log = path.with_name("stores.db-wal")
    async with SqliteStores(path) as stores:
        with connected(path) as other:
            other.execute("BEGIN")
            other.execute("SELECT count(*) FROM tasks").fetchone()
            start = trio.current_time()
            for number in range(100):
                await stores.add_task(task(f"{number}", body=b"x" * 10_000))
            assert trio.current_time() - start < sqlite_file.LETTING_GO
            assert log.stat().st_size > 1_000_000
            monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + sqlite_file.LETTING_GO)
            other.execute("COMMIT")
        await stores.add_task(task("last"))
        assert log.stat().st_size < 200_000


# --- wake-ups ---------------------------------------------------------------------------------------------------------


async def test_a_wake_up_reaches_all_stores_on_the_file_in_this_process(path: Path) -> None:
    path.with_name("link").symlink_to(path)
    async with SqliteStores(path) as one, SqliteStores(path.with_name("link")) as two:
        with two.listen("topic") as listener:
            one.wake("topic")
            with trio.fail_after(0.9):
                await listener.woken()


async def test_a_wake_up_reaches_other_runs_of_trio(path: Path) -> None:
    ready, ends = threading.Event(), []

    async def elsewhere() -> None:
        async with SqliteStores(path) as stores:
            with stores.listen("topic") as listener:
                ready.set()
                start = trio.current_time()
                await listener.woken()
                ends.append(trio.current_time() - start)

    async with SqliteStores(path) as stores, trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, trio.run, elsewhere)
        await trio.to_thread.run_sync(ready.wait)
        stores.wake("topic")
    assert len(ends) == 1


# --- together with event stores ---------------------------------------------------------------------------------------


async def test_an_event_store_and_stores_may_share_a_file(path: Path) -> None:
    """Their table of events is the same."""
    async with SqliteStores(path) as stores, SqliteEventStore(path) as store:
        await store.append("a", [StoredEvent(1, 1, b"x")])
        await stores.sessions.append("a", [StoredEvent(1, 2, b"y")])
        assert await store.after("a", 1, 0) == await stores.sessions.after("a", 1, 0)
        assert attrs.astuple((await stores.sessions.after("a", 1, 1))[0]) == (1, 2, b"y")


async def test_the_file_of_an_event_store_is_not_taken_over(path: Path) -> None:
    async with SqliteEventStore(path) as store:
        await store.append("a", [StoredEvent(1, 1, b"x")])
        with pytest.raises(StoreError, match="database of another program"):
            async with SqliteStores(path):
                pass
        assert await store.after("a", 1, 0) == [StoredEvent(1, 1, b"x")]
