"""`RateLimit` in several processes: one bucket in their stores, and each process's own while these can't be used."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Hashable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trio_mcp import Client, Context, McpError, Server
from trio_mcp.middleware import RateLimit
from trio_mcp.stores import MemoryStores, SqliteStores, StoreError, Stores


def limited(stores: Stores | None, *limits: RateLimit, name: str = "x") -> Server:
    server = Server(name, stores=stores, middleware=limits)
    server.add_tool(lambda: "done", name="work")
    return server


def by(who: Hashable) -> Callable[[Context[Any]], Hashable]:
    return lambda context: who if context.method == "tools/call" else object()


def limit(who: Hashable = "ann", rate: float = 1, burst: int = 3, **options: Any) -> RateLimit:
    return RateLimit(rate, burst, key=by(who), **options)


async def passed(*clients: Client, calls: int = 4) -> int:
    """Make calls, in turns, and return how many were not refused."""
    waits = []
    for number in range(calls):
        try:
            await clients[number % len(clients)].call_tool("work")
        except McpError as exc:
            waits.append(exc.data["retryAfter"])
    assert all(wait > 0 for wait in waits)
    return calls - len(waits)


@contextlib.asynccontextmanager
async def two(*servers: Server) -> AsyncIterator[tuple[Client, Client]]:
    async with Client(servers[0]) as one, Client(servers[1]) as other:
        yield one, other


async def test_a_caller_has_one_bucket_in_all_processes(autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    async with two(limited(stores, limit()), limited(stores, limit())) as clients:
        assert await passed(*clients, calls=10) == 3
        await trio.sleep(1)
        assert await passed(*clients, calls=10) == 1
        await trio.sleep(1000)
        assert await passed(*clients, calls=10) == 3


async def test_a_caller_has_one_bucket_in_a_file(tmp_path: Path) -> None:
    servers = [limited(SqliteStores(tmp_path / "x.db"), limit(rate=0.01)) for _ in range(2)]
    async with two(*servers) as clients:
        assert await passed(*clients, calls=10) == 3


@pytest.mark.parametrize(
    ("ours", "theirs", "total"),
    [
        ("ann", "ann", 3),
        ("ann", "bob", 6),
        (None, None, 3),
        (("id", "ann", None), ("id", "ann", None), 3),
        (("id", b"ann", 1, 0.5, True), ("id", b"ann", 1, 0.5, True), 3),
        (1, "1", 6),
        (frozenset({"ann"}), frozenset({"ann"}), 6),  # its members have no order
        (("id", object()), ("id", object()), 6),
    ],
)
async def test_callers_are_the_same_if_their_texts_are(
    ours: Hashable, theirs: Hashable, total: int, autojump_clock: MockClock
) -> None:
    stores = MemoryStores()
    async with two(limited(stores, limit(ours)), limited(stores, limit(theirs))) as clients:
        assert await passed(*clients, calls=20) == total


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [({}, {"rate": 1.5}, 6), ({"name": "a"}, {"name": "a", "rate": 1.5}, 3), ({"name": "a"}, {"name": "b"}, 6)],
)
async def test_limits_share_their_buckets_by_name(one: Any, other: Any, total: int, autojump_clock: MockClock) -> None:
    stores = MemoryStores()
    async with two(limited(stores, limit(**one)), limited(stores, limit(**other))) as clients:
        assert await passed(*clients, calls=20) == total


async def test_a_mounted_server_has_a_bucket_of_its_own(autojump_clock: MockClock) -> None:
    outer, inner = limited(MemoryStores(), limit()), limited(None, limit(), name="inner")
    outer.mount(inner, prefix="inner")
    async with Client(outer) as client:
        for _ in range(2):
            await client.call_tool("inner__work")
        assert await passed(client, calls=2) == 1  # the outer limit sees all calls


class Faulty(MemoryStores):
    """Stores whose buckets fail, or answer too late."""

    fault: Callable[[], Any] | None = None
    asked = 0

    async def take(self, bucket: str, *, rate: float, burst: int) -> float:
        self.asked += 1
        if self.fault is not None:
            await self.fault()
        return await super().take(bucket, rate=rate, burst=burst)


async def fail() -> None:
    await trio.lowlevel.checkpoint()
    raise StoreError("x.db is damaged")


@pytest.mark.parametrize(
    ("fault", "text"), [(fail, "x.db is damaged"), (trio.sleep_forever, "they take longer than 1 s")]
)
async def test_without_its_stores_each_process_counts_for_itself(
    fault: Any, text: str, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    stores = Faulty()
    async with two(limited(stores, limit(rate=0.001)), limited(stores, limit(rate=0.001))) as clients:
        assert await passed(*clients, calls=2) == 2
        stores.fault, begun = fault, trio.current_time()
        # Of 3 tokens each process had given one: each still has two.
        assert await passed(*clients, calls=20) == 4
        assert trio.current_time() - begun <= 2  # only the first call of each process has waited
        assert caplog.text.count("a rate limit counts in this process alone, as its stores can't be used") == 2
        assert text in caplog.text
        stores.fault = None
        await trio.sleep(1000)
        assert await passed(*clients, calls=20) == 2  # the stores count again: one token came back, and one was left


async def test_the_warning_comes_once_a_minute(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    stores = Faulty()
    stores.fault = fail
    async with Client(limited(stores, limit(rate=10))) as client:
        for _ in range(121):
            await client.call_tool("work")
            await trio.sleep(1)
    assert caplog.text.count("counts in this process alone") == 3


async def test_a_flood_of_refused_requests_costs_the_stores_nothing(autojump_clock: MockClock) -> None:
    stores = Faulty()
    async with two(limited(stores, limit()), limited(stores, limit())) as clients:
        assert await passed(clients[0], calls=3) == 3
        stores.asked = 0
        assert await passed(clients[1], calls=50) == 0
        assert stores.asked == 1  # the other process learns of it once
        await trio.sleep(1)
        assert await passed(*clients, calls=50) == 1
