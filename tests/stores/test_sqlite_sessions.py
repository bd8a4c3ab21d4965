"""The sessions of stores in a file: what reads and writes cost, and what outlives the processes that serve them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest
import trio

from tests.peer import settle
from trio_mcp.stores import SqliteStores, StaleWriter, StoreBusy, StoredSession, sqlite_stores
from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.session_store import LETTERS

EPOCH = 1e9
TABLES = ("sessions", "fields", "streams", "events", "letters")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stores.db"


def session(key: str, expires: float = EPOCH + 3600) -> StoredSession:
    return StoredSession(key, b"declared", {"a": b"1", "b": b"2"}, expires)


def rows(path: Path) -> dict[str, int]:
    with closing(sqlite3.connect(path)) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in TABLES}


async def test_reads_do_not_wait_for_writers(path: Path) -> None:
    async with SqliteStores(path, timeout=0.2, now=lambda: EPOCH) as stores:
        sessions = stores.sessions
        member = await sessions.join(lease=3600)
        await sessions.add(session("s"), limit=9)
        await sessions.open("s", member.token, 1, ["1"])
        await sessions.append("s", [StoredEvent(1, 0, b"x")], member.token)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await sessions.session("s") is not None
            assert await sessions.letters(member.token, 0) == []
            assert await sessions.take_over(lease=1, most=9) == []
            assert len(await sessions.open_streams(member.token, 9)) == 1
            assert len(await sessions.after("s", 1, 0)) == 1
            with pytest.raises(StoreBusy):
                await sessions.end("s")


async def test_expired_sessions_are_deleted_in_slices_with_all_that_is_theirs(path: Path) -> None:
    now = EPOCH
    async with SqliteStores(path, now=lambda: now) as stores:
        sessions = stores.sessions
        member = await sessions.join(lease=3600)
        for number in range(50):
            await sessions.add(session(f"{number}", EPOCH + 60), limit=99)
            await sessions.append(f"{number}", [StoredEvent(0, 0, b"x")], member.token)
            await sessions.carry(f"{number}", member.token, 0)
        await sessions.open("0", member.token, 1, ["1"])
        now += 60
        await stores.announce([])
        assert rows(path)["sessions"] == 50 - 32
        await stores.announce([])
        assert rows(path) == {"sessions": 1, "fields": 2, "streams": 2, "events": 1, "letters": 0}
        await sessions.append("0", [], member.token, ended=[1])
        assert rows(path) == dict.fromkeys(TABLES, 0)
        await sessions.leave(member.token)


async def test_expired_sessions_do_not_count(path: Path) -> None:
    now = EPOCH
    async with SqliteStores(path, now=lambda: now) as stores:
        for number in range(40):
            await stores.sessions.add(session(f"{number}", EPOCH + 60), limit=40)
        now += 60
        await stores.sessions.add(session("new"), limit=1 + 40 - 32)


async def test_members_have_their_whole_lease_after_a_reboot(path: Path) -> None:
    """As tasks: the clock of leases begins again with each start of the machine."""
    clock = 1000.0

    async def take_over(stores: SqliteStores) -> list[int]:
        return [member.number for member in await stores.sessions.take_over(lease=10, most=9)]

    with mock.patch.object(sqlite_stores, "boot_id", return_value="first"):
        async with SqliteStores(path, clock=lambda: clock) as stores:
            member = await stores.sessions.join(lease=10)
    clock = 5.0
    with mock.patch.object(sqlite_stores, "boot_id", return_value="second"):
        async with SqliteStores(path, clock=lambda: clock) as stores:
            clock = 14.0
            assert await take_over(stores) == []
            clock = 15.0
            assert await take_over(stores) == [member.number]
            with pytest.raises(StaleWriter):
                await stores.sessions.stay(member.token, lease=10)


async def test_a_member_outlives_its_process(path: Path) -> None:
    """Only its lease says that it is gone: what it ran is found by another process, also after all have ended."""
    async with SqliteStores(path, clock=lambda: 1.0, now=lambda: EPOCH) as stores:
        member = await stores.sessions.join(lease=10)
        await stores.sessions.add(session("s"), limit=9)
        await stores.sessions.open("s", member.token, 7, ["1", '"a"'])
    async with SqliteStores(path, clock=lambda: 11.0, now=lambda: EPOCH) as stores:
        (taken,) = await stores.sessions.take_over(lease=10, most=9)
        (stream,) = await stores.sessions.open_streams(taken.token, 9)
        assert (taken.number, stream.stream, stream.requests) == (member.number, 7, ("1", '"a"'))


async def test_only_letters_wake(path: Path) -> None:
    async with SqliteStores(path, now=lambda: EPOCH) as stores:
        sessions = stores.sessions
        writer, carrier = [await sessions.join(lease=3600) for _ in range(2)]
        await sessions.add(session("s"), limit=9)
        woken = 0

        async def count() -> None:
            nonlocal woken
            with stores.listen(LETTERS, look=3600) as listener:
                while True:
                    await listener.woken()
                    woken += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await settle()
            await sessions.open("s", writer.token, 1, ["1"])
            await sessions.append("s", [StoredEvent(1, 0, b"x")], writer.token)
            await sessions.carry("s", carrier.token, 0)
            await sessions.change("s", writer.token, expires=EPOCH + 7200)
            assert not await sessions.send("s", b"x", request="2")
            await settle()
            assert woken == 0
            await sessions.append("s", [StoredEvent(0, 0, b"x")], writer.token)
            await settle()
            assert woken == 1
            nursery.cancel_scope.cancel()


async def test_the_bounds_of_events_hold_for_open_streams(path: Path) -> None:
    """What was deleted is lost, and its numbers are not given again."""
    async with SqliteStores(path, max_events=3, now=lambda: EPOCH) as stores:
        sessions = stores.sessions
        member = await sessions.join(lease=3600)
        for key in ("s", "t"):
            await sessions.add(session(key), limit=9)
        for _ in range(4):
            await sessions.append("s", [StoredEvent(0, 0, b"x")], member.token)
        for _ in range(3):
            await sessions.append("t", [StoredEvent(0, 0, b"x")], member.token)
        assert await sessions.carry("s", member.token, 0) == (4, True)
        assert await sessions.append("s", [StoredEvent(0, 0, b"x")], member.token) == [5]
        assert [event.number for event in await sessions.after("s", 0, 4)] == [5]


async def test_an_idle_session_takes_little(path: Path) -> None:
    """2 KiB at most, with a declaration and fields of usual sizes, and a stream that a member carries."""
    many = 400
    async with SqliteStores(path, now=lambda: EPOCH) as stores:
        member = await stores.sessions.join(lease=3600)

        def size_of_file() -> int:
            with closing(sqlite3.connect(path)) as connection:
                count: int = connection.execute("PRAGMA page_count").fetchone()[0]
                return count * 4096

        before = size_of_file()
        for number in range(many):
            key = f"{number:064}"
            fields = {"level": b'"debug"', "ready": b"1", "subscriptions": b"x" * 200}
            await stores.sessions.add(StoredSession(key, b"x" * 700, fields, EPOCH + 3600), limit=many)
            await stores.sessions.carry(key, member.token, 0)
        assert (size_of_file() - before) / many < 2048
