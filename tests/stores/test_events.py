"""Event stores keep and return events by the contract of `EventStore`, and never skip a gap."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import trio
from hypothesis import given, strategies as st

from trio_mcp.stores.event_store import EventsLost, EventStore, StoredEvent
from trio_mcp.stores.event_stores import MemoryEventStore, SqliteEventStore


def events(stream: int, *numbers: int) -> list[StoredEvent]:
    return [StoredEvent(stream, number, b"%d/%d" % (stream, number)) for number in numbers]


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., EventStore]:
    if request.param == "memory":
        return MemoryEventStore
    return lambda **limits: SqliteEventStore(tmp_path / "events.db", **limits)


@contextlib.asynccontextmanager
async def opened(store: EventStore):  # type: ignore[no-untyped-def]
    try:
        yield store
    finally:
        if isinstance(store, SqliteEventStore):
            await store.aclose()


async def test_what_followed_on_that_stream_and_nothing_else(make: Callable[..., EventStore]) -> None:
    """Resumability: MUST NOT replay messages that would have been delivered on a different stream."""
    async with opened(make()) as store:
        await store.append("a", [*events(1, 1, 2), *events(2, 1)])
        await store.append("b", events(1, 1))
        await store.append("a", events(1, 3))
        assert await store.after("a", 1, 0) == events(1, 1, 2, 3)
        assert await store.after("a", 1, 2) == events(1, 3)
        assert await store.after("a", 1, 3) == []
        assert await store.after("b", 1, 0) == events(1, 1)


async def test_what_nothing_is_known_of_is_lost(make: Callable[..., EventStore]) -> None:
    async with opened(make()) as store:
        await store.append("a", events(1, 1))
        for session, stream, number in [("b", 1, 0), ("a", 2, 0), ("a", 1, 2)]:
            with pytest.raises(EventsLost):
                await store.after(session, stream, number)


async def test_beyond_the_limit_the_oldest_go_and_a_gap_is_said(make: Callable[..., EventStore]) -> None:
    async with opened(make(max_events=3)) as store:
        for number in range(1, 6):
            await store.append("a", events(1, number))
        assert await store.after("a", 1, 2) == events(1, 3, 4, 5)
        with pytest.raises(EventsLost, match="event 1 of stream 1"):
            await store.after("a", 1, 1)


async def test_an_event_that_is_there_is_kept_as_it_is(make: Callable[..., EventStore]) -> None:
    """A cancelled `append` is repeated, so events may come again."""
    async with opened(make()) as store:
        await store.append("a", events(1, 1, 2))
        await store.append("a", events(1, 2, 3))
        assert await store.after("a", 1, 0) == events(1, 1, 2, 3)


async def test_a_session_is_forgotten(make: Callable[..., EventStore]) -> None:
    async with opened(make()) as store:
        await store.append("a", events(1, 1))
        await store.append("b", events(1, 1))
        await store.forget("a")
        await store.forget("unknown")
        with pytest.raises(EventsLost):
            await store.after("a", 1, 0)
        assert await store.after("b", 1, 0) == events(1, 1)


async def test_the_oldest_go_first_also_after_the_newest_were_forgotten(make: Callable[..., EventStore]) -> None:
    async with opened(make(max_events=3)) as store:
        await store.append("a", events(1, 1, 2))
        await store.append("b", events(1, 1))
        await store.forget("b")
        await store.append("c", events(1, 1, 2))
        assert await store.after("a", 1, 1) == events(1, 2)
        assert await store.after("c", 1, 0) == events(1, 1, 2)
        with pytest.raises(EventsLost):
            await store.after("a", 1, 0)


async def test_many_are_given_in_pieces(make: Callable[..., EventStore]) -> None:
    async with opened(make()) as store:
        await store.append("a", events(1, *range(1, 251)))
        got: list[StoredEvent] = []
        while more := await store.after("a", 1, len(got)):
            got += more
        assert got == events(1, *range(1, 251))


@pytest.mark.parametrize("limits", [{"max_events": 0}, {"max_age": -1}])
def test_limits_are_checked(make: Callable[..., EventStore], limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(limits))):
        make(**limits)


async def test_memory_is_bounded_in_bytes_and_age() -> None:
    now = 0.0
    store = MemoryEventStore(max_bytes=10, max_age=5, clock=lambda: now)
    await store.append("a", [StoredEvent(1, 1, b"x" * 6), StoredEvent(1, 2, b"x" * 6)])
    assert len(store) == 1
    now = 6.0
    with pytest.raises(EventsLost):
        await store.after("a", 1, 1)
    assert len(store) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), max_size=60), st.integers(1, 20))
def test_memory_never_replays_partially(puts: list[tuple[str, int]], limit: int) -> None:
    """Whichever events were dropped, the returned ones have no gap up to the last."""

    async def main() -> None:
        store = MemoryEventStore(max_events=limit)
        last: dict[tuple[str, int], int] = {}
        for session, stream in puts:
            last[session, stream] = last.get((session, stream), 0) + 1
            await store.append(session, events(stream, last[session, stream]))
        assert len(store) <= limit
        for (session, stream), end in last.items():
            for number in range(end + 1):
                with contextlib.suppress(EventsLost):
                    assert await store.after(session, stream, number) == events(stream, *range(number + 1, end + 1))

    trio.run(main)


async def test_a_file_outlives_its_store_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    async with opened(SqliteEventStore(path)) as store:
        await store.append("a", events(1, 1, 2))
    assert path.stat().st_mode & 0o077 == 0
    async with opened(SqliteEventStore(path)) as store:
        assert await store.after("a", 1, 1) == events(1, 2)


async def test_what_is_too_old_is_not_given_and_leaves_the_file_with_the_next_append(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    async with opened(SqliteEventStore(path, max_age=60)) as store:
        await store.append("a", events(1, 1, 2))
        await store.append("b", events(1, 1))
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE events SET time = time - 61 WHERE session = 'a'")
        with pytest.raises(EventsLost):
            await store.after("a", 1, 0)
        await store.append("b", events(1, 2))
        with contextlib.closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT session, number FROM events").fetchall() == [("b", 1), ("b", 2)]
        assert await store.after("b", 1, 0) == events(1, 1, 2)


async def test_a_block_opens_the_file_and_closes_it_even_when_cancelled(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("this is not a database" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        async with SqliteEventStore(tmp_path / "text"):
            pass
    with trio.CancelScope() as scope:
        async with SqliteEventStore(tmp_path / "events.db"):
            assert [each for each in psutil.Process().open_files() if each.path.startswith(str(tmp_path))]
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert not [each for each in psutil.Process().open_files() if each.path.startswith(str(tmp_path))]


async def test_a_file_that_is_not_a_database_is_an_error_each_time(tmp_path: Path) -> None:
    path = tmp_path / "events.db"
    path.write_bytes(b"no database " * 100)
    async with opened(SqliteEventStore(path)) as store:
        for _ in range(2):
            with pytest.raises(sqlite3.DatabaseError):
                await store.append("a", events(1, 1))
