"""`ValkeyStores.sessions`: what a session takes in the engine and how long it stays, and what happens without one."""

from __future__ import annotations

import pytest
import trio

from tests.redis_server import RedisServer, redis_server
from tests.stores.test_valkey_stores import NET, back, of_another_process, two
from tests.tcp_faults import CuttingProxy
from trio_mcp import StoredEvent
from trio_mcp.stores import (
    Letter,
    OpenStream,
    SessionStore,
    StaleWriter,
    StoredSession,
    StoreError,
    ValkeyStores,
)
from trio_mcp.stores.session_store import LETTERS
from trio_mcp.testing.stores.rule import until

pytestmark = pytest.mark.redis

KEY = "k" * 43
"""A key as long as a digest."""

EVENT = [StoredEvent(1, 0, b"x")]


async def use(sessions: SessionStore, token: str, key: str, expires: float) -> None:
    """Add a session, and do everything with it that a server does, until it is idle."""
    await sessions.add(StoredSession(key, b"d" * 300, {"client": b"c" * 200}, expires), limit=1000)
    await sessions.change(key, token, fields={"ready": b"1", "level": b"info"})
    await sessions.carry(key, token, 0)
    await sessions.open(key, token, 1, ["1"])
    await sessions.send(key, b"message", request="1")
    await sessions.append(key, EVENT, token)
    await sessions.append(key, EVENT, token, ended=[1])


async def test_nothing_of_members_and_sessions_is_left_once_they_have_gone(engine: RedisServer, prefix: str) -> None:
    """Whether a session has ended or expired, with an open stream or without; what is left is one key."""
    async with two(engine, prefix, max_age=0.2) as (one, other):
        member, second = await one.sessions.join(lease=0.0), await other.sessions.join(lease=60)
        soon = one.now() + 0.2
        for number in range(40):
            await use(one.sessions, member.token, f"{number}", soon)
            await other.sessions.carry(f"{number}", second.token, 0)
        for number in range(0, 40, 5):
            await one.sessions.open(f"{number}", member.token, 2, ["2"])
            await other.sessions.carry(f"{number}", second.token, 2)
        for number in range(1, 40, 5):
            await one.sessions.end(f"{number}")
        await until(one.now, one.now() + 0.4)
        (taken,) = await other.sessions.take_over(lease=60, most=9)
        for each in await other.sessions.open_streams(taken.token, 99):
            await other.sessions.append(each.session, [], taken.token, ended=[each.stream])
        for _ in range(2):  # each sweeps a slice
            await other.sessions.stay(second.token, lease=60)
        kinds = {key.split(":")[2] for key in engine.keys(f"{{{prefix}}}:*:*")}
        assert kinds <= {"members", "member", "mail", "letters"}
        for each in (taken, second):
            await other.sessions.leave(each.token)
    assert engine.keys(f"{{{prefix}}}:*") == {f"{{{prefix}}}:about"}


async def test_all_keys_of_sessions_without_an_open_stream_have_an_end_without_any_process(
    engine: RedisServer, prefix: str
) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)
        for number in range(2):
            await use(stores.sessions, member.token, f"{number}", stores.now() + 100)
        await stores.sessions.open("0", member.token, 2, ["2"])
        endless = {key for key in engine.keys(f"{{{prefix}}}:*") if engine.ask("pttl", key) == "-1"}
        assert {key.split(":", 2)[2] for key in endless if key.count(":") > 1} >= {"session:0", "streams:0"}
        await stores.sessions.append("0", [], member.token, ended=[2])
        await stores.sessions.leave(member.token)
        left = engine.keys(f"{{{prefix}}}:*") - {f"{{{prefix}}}:about"}
        assert len(left) == 8, left  # of two sessions, three each; and `sessions` and `log`
        assert {key for key in left if int(engine.ask("pttl", key)) < 0} == set()


async def test_an_idle_session_takes_at_most_two_kib(engine: RedisServer, prefix: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)

        def size() -> int:
            names = engine.keys(f"{{{prefix}}}:*")
            return sum(int(engine.ask("memory", "usage", name, "samples", "0")) for name in names)

        await use(stores.sessions, member.token, f"{KEY}0", stores.now() + 100)
        await stores.sessions.stay(member.token, lease=60, read=1000)
        before = size()
        for number in range(1, 11):
            await use(stores.sessions, member.token, f"{KEY}{number}", stores.now() + 100)
        await stores.sessions.stay(member.token, lease=60, read=1000)
        assert (size() - before) / 10 <= 2048


async def test_each_call_is_one_round_trip(engine: RedisServer, prefix: str) -> None:
    def calls() -> int:
        found = [line for line in engine.ask("info", "commandstats").splitlines() if ":" in line]
        asked = ("cmdstat_evalsha", "cmdstat_eval", "cmdstat_script")
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in found if line.startswith(asked))

    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)
        await use(stores.sessions, member.token, "first", stores.now() + 100)  # now the engine has the scripts
        before = calls()
        await use(stores.sessions, member.token, "second", stores.now() + 100)
        assert calls() == before + 7


async def test_letters_wake_other_processes_that_only_listen(engine: RedisServer, prefix: str) -> None:
    """The script publishes itself: the process that has put the letter need not `hear`."""
    async with two(engine, prefix) as (one, other):
        with of_another_process(one):
            member = await other.sessions.join(lease=60)
            await one.sessions.add(StoredSession("s", b"", {}, other.now() + 60), limit=9)
            with trio.fail_after(NET), other.listen(LETTERS, look=NET) as listener:
                assert await one.sessions.send("s", b"x", member=member.number)
                await listener.woken()
            letters = await other.sessions.letters(member.token, 0)
            assert [*letters] == [Letter(1, "message", "s", data=b"x")]


async def test_large_letters_are_read_in_parts(engine: RedisServer, prefix: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)
        await stores.sessions.add(StoredSession("s", b"", {}, stores.now() + 60), limit=9)
        sizes = [2_000_000, 600_000, 400_000, 600_000]
        for size in sizes:
            await stores.sessions.send("s", b"x" * size, member=member.number)
        pages, last = [], 0
        while page := await stores.sessions.letters(member.token, last):
            pages.append([len(letter.data) for letter in page])
            last = page[-1].number
        assert pages == [[2_000_000], [600_000, 400_000], [600_000]]


@pytest.mark.parametrize("token", ["", ".", "1", "1.", ".x", "01.x", "1.x", "x.1", "1 .x", "about", "*.*", "1.\0"])
async def test_tokens_that_no_member_has_are_stale(engine: RedisServer, prefix: str, token: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        await stores.sessions.join(lease=60)
        with pytest.raises(StaleWriter):
            await stores.sessions.append("s", EVENT, token)
        with pytest.raises(StaleWriter):
            await stores.sessions.stay(token, lease=60)


async def test_an_engine_that_was_killed_has_the_sessions_that_it_had_acknowledged(prefix: str) -> None:
    with redis_server("--appendonly", "yes", "--appendfsync", "always") as engine:
        async with ValkeyStores(engine.url, prefix=prefix, timeout=0.5) as stores:
            member = await stores.sessions.join(lease=60)
            await use(stores.sessions, member.token, "s", stores.now() + 100)
            await stores.sessions.open("s", member.token, 2, ["2"])
            session = await stores.sessions.session("s")
            letters = await stores.sessions.letters(member.token, 0)
            assert session is not None
            assert [letter.kind for letter in letters] == ["message"]
            engine.kill()
            with pytest.raises(StoreError):
                await stores.sessions.append("s", EVENT, member.token)
            await trio.to_thread.run_sync(engine.start)
            await back(stores)
            assert await stores.sessions.session("s") == session
            assert [*await stores.sessions.letters(member.token, 0)] == [*letters]
            assert [*await stores.sessions.open_streams(member.token, 9)] == [OpenStream("s", 2, ("2",))]
            assert [event.number for event in await stores.sessions.after("s", 1, 0)] == [1, 2]
            assert (await stores.sessions.join(lease=60)).number == member.number + 1


async def test_a_broken_connection_appends_no_event_twice(engine: RedisServer, prefix: str) -> None:
    async with (
        CuttingProxy.to(f"{engine.folder}/socket") as proxy,
        ValkeyStores(f"valkey://127.0.0.1:{proxy.port}", prefix=prefix) as stores,
    ):
        member = await stores.sessions.join(lease=60)
        await stores.sessions.add(StoredSession("s", b"", {}, stores.now() + 60), limit=9)
        await stores.sessions.open("s", member.token, 1, ["1"])
        await stores.sessions.append("s", EVENT, member.token)  # the engine has got the script
        for turn in range(2, 5):
            proxy.cutting = True
            with pytest.raises(StoreError, match="the outcome of the call is unknown"):
                await stores.sessions.append("s", EVENT, member.token)
            proxy.cutting = False
            await back(stores)
            assert [event.number for event in await stores.sessions.after("s", 1, 0)] == [*range(1, turn + 1)]


async def test_after_a_loss_members_are_stale_and_sessions_gone(engine: RedisServer, prefix: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)
        await use(stores.sessions, member.token, "s", stores.now() + 100)
        engine.ask("del", f"{{{prefix}}}:about")
        with pytest.raises(StoreError, match="has lost all that was kept there"):
            await stores.sessions.session("s")
        assert await stores.sessions.session("s") is None
        await stores.sessions.join(lease=60)  # it has the number of the one before, and another token
        with pytest.raises(StaleWriter):
            await stores.sessions.stay(member.token, lease=60)
