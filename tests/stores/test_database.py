"""The thread of an SQLite event store: what waits together is one transaction, and each operation stands for itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from tests import forks
from tests.waiting import eventually
from trio_mcp import SqliteEventStore, StoredEvent
from trio_mcp.http.server.legacy import database
from trio_mcp.http.server.legacy.database import Database


class Numbers:
    """A database of numbers, whose thread is busy until `go` is set; `ends` are the ends of its transactions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = Database(self.open)
        self.go = threading.Event()
        self.ends: list[str] = []
        self.failed: list[int] = []

    def open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, check_same_thread=False)
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
        connection.set_trace_callback(lambda text: self.ends.append(text) if text in ("COMMIT", "ROLLBACK") else None)
        return connection

    async def occupy(
        self,
        work: Callable[[sqlite3.Connection], object] = lambda _: None,
        *,
        task_status: trio.TaskStatus[trio.CancelScope],
    ) -> None:
        """Keep the thread busy with a function, which ends with `work` once `go` is set."""
        token = trio.lowlevel.current_trio_token()

        def wait(connection: sqlite3.Connection) -> None:
            token.run_sync_soon(task_status.started, scope)
            assert self.go.wait(30)
            work(connection)

        with trio.CancelScope() as scope:
            await self.database.run(wait)
        assert not scope.cancelled_caught

    async def add(self, number: int, *, fail: bool = False) -> None:
        def insert(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO numbers VALUES (?)", (number,))
            if fail:
                raise sqlite3.IntegrityError("no")

        try:
            await self.database.run(insert)
        except sqlite3.IntegrityError:
            self.failed.append(number)

    async def all(self) -> list[int]:
        rows = await self.database.run(lambda each: each.execute("SELECT number FROM numbers ORDER BY 1").fetchall())
        return [number for (number,) in rows]


@pytest.fixture
async def numbers(tmp_path: Path) -> AsyncIterator[Numbers]:
    found = Numbers(tmp_path / "numbers.db")
    try:
        yield found
    finally:
        found.go.set()
        await found.database.close()


async def queue(numbers: Numbers, nursery: trio.Nursery, *given: int) -> None:
    """Occupy the thread, and have these numbers wait for it, in order."""
    await nursery.start(numbers.occupy)
    for number in given:
        nursery.start_soon(numbers.add, number)
        await trio.testing.wait_all_tasks_blocked()


async def test_what_waits_together_is_one_transaction(numbers: Numbers) -> None:
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1, 2, 3, 4, 5)
        numbers.go.set()
    assert numbers.ends == ["COMMIT"]
    assert await numbers.all() == [1, 2, 3, 4, 5]


async def test_a_transaction_has_a_bound(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "TOGETHER", 2)
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1, 2, 3, 4, 5)
        numbers.go.set()
    assert numbers.ends == ["COMMIT"] * 3


async def test_an_operation_that_fails_is_undone_and_costs_no_other(numbers: Numbers) -> None:
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1, 2)
        nursery.start_soon(lambda: numbers.add(3, fail=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(numbers.add, 4)
        await trio.testing.wait_all_tasks_blocked()
        numbers.go.set()
    assert numbers.failed == [3]
    assert await numbers.all() == [1, 2, 4]


async def test_an_operation_that_is_cancelled_before_its_turn_has_no_effect(numbers: Numbers) -> None:
    async with trio.open_nursery() as outer:
        await queue(numbers, outer, 1)
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(numbers.add, 2)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        assert scope.cancelled_caught  # although the thread is still busy
        numbers.go.set()
    assert await numbers.all() == [1]


async def test_an_operation_that_is_cancelled_after_its_turn_ends_with_the_database(numbers: Numbers) -> None:
    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        scope = await nursery.start(numbers.occupy, lambda each: each.execute("INSERT INTO numbers VALUES (1)"))
        scope.cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert nursery.child_tasks
        outer.start_soon(numbers.add, 2)
        numbers.go.set()
    assert await numbers.all() == [1, 2]


async def test_closing_comes_after_what_waits_and_what_follows_opens_the_file_again(numbers: Numbers) -> None:
    opened = 0

    def count() -> sqlite3.Connection:
        nonlocal opened
        opened += 1
        return numbers.open()

    numbers.database = Database(count)
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1)
        nursery.start_soon(numbers.database.close)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(numbers.add, 2)
        await trio.testing.wait_all_tasks_blocked()
        numbers.go.set()
    assert (await numbers.all(), opened) == ([1, 2], 2)


async def test_a_database_that_is_not_used_has_no_thread(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It need not be closed."""
    monkeypatch.setattr(database, "IDLE", 0)
    for number in (1, 2):
        await numbers.add(number)
        await eventually(lambda: not numbers.database.running)
    assert await numbers.all() == [1, 2]


def event(stream: int) -> StoredEvent:
    return StoredEvent(stream, 1, b"{}")


async def test_two_stores_on_one_file_see_what_the_other_has_stored(tmp_path: Path) -> None:
    """As in two processes."""
    path = tmp_path / "events.db"
    async with SqliteEventStore(path) as one, SqliteEventStore(path) as other:
        async with trio.open_nursery() as nursery:
            for stream in range(1, 21):
                nursery.start_soon((one, other)[stream % 2].append, "a", [event(stream)])
        for stream in range(1, 21):
            assert await (other, one)[stream % 2].after("a", stream, 0) == [event(stream)]


CRASHING = """
import os, sys, trio
from trio_mcp import SqliteEventStore, StoredEvent

async def main():
    store = SqliteEventStore(sys.argv[1])
    for stream in range(1, 4):
        await store.append("a", [StoredEvent(stream, 1, b"{}")])
    os._exit(7)  # without closing anything

trio.run(main)
"""


async def test_what_append_has_returned_for_outlives_a_crash_of_the_process(tmp_path: Path) -> None:
    """What a client has seen can be resumed from."""
    program, path = tmp_path / "crashing.py", tmp_path / "events.db"
    program.write_text(CRASHING)
    done = await trio.run_process([*forks.command(str(program), *forks.LOADED), str(path)], check=False)
    assert done.returncode == 7
    async with SqliteEventStore(path) as store:
        for stream in range(1, 4):
            assert await store.after("a", stream, 0) == [event(stream)]
