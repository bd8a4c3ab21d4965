"""Stores: their methods, their blocks, and their listeners."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect, not_entered
from tests.peer import settle
from tests.redis_server import redis_server
from tests.waiting import eventually
from trio_mcp.stores import (
    MemoryStores,
    SqliteStores,
    StoredTask,
    Stores,
    TopicListener,
    TopicListeners,
    ValkeyStores,
)
from trio_mcp.testing import check_stores

LONG = 1e6
"""Seconds of a lease that is not lost."""


def task(key: str, **columns: Any) -> StoredTask:
    usual = {"owner": "", "tool": "tool", "status": "working", "created": 1.0, "updated": 1.0, "expires": None}
    return StoredTask(key=key, **{**usual, **columns})


@contextlib.asynccontextmanager
async def in_memory() -> AsyncIterator[Stores]:
    async with MemoryStores() as stores:
        yield stores


@contextlib.asynccontextmanager
async def in_a_file() -> AsyncIterator[Stores]:
    with TemporaryDirectory() as folder:
        async with SqliteStores(Path(folder, "stores.db")) as stores:
            yield stores


@contextlib.asynccontextmanager
async def in_an_engine() -> AsyncIterator[Stores]:
    with redis_server() as engine:
        async with ValkeyStores(engine.url, prefix="desk") as stores:
            yield stores


WAYS: dict[str, dict[str, Callable[[Stores, StoredTask], Awaitable[Any]]]] = {
    "own": {"a name": lambda stores, _: stores.own("name"), "again": lambda stores, _: stores.own("name")},
    "add_task": {
        "a ready one": lambda stores, _: stores.add_task(task("new")),
        "a running one": lambda stores, _: stores.add_task(task("running"), [("x", b"")], lease=1, limit=9),
    },
    "task": {
        "a known key": lambda stores, held: stores.task(held.key),
        "an unknown key": lambda stores, _: stores.task("unknown"),
    },
    "journal": {
        "a known key": lambda stores, held: stores.journal(held.key),
        "an unknown key": lambda stores, _: stores.journal("unknown"),
    },
    "note": {"an entry, twice": lambda stores, held: stores.note(held.key, held.token, ("x", b""))},
    "put_task": {
        "the next version": lambda stores, held: stores.put_task(attrs.evolve(held, version=2)),
        "an unknown one": lambda stores, _: stores.put_task(task("unknown")),
    },
    "claim_tasks": {
        "nothing": lambda stores, _: stores.claim_tasks(["other"], lease=LONG, most=1),
        "a task": lambda stores, _: stores.claim_tasks(["tool"], lease=LONG, most=1),
    },
    "renew": {
        "nothing": lambda stores, _: stores.renew({}, lease=LONG),
        "a lease": lambda stores, held: stores.renew({held.key: held.token}, lease=LONG),
    },
    "versions": {
        "nothing": lambda stores, _: stores.versions([]),
        "a key": lambda stores, held: stores.versions([held.key]),
    },
    "announce": {
        "nothing": lambda stores, _: stores.announce([]),
        "a topic": lambda stores, _: stores.announce(["topic"]),
    },
    "changed": {"nothing": lambda stores, _: stores.changed(9), "all": lambda stores, _: stores.changed(0)},
    "state": {
        "none": lambda stores, _: stores.state("ann", "cart"),
        "one": lambda stores, _: stores.state("bob", "cart"),
    },
    "put_state": {
        "a new one": lambda stores, _: stores.put_state("ann", "new", b"", tag=None, expires=None),
        "a wrong tag": lambda stores, _: stores.put_state("bob", "cart", b"", tag="x", expires=None),
    },
    "forget_states": {
        "none": lambda stores, _: stores.forget_states("unknown"),
        "some": lambda stores, _: stores.forget_states("bob"),
    },
    "remember": {
        "a new key": lambda stores, _: stores.remember("key", seconds=LONG),
        "a known key": lambda stores, _: stores.remember("key", seconds=LONG),
    },
}
"""What is called with stores that have a task that is held, and one that is ready."""

EFFECTS: dict[str, Callable[[Stores, int], Awaitable[object]]] = {
    "add_task": lambda stores, number: stores.add_task(task(f"added {number}")),
    "note": lambda stores, number: stores.note("held", HELD[stores].token, (f"{number}", b"")),
    "put_task": lambda stores, number: stores.put_task(attrs.evolve(HELD[stores], version=number + 1)),
    "claim_tasks": lambda stores, _: stores.claim_tasks(["many"], lease=LONG, most=1),
    "announce": lambda stores, _: stores.announce(["topic"]),
    "put_state": lambda stores, number: stores.put_state(f"put {number}", "cart", b"", tag=None, expires=None),
    "forget_states": lambda stores, number: stores.forget_states(f"user {number}"),
}
"""The calls that count for what `count` shows, once each."""

HELD: dict[Stores, StoredTask] = {}
"""The task that is held in each of the stores."""

MOST = 60
"""More than there are steps in a call."""


async def count(stores: Stores) -> int:
    """Return how many changes there were."""
    keys = [f"{what} {number}" for what in ("added", "ready") for number in range(MOST)]
    found = await stores.versions([*keys, "held"])
    total = sum(key.startswith("added") for key in found) + sum(version - 1 for version in found.values())
    total += len(await stores.journal("held"))
    total += (await stores.changed(0)).newest
    for number in range(1, MOST):
        total += await stores.state(f"put {number}", "cart") is not None
        total += await stores.state(f"user {number}", "cart") is None
    return total


def of_stores(kind: Any, opened: Callable[[], contextlib.AbstractAsyncContextManager[Stores]]) -> None:
    def calls(name: str) -> None:
        @call(getattr(kind, name), ", ".join(WAYS[name]))
        async def ways(check: Check) -> None:
            async with opened() as stores:
                held = await stores.add_task(task("held", tool="other"), lease=LONG)
                await stores.add_task(task("ready"))
                await stores.put_state("bob", "cart", b"", tag=None, expires=None)
                for way in WAYS[name].values():
                    await check(way(stores, held))

    def effects(name: str) -> None:
        @effect(getattr(kind, name), "done or cancelled")
        async def done() -> None:
            async with opened() as stores:
                HELD[stores] = await stores.add_task(task("held"), lease=LONG)
                for number in range(1, MOST):
                    await stores.add_task(task(f"ready {number}", tool="many"))
                    await stores.put_state(f"user {number}", "cart", b"", tag=None, expires=None)
                await all_or_nothing(partial(EFFECTS[name], stores), lambda: count(stores))

    for name in WAYS:
        calls(name)
    for name in EFFECTS:
        effects(name)

    @effect(kind.own, "not noted")
    async def not_owned() -> None:
        async with opened() as stores:
            await cancelled_before(stores.own("other"))
            await stores.own("name")

    @effect(kind.remember, "not remembered")
    async def not_remembered() -> None:
        async with opened() as stores:
            await cancelled_before(stores.remember("key", seconds=LONG))
            assert await stores.remember("key", seconds=LONG)

    @effect(kind.renew, "not renewed")
    async def not_renewed() -> None:
        async with opened() as stores:
            held = await stores.add_task(task("held"), lease=1e-9)
            await cancelled_before(stores.renew({"held": held.token}, lease=LONG))
            assert [claim.lost for claim in await stores.claim_tasks(["tool"], lease=LONG, most=1)] == [True]

    @call(kind.__aenter__, "opened, and once more")
    @call(kind.__aexit__, "opened, and once more")
    async def block(check: Check) -> None:
        async with opened() as stores:
            if check.function is kind.__aenter__:
                async with check.block(stores):
                    pass
                return
            await stores.__aenter__()
            await check(stores.__aexit__(None, None, None))


of_stores(MemoryStores, in_memory)
of_stores(SqliteStores, in_a_file)
of_stores(ValkeyStores, in_an_engine)


@effect(ValkeyStores.__aenter__, "no connection is made, and no key")
async def no_connection() -> None:
    with redis_server() as engine:
        await not_entered(ValkeyStores(engine.url, prefix="desk"))
        await settle()
        assert not engine.keys()
        assert re.search(r"connected_clients:1\b", engine.ask("info", "clients"))  # the one that asks


@effect(ValkeyStores.__aexit__, "a cancelled exit closes the connection")
async def disconnected() -> None:
    with redis_server() as engine:
        stores = ValkeyStores(engine.url, prefix="desk")
        await stores.__aenter__()
        await stores.add_task(task("a"))
        await cancelled_before(stores.__aexit__(None, None, None))
        await eventually(lambda: re.search(r"connected_clients:1\b", engine.ask("info", "clients")))


@effect(SqliteStores.__aenter__, "no file is made")
async def no_file() -> None:
    with TemporaryDirectory() as folder:
        await not_entered(SqliteStores(Path(folder, "stores.db")))
        await settle()
        assert not os.listdir(folder)


@effect(SqliteStores.__aexit__, "a cancelled exit closes the file")
async def closed() -> None:
    with TemporaryDirectory() as folder:
        stores = SqliteStores(Path(folder, "stores.db"))
        await stores.__aenter__()
        await stores.add_task(task("a"))
        await cancelled_before(stores.__aexit__(None, None, None))
        assert os.listdir(folder) == ["stores.db"]  # SQLite's other files are gone


@call(TopicListener.woken, "woken before, and while it waits")
async def woken(check: Check) -> None:
    listeners = TopicListeners()
    with listeners.listen("topic", lambda: LONG) as listener:
        listeners.wake("topic")
        await settle()
        await check(listener.woken())
    with listeners.listen("topic", lambda: 0.001) as listener:
        await check(listener.woken())


@effect(TopicListener.woken, "a wake-up is kept")
async def kept() -> None:
    listeners = TopicListeners()
    with listeners.listen("topic", lambda: LONG) as listener:
        listeners.wake("topic")
        await cancelled_before(listener.woken())
        await listener.woken()


@call(check_stores, "one rule, and none")
async def checked(check: Check) -> None:
    @contextlib.asynccontextmanager
    async def pair() -> AsyncIterator[tuple[Stores, Stores]]:
        async with in_memory() as stores:
            yield stores, stores

    await check(check_stores(pair, rules=["keys_are_unique"]))
    await check(check_stores(pair, rules=[]))
