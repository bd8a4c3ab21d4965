"""The sessions of stores in memory, and of two on one file or in an engine, do the same, step by step."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import attrs
import pytest
import trio
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.redis_server import RedisServer
from tests.stores.test_stores_machine import script_in_virtual_time
from trio_mcp import EventsLost, StoredEvent
from trio_mcp.stores import (
    MemoryStores,
    OpenStream,
    SessionStore,
    SqliteStores,
    StaleWriter,
    StoredSession,
    StoreFull,
    ValkeyStores,
    valkey_client,
)

EPOCH = 4e9  # so far ahead that an engine, which has the real time, deletes nothing
AGE = 3.9e9  # so long that no event is too old, whether its time is the real one
KEYS = "abc"

Step: TypeAlias = tuple[Any, ...]

keys = st.sampled_from(KEYS)
streams = st.integers(0, 2)
opened = st.integers(1, 2)
members = st.integers(0, 2)  # which of those that have joined, counted from the newest
seconds = st.sampled_from([1.0, 2.0, 5.0])
requests = st.lists(st.sampled_from(["1", "2", '"a"']), max_size=2, unique=True)
asked = st.sampled_from(["1", '"a"'])
fields = st.dictionaries(st.sampled_from("xy"), st.none() | st.sampled_from([b"1", b"2"]))
events = st.lists(st.tuples(streams, st.integers(0, 3)), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), seconds),
        st.tuples(st.just("stay"), members, seconds, st.integers(0, 5)),
        st.tuples(st.just("take_over"), seconds, st.integers(1, 2)),
        st.tuples(st.just("leave"), members),
        st.tuples(st.just("add"), keys, seconds, st.integers(1, 3), st.sampled_from(["", "x"]), st.booleans()),
        st.tuples(st.just("change"), keys, members, st.none() | seconds, fields),
        st.tuples(st.just("end"), keys),
        st.tuples(st.just("open"), keys, members, opened, requests),
        st.tuples(st.just("append"), keys, members, events, st.sets(opened, max_size=1), st.none() | seconds),
        st.tuples(st.just("store"), keys, events),
        st.tuples(st.just("forget"), keys),
        st.tuples(st.just("carry"), keys, members, streams),
        st.tuples(st.just("drop"), keys, members, streams),
        st.tuples(st.just("send"), keys, st.integers(1, 9), st.none() | st.integers(1, 3), asked),
        st.tuples(st.just("sleep"), seconds),
    ),
    min_size=10,
    max_size=40,
)


@attrs.define
class Side:
    """One of the two that are compared; tokens differ, and have the same places in ``tokens``."""

    stores: list[SessionStore]
    tokens: list[str]
    turn: int = 0

    def token(self, member: int) -> str:
        return self.tokens[-1 - member] if member < len(self.tokens) else "stale"

    def sessions(self) -> SessionStore:
        """Return the stores in turn, as if each step were taken by another process."""
        self.turn += 1
        return self.stores[self.turn % len(self.stores)]


class World:
    """Both sides, on one clock."""

    def __init__(self) -> None:
        self.time = 0.0
        self.added = 0

    def now(self) -> float:
        return EPOCH + self.time

    async def sleep(self, seconds: float, stores: list[Any]) -> None:
        self.time += seconds

    async def join(self, side: Side, lease: float) -> object:
        member = await side.sessions().join(lease=lease)
        side.tokens.append(member.token)
        return member.number

    async def stay(self, side: Side, member: int, lease: float, read: int) -> object:
        return await side.sessions().stay(side.token(member), lease=lease, read=read)

    async def take_over(self, side: Side, lease: float, most: int) -> object:
        taken = await side.sessions().take_over(lease=lease, most=most)
        side.tokens += [member.token for member in taken]
        return [member.number for member in taken]

    async def leave(self, side: Side, member: int) -> object:
        return await side.sessions().leave(side.token(member))

    async def add(self, side: Side, key: str, lasts: float, limit: int, unless: str, field: bool) -> object:
        # No two sessions expire at the same time, so that it is clear which expires first.
        expires = self.now() + lasts + self.added / 1000
        session = StoredSession(key, key.encode(), {"x": b""} if field else {}, expires)
        return await side.sessions().add(session, limit=limit, unless=unless)

    async def change(
        self, side: Side, key: str, member: int, lasts: float | None, fields: dict[str, bytes | None]
    ) -> object:
        expires = None if lasts is None else self.now() + lasts + self.added / 1000
        return await side.sessions().change(key, side.token(member), expires=expires, fields=fields)

    async def end(self, side: Side, key: str) -> object:
        return await side.sessions().end(key)

    async def open(self, side: Side, key: str, member: int, stream: int, ids: list[str]) -> object:
        return await side.sessions().open(key, side.token(member), stream, ids)

    async def append(
        self, side: Side, key: str, member: int, given: list[tuple[int, int]], ended: set[int], lasts: float | None
    ) -> object:
        expires = None if lasts is None else self.now() + lasts + self.added / 1000
        made = await self.made(side, key, given)
        return await side.sessions().append(key, made, side.token(member), ended=ended, expires=expires)

    async def store(self, side: Side, key: str, given: list[tuple[int, int]]) -> object:
        return await side.sessions().append(key, await self.made(side, key, given))

    async def made(self, side: Side, key: str, given: list[tuple[int, int]]) -> list[StoredEvent]:
        """Return events: with the number 0, or, as writers do, with the next one, or one that is stored."""
        found = []
        for stream, number in given:
            stored = await self.stored(side, key, stream)
            number = min(number, len(stored)) if stored and stored[0].number == 1 else 0
            found.append(StoredEvent(stream, number, b"%d" % number))
        return found

    async def forget(self, side: Side, key: str) -> object:
        return await side.sessions().forget(key)

    async def carry(self, side: Side, key: str, member: int, stream: int) -> object:
        return await side.sessions().carry(key, side.token(member), stream)

    async def drop(self, side: Side, key: str, member: int, stream: int) -> object:
        return await side.sessions().drop(key, side.token(member), stream)

    async def send(self, side: Side, key: str, size: int, member: int | None, request: str) -> object:
        return await side.sessions().send(key, b"x" * size, member=member, request=request, limit=10)

    async def stored(self, side: Side, key: str, stream: int) -> list[StoredEvent]:
        try:
            return [*await side.stores[0].after(key, stream, 0)]
        except EventsLost:
            return []

    async def open_streams(self, sessions: SessionStore, token: str) -> list[OpenStream]:
        return sorted(await sessions.open_streams(token, 99), key=lambda each: (each.session, each.stream))

    async def seen(self, side: Side) -> list[object]:
        """Return all that can be seen without changing anything."""
        sessions = side.stores[-1]
        calls: list[Callable[[], Awaitable[Any]]] = [partial(sessions.session, key) for key in KEYS]
        calls += [partial(self.stored, side, key, stream) for key in KEYS for stream in range(3)]
        for token in side.tokens[-3:]:
            calls += [partial(sessions.letters, token, 0), partial(self.open_streams, sessions, token)]
        found: list[object] = [None] * len(calls)

        async def see(place: int) -> None:
            seen = await result(calls[place])
            # Open streams have no order.
            found[place] = (
                sorted(seen, key=repr) if seen and isinstance(seen, list) and isinstance(seen[0], OpenStream) else seen
            )

        # Reads that wait at the same time are one transaction, which saves most of the time.
        async with trio.open_nursery() as nursery:
            for place in range(len(calls)):
                nursery.start_soon(see, place)
        return found


async def result(call: Callable[[], Awaitable[Any]]) -> Any:
    """Return what a call returns, or the kind of its error."""
    try:
        found = await call()
    except (StaleWriter, StoreFull, ValueError) as exc:
        return type(exc)
    return [*found] if isinstance(found, (list, tuple)) else found


async def compare(steps: list[Step], world: World, make: Callable[..., Any]) -> None:
    """Compare stores in memory with two others, which ``make`` makes."""
    times: dict[str, Any] = {"clock": lambda: world.time, "now": world.now}
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(MemoryStores(**times, max_age=AGE))
        others = [await stack.enter_async_context(make(max_age=AGE)) for _ in range(2)]
        await world.sleep(0, others)
        sides = [Side([memory.sessions], []), Side([each.sessions for each in others], [])]
        for name, *arguments in [("join", 5.0), ("join", 5.0), ("add", "a", 5.0, 3, "", False), *steps]:
            if name == "sleep":
                await world.sleep(arguments[0], others)
            else:
                world.added += 1
                here, there = [await result(partial(getattr(world, name), each, *arguments)) for each in sides]
                assert here == there, name
            for each in sides:  # a write deletes what has expired, of which only the events could be seen
                await result(partial(each.stores[0].stay, "stale", lease=1.0))
            here, there = [await world.seen(each) for each in sides]
            assert here == there, name


@given(STEPS)
@settings(max_examples=examples(150), deadline=None)
def test_sessions_in_memory_and_in_a_file_do_the_same(steps: list[Step]) -> None:
    world = World()
    with tempfile.TemporaryDirectory() as folder:
        make = partial(SqliteStores, Path(folder, "stores.db"), clock=lambda: world.time, now=world.now)
        trio.run(compare, steps, world, make)


class EngineWorld(World):
    """The same, with an engine whose scripts read the time of this world."""

    async def sleep(self, seconds: float, stores: list[Any]) -> None:
        await super().sleep(seconds, stores)
        for each in stores:
            await each._opened().ask("HSET", "{time}", "s", f"{self.now():.0f}", "us", "0")  # noqa: SLF001
            await each.versions(["x"])  # from whose response it learns the time


NUMBERS = itertools.count(1)


@pytest.mark.redis
@given(STEPS)
@settings(max_examples=examples(600, daily=15), deadline=None)
def test_sessions_in_memory_and_in_an_engine_do_the_same(engine: RedisServer, steps: list[Step]) -> None:
    scripts = functools.cache(script_in_virtual_time)
    engine.ask("hset", "{time}", "s", f"{EPOCH:.0f}", "us", "0")
    make = partial(ValkeyStores, engine.url, prefix=f"sessions-{next(NUMBERS)}")
    with mock.patch.object(valkey_client, "_script", scripts):
        trio.run(compare, steps, EngineWorld(), make)
