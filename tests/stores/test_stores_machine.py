"""Stores in memory, and two on one file, do the same as a model of a few lines, step by step."""

from __future__ import annotations

import functools
import itertools
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import attrs
import pytest
import trio
from hypothesis import example, given, settings, strategies as st

from tests.effort import examples
from tests.redis_server import RedisServer
from trio_mcp.stores import (
    MemoryStores,
    SqliteStores,
    StaleWriter,
    StoredTask,
    StoreFull,
    Stores,
    ValkeyStores,
    sqlite_stores,
    valkey_client,
)

EPOCH = 1_000_000_000.0
KEYS, TOOLS = "abc", ("one", "two")
STATUSES = ("working", "working", "input_required", "completed")

Step: TypeAlias = tuple[Any, ...]

seconds = st.sampled_from([1.0, 2.0, 5.0])
keys = st.sampled_from(KEYS)
lifetimes = st.none() | seconds
tokens = st.sampled_from(["none", "current", "stale", "empty"])
entries = st.lists(st.sampled_from("xyz"), max_size=2)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            keys,
            st.sampled_from(TOOLS),
            st.sampled_from(STATUSES),
            lifetimes,
            st.none() | seconds,
            st.none() | st.integers(1, 3),
            entries,
        ),
        st.tuples(st.just("note"), keys, tokens, st.sampled_from("xyz")),
        st.tuples(
            st.just("put"),
            keys,
            st.sampled_from([1, 1, 1, 0, 2]),
            st.sampled_from(STATUSES),
            st.booleans(),
            tokens,
            lifetimes,
            entries,
        ),
        st.tuples(st.just("claim"), st.sets(st.sampled_from(TOOLS), min_size=1), seconds, st.integers(1, 3)),
        st.tuples(st.just("renew"), st.dictionaries(keys, tokens), seconds),
        st.tuples(st.just("sleep"), seconds),
        st.just(("reboot",)),
    ),
    min_size=10,
    max_size=40,
)


@attrs.define
class Known:
    """A task of the model.

    Attributes:
        lease: The number of its lease, which stands for the token; 0 for none.
        until: When its lease expires.
        duration: How long its lease lasts.
    """

    task: StoredTask
    journal: dict[str, bytes]
    lease: int = 0
    until: float = 0.0
    duration: float = 0.0


class World:
    """The model, and the stores that are compared with it.

    Attributes:
        time: Seconds since the beginning.
        started: When the machine was started.
        issued: The tokens of each lease so far, in memory and in the file.
    """

    epoch = EPOCH

    def __init__(self, path: Path) -> None:
        self.path = path
        self.time = self.started = 0.0
        self.boots = 0
        self.memory = MemoryStores(clock=lambda: self.time, now=self.now)
        self.files: list[Stores] = []
        self.turn = 0
        self.known: dict[str, Known] = {}
        self.issued: list[tuple[str, str]] = [("", "")]
        self.stack = AsyncExitStack()

    def now(self) -> float:
        return self.epoch + self.time

    async def boot(self) -> None:
        """Start the machine: its clock begins at zero, and two processes open the file."""
        await self.stack.aclose()
        self.boots += 1
        self.started = self.time
        with mock.patch.object(sqlite_stores, "boot_id", return_value=f"boot {self.boots}"):
            make = partial(SqliteStores, self.path, clock=lambda: self.time - self.started, now=self.now)
            self.files = [await self.stack.enter_async_context(make()) for _ in range(2)]
        # Each lease has its whole duration from now on; in memory, it must be renewed for that.
        for key, known in self.alive().items():
            if known.lease:
                known.until = self.time + known.duration
                await self.memory.renew({key: self.issued[known.lease][0]}, lease=known.duration)

    def alive(self) -> dict[str, Known]:
        for key, known in [*self.known.items()]:
            if known.task.expires is not None and known.task.expires <= self.now():
                del self.known[key]
        return self.known

    async def both(self, call: Callable[[Stores, int], Any]) -> tuple[Any, Any]:
        """Make a call in memory and in a file, and return the results, or the types of what they raise."""
        self.turn += 1
        results = []
        for place, stores in enumerate((self.memory, self.files[self.turn % 2])):
            try:
                results.append(await call(stores, place))
            except (StaleWriter, StoreFull, ValueError) as exc:
                results.append(type(exc))
        return results[0], results[1]

    def pick(self, key: str, choice: str) -> int | None:
        """Return the number of a lease, or None for no token."""
        known = self.alive().get(key)
        current = known.lease if known else 0
        return {"none": None, "empty": 0, "current": current, "stale": len(self.issued) - 1}[choice]

    def token(self, lease: int | None, place: int) -> str | None:
        return None if lease is None else self.issued[lease][place]

    def begin(self, known: Known, tokens: tuple[str, str], duration: float) -> None:
        assert all(tokens)
        self.issued.append(tokens)
        known.lease, known.until, known.duration = len(self.issued) - 1, self.time + duration, duration

    def held(self, task: StoredTask | None, place: int) -> StoredTask | None:
        """Return a task with the number of its lease in place of the token."""
        if task is None:
            return None
        numbers = {each[place]: number for number, each in enumerate(self.issued)}
        return attrs.evolve(task, token=f"{numbers[task.token]}")

    def shown(self, key: str) -> StoredTask | None:
        known = self.alive().get(key)
        return attrs.evolve(known.task, token=f"{known.lease}") if known else None

    # --- the steps -----------------------------------------------------------------------------------------------

    async def add(
        self,
        key: str,
        tool: str,
        status: str,
        lifetime: float | None,
        lease: float | None,
        limit: int | None,
        names: list[str],
    ) -> None:
        expires = None if lifetime is None else self.now() + lifetime
        made = {"key": key, "owner": "", "tool": tool, "status": status, "created": self.now(), "updated": self.now()}
        task = StoredTask(**made, expires=expires)  # type: ignore[arg-type]
        journal = [(name, b"added") for name in names]
        refused = (
            ValueError
            if key in self.alive()
            else StoreFull
            if limit is not None and len(self.alive()) >= limit
            else None
        )
        results = await self.both(lambda stores, _: stores.add_task(task, journal, lease=lease, limit=limit))
        if refused is not None:
            assert results == (refused, refused)
            return
        self.known[key] = known = Known(task, dict(journal))
        if lease is not None:
            self.begin(known, (results[0].token, results[1].token), lease)

    async def note(self, key: str, choice: str, name: str) -> None:
        lease = self.pick(key, choice) or 0
        known = self.alive().get(key)
        results = await self.both(lambda stores, place: stores.note(key, self.issued[lease][place], (name, b"noted")))
        if known is None or not lease or lease != known.lease:
            assert results == (StaleWriter, StaleWriter)
        else:
            assert results == (None, None)
            known.journal.setdefault(name, b"noted")

    async def put(
        self, key: str, step: int, status: str, keep: bool, choice: str, lifetime: float | None, names: list[str]
    ) -> None:
        known = self.alive().get(key)
        writer = self.pick(key, choice)
        expires = None if lifetime is None else self.now() + lifetime
        made = {"key": key, "owner": "", "tool": "one", "created": EPOCH, "updated": self.now()}
        before = known.task if known else StoredTask(**made, status="", expires=None)  # type: ignore[arg-type]
        after = attrs.evolve(before, version=before.version + step, status=status, expires=expires)
        kept = known.lease if known and keep else 0
        journal = [(name, b"put") for name in names]

        async def call(stores: Stores, place: int) -> bool:
            task = attrs.evolve(after, token=self.issued[kept][place])
            return await stores.put_task(task, journal, token=self.token(writer, place))

        results = await self.both(call)
        if known is None:
            assert results == (False, False)
        elif writer is not None and not (writer and writer == known.lease):
            assert results == (StaleWriter, StaleWriter)
        elif step != 1:
            assert results == (False, False)
        else:
            assert results == (True, True)
            known.task, known.lease = after, kept
            for entry in journal:
                known.journal.setdefault(*entry)

    async def claim(self, tools: set[str], lease: float, most: int) -> None:
        ready = [
            known
            for known in self.alive().values()
            if known.task.status == "working" and known.task.tool in tools
            if not known.lease or known.until <= self.time
        ]
        ready.sort(key=lambda known: known.task.created)  # in order of addition otherwise, as the dictionary is
        results = await self.both(lambda stores, _: stores.claim_tasks(tools, lease=lease, most=most))
        assert [len(claims) for claims in results] == [len(ready[:most])] * 2
        for known, one, two in zip(ready, *results, strict=False):
            assert (one.lost, two.lost) == (bool(known.lease), bool(known.lease))
            known.task = attrs.evolve(known.task, version=known.task.version + 1)
            self.begin(known, (one.task.token, two.task.token), lease)
            for place, claim in enumerate((one, two)):
                assert self.held(claim.task, place) == self.shown(known.task.key)

    async def renew(self, choices: dict[str, str], lease: float) -> None:
        leases = {key: self.pick(key, choice) or 0 for key, choice in choices.items()}
        results = await self.both(
            lambda stores, place: stores.renew(
                {key: self.issued[number][place] for key, number in leases.items()}, lease=lease
            )
        )
        expected: dict[str, StoredTask | None] = {}
        for key, number in leases.items():
            known = self.alive().get(key)
            if known is None or not number or known.lease != number:
                expected[key] = None
            else:
                known.until, known.duration = self.time + lease, lease
                expected[key] = self.shown(key)
        for place, found in enumerate(results):
            assert {key: self.held(task, place) for key, task in found.items()} == expected

    async def sleep(self, seconds: float) -> None:
        self.time += seconds

    async def reboot(self) -> None:
        await self.boot()

    async def look(self) -> None:
        """Compare all that can be read."""
        for key in KEYS:
            known, expected = self.alive().get(key), self.shown(key)
            tasks = await self.both(partial(lambda key, stores, _: stores.task(key), key))
            for place, task in enumerate(tasks):
                assert self.held(task, place) == expected
            for journal in await self.both(partial(lambda key, stores, _: stores.journal(key), key)):
                assert [*journal] == (list(known.journal.items()) if known else [])
        for found in await self.both(lambda stores, _: stores.versions(KEYS)):
            assert dict(found) == {key: known.task.version for key, known in self.alive().items()}


async def play(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        await play_in(World(Path(folder, "stores.db")), steps)


async def play_in(world: World, steps: list[Step]) -> None:
    """Take the steps, and compare everything after each of them."""
    await world.boot()
    try:
        for name, *arguments in steps:
            await getattr(world, name)(*arguments)
            await world.look()
    finally:
        await world.stack.aclose()


@given(STEPS)
@example([("add", "a", "one", "working", None, 2.0, None, []), ("reboot",), ("claim", {"one"}, 1.0, 1)])
@example(
    [
        *[("add", "a", "one", "working", None, 2.0, None, []), ("sleep", 5.0), ("reboot",), ("sleep", 1.0)],
        *[("claim", {"one"}, 1.0, 1), ("sleep", 1.0), ("claim", {"one"}, 1.0, 1)],
    ]
)
@settings(max_examples=examples(1000, daily=25))
def test_all_stores_do_as_the_model_does(steps: list[Step]) -> None:
    trio.run(play, steps)


# --- in an engine -----------------------------------------------------------------------------------------------------


class EngineWorld(World):
    """The same with two stores on an engine, whose scripts read the time of the model.

    As the engine goes on when the machines of its clients start again, leases do, too.
    """

    epoch = 4_000_000_000.0  # so far ahead that the engine, which has the real time, deletes nothing

    def __init__(self, engine: RedisServer, prefix: str) -> None:
        super().__init__(Path())
        self.make = partial(ValkeyStores, engine.url, prefix=prefix)

    async def boot(self) -> None:
        await self.stack.aclose()
        self.files = [await self.stack.enter_async_context(self.make()) for _ in range(2)]
        await self.sleep(0)

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        for stores in self.files:
            assert isinstance(stores, ValkeyStores)
            await stores._opened().ask("HSET", "{time}", "s", f"{self.now():.0f}", "us", "0")  # noqa: SLF001
            await stores.versions(["x"])  # from whose response it learns the time


def script_in_virtual_time(name: str) -> Any:
    code = valkey_client.code_of(name).replace("redis.call('TIME')", "redis.call('HMGET', '{time}', 's', 'us')")
    return valkey_client.load_glide().Script(code)


NUMBERS = itertools.count(1)


@pytest.mark.redis
@given(STEPS)
@example([("add", "a", "one", "working", None, 2.0, None, []), ("reboot",), ("claim", {"one"}, 1.0, 1)])
@settings(max_examples=examples(1000, daily=25))
def test_stores_in_an_engine_do_as_the_model_does(engine: RedisServer, steps: list[Step]) -> None:
    async def play_in_engine() -> None:
        engine.ask("hset", "{time}", "s", "4000000000", "us", "0")
        await play_in(EngineWorld(engine, f"machine-{next(NUMBERS)}"), steps)

    scripts = functools.cache(script_in_virtual_time)
    with mock.patch.object(valkey_client, "_script", scripts):
        trio.run(play_in_engine)
