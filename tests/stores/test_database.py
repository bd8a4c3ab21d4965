"""The thread of an SQLite database: operations that wait together share a transaction, and each fails alone."""

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
from trio_mcp.stores import database
from trio_mcp.stores.database import Database
from trio_mcp.stores.sqlite_file import LockedFile

NET = 300.0
"""Seconds after which a test that hangs fails."""


class Numbers:
    """A database of numbers, whose thread is busy until `go` is set.

    Attributes:
        ends: The ends of its transactions.
        other: Another connection, which locks the file before the transaction number `locked_at` begins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = Database(str(path), self.prepare)
        self.go = threading.Event()
        self.ends: list[str] = []
        self.failed: list[int] = []
        self.opened = self.begun = self.locked_at = 0
        self.other = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)

    def prepare(self, connection: sqlite3.Connection) -> None:
        self.opened += 1
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
        connection.set_trace_callback(self.trace)

    def trace(self, text: str) -> None:
        if text == "BEGIN IMMEDIATE":
            self.begun += 1
            if self.begun == self.locked_at:  # right before this connection locks it
                self.other.execute(text)
        elif text in ("COMMIT", "ROLLBACK"):
            self.ends.append(text)

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
        except (sqlite3.IntegrityError, LockedFile):
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
        found.other.close()
        await found.database.close()


async def queue(numbers: Numbers, nursery: trio.Nursery, *given: int) -> None:
    """Keep the thread busy, and let these numbers wait for it, in order."""
    await nursery.start(numbers.occupy)
    for number in given:
        nursery.start_soon(numbers.add, number)
        await trio.testing.wait_all_tasks_blocked()


async def test_what_waits_together_is_one_transaction(numbers: Numbers) -> None:
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1, 2, 3, 4, 5)
        numbers.go.set()
    assert numbers.ends == ["COMMIT"] * 2  # of what the thread was busy with, and of all five
    assert await numbers.all() == [1, 2, 3, 4, 5]


async def test_a_transaction_has_a_bound(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "TOGETHER", 2)
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1, 2, 3, 4, 5)
        numbers.go.set()
    assert numbers.ends == ["COMMIT"] * 4


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


async def test_operations_that_wait_together_wait_once_for_a_locked_file(
    numbers: Numbers,
) -> None:
    """If each waited for the lock in turn, the last would wait for half an hour."""
    numbers.database.timeout = 0
    numbers.locked_at = 2
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1, 2, 3)
        numbers.go.set()
    assert (sorted(numbers.failed), numbers.begun) == ([1, 2, 3], 2)
    numbers.other.execute("ROLLBACK")
    await numbers.add(4)
    assert await numbers.all() == [4]


async def test_an_operation_whose_time_is_up_fails_alone_and_the_others_go_on_waiting(
    numbers: Numbers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PATIENCE", NET)
    numbers.locked_at = 2
    async with trio.open_nursery() as nursery:
        await nursery.start(numbers.occupy)
        for number, timeout in ((1, NET), (2, 0), (3, NET)):
            numbers.database.timeout = timeout
            nursery.start_soon(numbers.add, number)
            await trio.testing.wait_all_tasks_blocked()
        numbers.go.set()
        await eventually(lambda: numbers.failed)
        numbers.other.execute("ROLLBACK")
    assert (numbers.failed, numbers.begun) == ([2], 3)
    assert await numbers.all() == [1, 3]


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


async def test_an_operation_that_is_cancelled_while_the_file_is_locked_gives_up(numbers: Numbers) -> None:
    """It has no effect, and the operation that waits with it goes on waiting."""
    numbers.database.timeout = 2 * NET
    numbers.locked_at = 2
    with trio.fail_after(NET):
        async with trio.open_nursery() as outer:
            await queue(numbers, outer, 1)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(numbers.add, 2)
                    await trio.testing.wait_all_tasks_blocked()
                    numbers.go.set()
                    await eventually(lambda: numbers.other.in_transaction)
                    scope.cancel()
            assert scope.cancelled_caught
            numbers.other.execute("ROLLBACK")
    assert await numbers.all() == [1]


async def test_closing_comes_after_what_waits_and_what_follows_opens_the_file_again(numbers: Numbers) -> None:
    async with trio.open_nursery() as nursery:
        await queue(numbers, nursery, 1)
        nursery.start_soon(numbers.database.close)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(numbers.add, 2)
        await trio.testing.wait_all_tasks_blocked()
        numbers.go.set()
    assert (await numbers.all(), numbers.opened) == ([1, 2], 2)


async def test_a_database_that_is_not_used_has_no_thread(numbers: Numbers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that is dropped unclosed leaves no thread."""
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
    """A client can resume from any message that it has seen."""
    program, path = tmp_path / "crashing.py", tmp_path / "events.db"
    program.write_text(CRASHING)
    done = await trio.run_process([*forks.command(str(program), *forks.LOADED), str(path)], check=False)
    assert done.returncode == 7
    async with SqliteEventStore(path) as store:
        for stream in range(1, 4):
            assert await store.after("a", stream, 0) == [event(stream)]
