"""`ValkeyStores`: what it keeps in an engine and for how long, and what happens while engine or data is away."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.redis_server import RedisServer, free_port, redis_server
from tests.tcp_faults import CuttingProxy
from tests.waiting import eventually
from trio_mcp import StoredEvent
from trio_mcp.stores import (
    Changed,
    StaleWriter,
    StoreBusy,
    StoredSession,
    StoredTask,
    StoreError,
    StoreFull,
    Stores,
    ValkeyStores,
)
from trio_mcp.stores.event_store import EventsLost
from trio_mcp.testing import check_stores
from trio_mcp.testing.stores.check import STORE_RULES
from trio_mcp.testing.stores.rule import until

pytestmark = pytest.mark.redis

NET = 60
"""Seconds after which a test that hangs fails."""


def task(key: str, **columns: Any) -> StoredTask:
    usual = {"owner": "", "tool": "tool", "status": "working", "created": 1.0, "updated": 1.0, "expires": None}
    return StoredTask(key=key, **{**usual, **columns})


@contextlib.asynccontextmanager
async def two(engine: RedisServer, prefix: str, **options: Any) -> AsyncIterator[tuple[ValkeyStores, ValkeyStores]]:
    async with (
        ValkeyStores(engine.url, prefix=prefix, **options) as one,
        ValkeyStores(engine.url, prefix=prefix, **options) as other,
    ):
        yield one, other


async def test_stores_in_an_engine_keep_every_rule(engine: RedisServer, prefix: str) -> None:
    numbers = itertools.count()
    report = await check_stores(lambda: two(engine, f"{prefix}-{next(numbers)}"))
    assert set(report.kept) == set(STORE_RULES)


async def test_stores_in_a_cluster_keep_every_rule(prefix: str) -> None:
    """All keys of a prefix have one hash tag, so that one node has them."""
    port, numbers = free_port(), itertools.count()
    with redis_server("--port", f"{port}", "--cluster-enabled", "yes", "--cluster-port", f"{free_port()}") as node:
        node.ask("cluster", "addslotsrange", "0", "16383")
        await eventually(lambda: "cluster_state:ok" in node.ask("cluster", "info"))
        node.url = f"valkey://127.0.0.1:{port}"
        report = await check_stores(lambda: two(node, f"{prefix}-{next(numbers)}"))
        assert set(report.kept) == set(STORE_RULES)


async def test_a_broken_connection_to_a_cluster_repeats_no_call(prefix: str) -> None:
    port = free_port()
    with redis_server("--port", f"{port}", "--cluster-enabled", "yes", "--cluster-port", f"{free_port()}") as node:
        node.ask("cluster", "addslotsrange", "0", "16383")
        async with CuttingProxy.to(f"{node.folder}/socket") as proxy:
            node.ask("config", "set", "cluster-announce-port", f"{proxy.port}")
            await eventually(lambda: "cluster_state:ok" in node.ask("cluster", "info"))
            async with ValkeyStores(f"valkey://127.0.0.1:{proxy.port}", prefix=prefix) as stores:
                await repeats_nothing(stores, proxy)


@functools.cache
def calls() -> dict[str, Callable[[Stores], Any]]:
    """Return a call of each method that writes, and of some that read."""
    return {
        "add_task": lambda stores: stores.add_task(task(f"{time.monotonic_ns()}"), [("a", b"1")], lease=60),
        "task": lambda stores: stores.task("a"),
        "renew": lambda stores: stores.renew({"a": "x"}, lease=60),
        "announce": lambda stores: stores.announce(["a"]),
        "changed": lambda stores: stores.changed(0),
        "put_state": lambda stores: stores.put_state("ann", f"{time.monotonic_ns()}", b"", tag=None, expires=None),
        "take": lambda stores: stores.take("a", rate=1, burst=1),
        "append": lambda stores: stores.sessions.append("a", [StoredEvent(0, 0, b"x")]),
    }


# --- what it keeps, and for how long ----------------------------------------------------------------------------------


async def test_what_has_an_end_leaves_nothing_behind(engine: RedisServer, prefix: str) -> None:
    """Whatever is deleted by its owner, by a sweep, or by the engine itself: one key is left."""
    async with ValkeyStores(engine.url, prefix=prefix, max_age=0.2) as stores:
        await stores.own("name")
        soon = stores.now() + 0.2
        for number in range(40):
            await stores.add_task(task(f"{number}", expires=soon), [("a", b"1")], lease=60 if number % 2 else None)
            await stores.sessions.append(f"{number}", [StoredEvent(1, 1, b"x")])
            await stores.put_state("ann", f"{number}", b"x", tag=None, expires=soon)
            await stores.remember(f"{number}", seconds=0.2)
            await stores.take(f"{number}", rate=10, burst=1)
        await stores.put_state("bob", "cart", b"x", tag=None, expires=None)
        await stores.forget_states("bob")
        await until(stores.now, stores.now() + 0.3)
        for _ in range(2):  # each write sweeps a slice of the tasks
            await stores.put_task(task("none"))
    assert engine.keys(f"{{{prefix}}}:*") == {f"{{{prefix}}}:about"}


async def test_all_keys_of_tasks_and_topics_have_an_end_without_any_process(engine: RedisServer, prefix: str) -> None:
    """The last process may leave forever: the engine deletes what has expired, a while later."""
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        soon = stores.now() + 100
        await stores.add_task(task("a", expires=soon), [("a", b"1")])
        leased = await stores.add_task(task("b", expires=soon, tool="other"), lease=60)
        await stores.put_task(attrs.evolve(leased, version=2, expires=soon + 100))
        await stores.announce(["topic"])
        await stores.sessions.append("a", [StoredEvent(1, 1, b"x")])
        keys = engine.keys(f"{{{prefix}}}:*") - {f"{{{prefix}}}:about"}
        assert len(keys) == 9, keys
        assert {key for key in keys if int(engine.ask("pttl", key)) < 0} == set()
        await stores.add_task(task("c"))
        kept = {
            key.rsplit(":", 1)[1] for key in keys | engine.keys(f"{{{prefix}}}:*") if engine.ask("pttl", key) == "-1"
        }
        assert kept == {"about", "tasks", "tool", "c"}  # `ready:tool` has a task without an end now


async def test_the_oldest_events_make_room_for_others(engine: RedisServer, prefix: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix, max_events=10) as stores:
        for number in range(1, 31):
            event = StoredEvent(1, (number + 1) // 2, b"%d" % number)
            await stores.sessions.append("a" if number % 2 else "b", [event])
        with pytest.raises(EventsLost):
            await stores.sessions.after("a", 1, 9)
        assert [event.number for event in await stores.sessions.after("a", 1, 10)] == [11, 12, 13, 14, 15]
        for number in range(1, 21):
            await stores.sessions.append("c", [StoredEvent(number, 1, b"")])
        for session in "ab":
            with pytest.raises(EventsLost):
                await stores.sessions.after(session, 1, 15)
        assert engine.ask("--scan", "--pattern", f"{{{prefix}}}:*:events:*").splitlines() == [
            f"{{{prefix}}}:{engine.ask('hget', f'{{{prefix}}}:about', 'epoch')}:events:c"
        ]


async def test_large_events_are_read_in_parts(engine: RedisServer, prefix: str) -> None:
    """A page of 100 messages of the full size would not fit in memory."""
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        sizes = [4_000_000, 10, 600_000, 600_000]
        await stores.sessions.append("a", [StoredEvent(1, number, b"x" * size) for number, size in enumerate(sizes, 1)])
        pages, last = [], 0
        while page := await stores.sessions.after("a", 1, last):
            pages.append([len(event.data) for event in page])
            last = page[-1].number
        assert pages == [[4_000_000], [10, 600_000], [600_000]]


async def test_topics_are_bounded_by_number(engine: RedisServer, prefix: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        await stores.announce([f"{number}" for number in range(10_005)])
        assert len((await stores.changed(5)).topics) == 10_000
        assert [(await stores.changed(after)).complete for after in (4, 5)] == [False, True]


async def test_topics_that_the_engine_has_deleted_are_missed_by_those_who_were_behind(
    engine: RedisServer, prefix: str
) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        await stores.announce(["a", "b"])
        (topics,) = engine.keys(f"{{{prefix}}}:*:topics")
        engine.ask("del", topics)
        assert not (await stores.changed(1)).complete
        assert (await stores.changed(2)).complete
        await stores.announce(["c"])
        assert not (await stores.changed(1)).complete
        assert (await stores.changed(2)).topics == {"c": 3}


async def test_the_clocks_of_stores_in_a_process_are_the_engine_s(engine: RedisServer, prefix: str) -> None:
    async with two(engine, prefix) as (one, other):
        assert one.clock() <= other.clock() <= one.now()
        before = time.time()
        assert before - 0.5 < one.now() < time.time() + 0.5  # the engine is on this machine


# --- wake-ups ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def of_another_process(stores: ValkeyStores) -> Iterator[None]:
    """Give a store what a store in another process would have, so that its wake-ups pass through the engine."""
    stores._shared = type(stores._shared)()  # noqa: SLF001
    yield


async def test_a_wake_up_reaches_the_listeners_of_its_topic_in_other_processes(
    engine: RedisServer, prefix: str
) -> None:
    async with two(engine, prefix) as (one, other), trio.open_nursery() as nursery:
        with of_another_process(one):
            nursery.start_soon(one.hear)
            with trio.fail_after(NET), other.listen("a", look=NET) as heard, other.listen("b", look=NET) as unheard:
                await trio.testing.wait_all_tasks_blocked()
                one.wake("a")
                await heard.woken()
                with trio.move_on_after(0.05) as scope:
                    await unheard.woken()
                assert scope.cancelled_caught
                for number in range(200):  # more than one message has: all are woken
                    one.wake(f"{number}")
                await unheard.woken()
            nursery.cancel_scope.cancel()


async def test_many_wake_ups_are_few_messages(engine: RedisServer, prefix: str) -> None:
    """The client keeps, without a bound, what a process that is busy has not heard yet."""
    messages: list[bytes] = []
    async with two(engine, prefix) as (one, other), trio.open_nursery() as nursery:
        other._opened().heard = messages.append  # noqa: SLF001
        nursery.start_soon(one.hear)
        began = time.monotonic()
        for number in range(1000):
            one.wake(f"{number % 50}")
            if number % 10 == 0:
                await trio.lowlevel.checkpoint()
        everything = {f"{each}" for each in range(50)}
        await eventually(lambda: {topic for message in messages for topic in json.loads(message)[1]} == everything)
        assert len(messages) <= 2 + (time.monotonic() - began) / 0.01
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("message", ["", "x", "[]", "{}", "[1, 2, 3]", "[" * 50_000, '["x", [1, null, {}]]'])
async def test_what_others_publish_does_no_harm(engine: RedisServer, prefix: str, message: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        with trio.fail_after(NET), stores.listen("a", look=NET) as listener:
            engine.ask("publish", f"{{{prefix}}}:wake", message)
            engine.ask("publish", f"{{{prefix}}}:wake", '["x", ["a"]]')
            await listener.woken()


# --- the engine is away -----------------------------------------------------------------------------------------------


async def back(stores: ValkeyStores, after: int = 0) -> Changed:
    """Return what has changed, once the engine is back."""

    async def look() -> Changed | None:
        try:
            return await stores.changed(after)
        except StoreError:
            return None

    return await eventually(look)


async def test_calls_that_are_cancelled_leave_nothing_wrong(engine: RedisServer, prefix: str) -> None:
    """A state that was written by a call that was cancelled has been written whole, and no later call is confused."""
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        for turn in range(300):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    for call in calls().values():
                        nursery.start_soon(call, stores)
                    if turn % 3:
                        await trio.lowlevel.checkpoint()
                    if turn % 3 == 2:
                        await trio.sleep(0.0005)
                    scope.cancel()
        newest = (await stores.changed(0)).newest
        assert await stores.announce(["x"]) == newest + 1
        added = await stores.add_task(task("last"), lease=60)
        assert await stores.task("last") == added


async def test_a_broken_connection_repeats_no_call_and_is_opened_again(engine: RedisServer, prefix: str) -> None:
    async with (
        CuttingProxy.to(f"{engine.folder}/socket") as proxy,
        ValkeyStores(f"valkey://127.0.0.1:{proxy.port}", prefix=prefix) as stores,
    ):
        await repeats_nothing(stores, proxy)


async def repeats_nothing(stores: ValkeyStores, proxy: CuttingProxy) -> None:
    await stores.announce(["a"])  # the engine has got the script
    for turn in range(2, 7):
        proxy.cutting = True
        with pytest.raises(StoreError, match="closed the connection: the outcome of the call is unknown") as caught:
            await stores.announce(["a"])
        assert not isinstance(caught.value, StoreBusy)
        proxy.cutting = False
        assert (await back(stores)).newest == turn


async def test_an_engine_that_does_not_respond_fails_one_call_late_and_others_at_once(prefix: str) -> None:
    with redis_server() as engine:
        async with ValkeyStores(engine.url, prefix=prefix, timeout=0.5) as stores:
            # A supervisor would kill a process that is silent then, but none holds the engine.
            stores.on_busy = lambda seconds: pytest.fail("a process is blamed")
            await stores.announce(["a"])  # the engine has got the script
            with engine.stopped():
                with pytest.raises(
                    StoreError, match=r"did not respond within 0\.5 s: the outcome of the call is unknown"
                ):
                    await stores.announce(["a"])
                began, failed = time.monotonic(), 0
                while time.monotonic() < began + 1:
                    async with trio.open_nursery() as nursery:

                        async def fail() -> None:
                            nonlocal failed
                            with pytest.raises(StoreBusy, match=r"did not respond .* the call was not made"):
                                await stores.announce(["a"])
                            failed += 1

                        for _ in range(20):
                            nursery.start_soon(fail)
                    await trio.sleep(0.01)
                assert failed > 100  # a look every third of a second, and no wait otherwise
            with trio.fail_after(NET), stores.listen("a", look=NET) as listener:
                found = await back(stores)
                assert found.newest == 2  # the engine had got one call more, late
                await listener.woken()  # wake-ups may have been lost


async def test_an_engine_that_was_killed_has_what_it_had_acknowledged(prefix: str) -> None:
    with redis_server("--appendonly", "yes") as engine:
        async with ValkeyStores(engine.url, prefix=prefix, timeout=0.5) as stores:
            held = await stores.add_task(task("a", body=b"x" * 1000), [("a", b"1")], lease=600)
            newest = await stores.announce(["a"])
            engine.kill()
            with pytest.raises(StoreError):
                await stores.announce(["a"])
            await trio.to_thread.run_sync(engine.start)
            assert (await back(stores)).newest == newest
            assert (await stores.task("a"), await stores.journal("a")) == (held, (("a", b"1"),))
            assert await stores.renew({"a": held.token}, lease=60) == {"a": held}


# --- the data is away -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [("flushall",), ("del", "{%s}:about"), ("hset", "{%s}:about", "epoch", "another")])
async def test_a_loss_is_said_once_and_the_store_begins_anew(
    engine: RedisServer, prefix: str, how: tuple[str, ...]
) -> None:
    async with two(engine, prefix) as (one, other):
        await one.own("name")
        held = await one.add_task(task("a"), lease=60)
        await one.put_state("ann", "cart", b"1", tag=None, expires=None)
        seen = await one.announce(["a", "b"])
        engine.ask(*(word % prefix if "%" in word else word for word in how))
        with pytest.raises(StoreError, match="has lost all that was kept there") as caught:
            await one.announce(["x"])
        assert not isinstance(caught.value, StoreBusy)
        # The other one is late: as many changes have been announced as it had seen.
        for number in range(seen + 1):
            await one.announce([f"{number}"])
        with pytest.raises(StoreError, match="has lost all"):
            await other.task("a")
        for stores in (one, other):
            assert await stores.task("a") is None
            assert await stores.renew({"a": held.token}, lease=60) == {"a": None}
            assert not await stores.put_task(attrs.evolve(held, version=2), token=held.token)
            with pytest.raises(StaleWriter):
                await stores.note("a", held.token, ("x", b""))
            assert await stores.state("ann", "cart") is None
            found = await stores.changed(seen)
            assert (found.complete, len(found.topics)) == (False, seen + 1)
            assert (await stores.changed(found.newest)).complete
            await stores.own("name")
            with pytest.raises(StoreError, match="belongs to the server 'name'"):
                await stores.own("another")


async def test_a_loss_after_which_another_server_was_first_is_refused_each_time(
    engine: RedisServer, prefix: str
) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        await stores.own("name")
        engine.ask("del", f"{{{prefix}}}:about")
        async with ValkeyStores(engine.url, prefix=prefix) as others:
            await others.own("another")
        for _ in range(2):
            with pytest.raises(StoreError, match="belongs to the server 'another', not to 'name'"):
                await stores.announce(["x"])


async def test_numbers_of_changes_that_go_back_are_a_gap(engine: RedisServer, prefix: str) -> None:
    """A replica that takes over may lack the last changes, and gives their numbers to others."""
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        seen = await stores.announce(["a", "b", "c"])
        engine.ask("hset", f"{{{prefix}}}:about", "newest", "1")
        found = await stores.changed(seen)
        assert found.newest > seen
        assert not found.complete
        assert await stores.announce(["d"]) == found.newest + 1
        assert (await stores.changed(found.newest)).topics == {"d": found.newest + 1}


# --- another engine takes over ----------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def switched(
    prefix: str, port: int
) -> AsyncIterator[tuple[ValkeyStores, RedisServer, RedisServer, Callable[[], None]]]:
    """Yield stores, the engine behind their address, one that may take over, and a function that makes it do so."""
    with redis_server("--port", f"{port}") as primary, redis_server() as second:
        async with CuttingProxy.to(f"{primary.folder}/socket") as proxy:

            def take_over() -> None:
                primary.kill()
                proxy.path = f"{second.folder}/socket"

            async with ValkeyStores(f"valkey://127.0.0.1:{proxy.port}", prefix=prefix, timeout=2) as stores:
                yield stores, primary, second, take_over


def offset(engine: RedisServer, role: str) -> int:
    """Return up to where an engine has the stream of replication."""
    (number,) = re.findall(rf"^{role}_repl_offset:(\d+)", engine.ask("info", "replication"), re.MULTILINE)
    return int(number)


async def test_a_replica_that_takes_over_lacks_at_most_the_last_writes(prefix: str) -> None:
    port = free_port()
    async with switched(prefix, port) as (stores, primary, replica, take_over):
        await stores.own("name")
        replica.ask("replicaof", "127.0.0.1", f"{port}")
        await eventually(lambda: "master_link_status:up" in replica.ask("info", "replication"))
        held = await stores.add_task(task("a", body=b"x" * 1000), [("a", b"1")], lease=600)
        member = await stores.sessions.join(lease=600)
        session = StoredSession("s", b"d", {"a": b"1"}, stores.now() + 600)
        await stores.sessions.add(session, limit=9)
        await stores.sessions.open("s", member.token, 1, ["1"])
        await stores.sessions.append("s", [StoredEvent(1, 0, b"x")], member.token)
        kept = await stores.announce(["a", "b"])
        # WAIT is about the writes of its own connection alone.
        written = offset(primary, "master")
        await eventually(lambda: offset(replica, "slave") >= written)
        with replica.stopped():
            primary.ask("client", "kill", "type", "replica")  # so that nothing more is on the way to it
            lost = await stores.add_task(task("lost"), lease=600)
            await stores.sessions.append("s", [StoredEvent(1, 0, b"lost")], member.token)
            seen = await stores.announce(["c"])
            take_over()
            with pytest.raises(StoreError):
                await stores.announce(["x"])
        replica.ask("replicaof", "no", "one")
        assert kept < seen
        found = await back(stores, seen)
        assert (found.newest > seen, found.complete) == (True, False)
        assert (await stores.task("a"), await stores.journal("a")) == (held, (("a", b"1"),))
        assert await stores.renew({"a": held.token, "lost": lost.token}, lease=60) == {"a": held, "lost": None}
        assert await stores.sessions.session("s") == session
        assert [event.data for event in await stores.sessions.after("s", 1, 0)] == [b"x"]
        assert await stores.sessions.append("s", [StoredEvent(1, 0, b"y")], member.token, ended=[1]) == [2]
        await stores.own("name")


async def test_an_empty_engine_that_takes_over_is_a_loss_of_everything(prefix: str) -> None:
    async with switched(prefix, free_port()) as (stores, _, empty, take_over):
        await stores.own("name")
        held = await stores.add_task(task("a"), lease=600)
        member = await stores.sessions.join(lease=600)
        seen = await stores.announce(["a"])
        take_over()

        async def look() -> bool:
            try:
                await stores.task("a")
            except StoreError as exc:
                return "has lost all that was kept there" in str(exc)
            pytest.fail("the loss was not said")

        await eventually(look)
        assert await stores.task("a") is None
        assert await stores.renew({"a": held.token}, lease=60) == {"a": None}
        with pytest.raises(StaleWriter):
            await stores.sessions.stay(member.token, lease=60)
        assert not (await stores.changed(seen)).complete
        assert empty.ask("hget", f"{{{prefix}}}:about", "server") == "name"


# --- messages of the full size ----------------------------------------------------------------------------------------


async def test_the_largest_messages_of_a_server_pass_through_mailboxes_and_streams(
    engine: RedisServer, prefix: str
) -> None:
    data = b"x" * 4 * 1024 * 1024  # `max_message_size` of a server over HTTP
    async with two(engine, prefix) as (one, other):
        member, second = await one.sessions.join(lease=60), await other.sessions.join(lease=60)
        await one.sessions.add(StoredSession("s", b"", {}, one.now() + 60), limit=9)
        await one.sessions.open("s", member.token, 1, ["1"])
        await other.sessions.carry("s", second.token, 1)
        assert await other.sessions.send("s", data, request="1")
        with pytest.raises(StoreFull, match="messages that wait for the process 1 have reached the limit"):
            await other.sessions.send("s", b"x", request="1")
        (letter,) = await one.sessions.letters(member.token, 1)  # the first one says that another carries the stream
        assert (letter.kind, letter.data) == ("message", data)
        assert await one.sessions.append("s", [StoredEvent(1, 0, data)] * 2, member.token) == [1, 2]
        (event,) = await other.sessions.after("s", 1, 1)
        assert event.data == data
        await one.sessions.stay(member.token, lease=60, read=letter.number)
        assert await other.sessions.send("s", data, request="1")
