"""`ValkeyStores.sessions`: what a session takes in the engine and how long it stays, and what happens without one."""

from __future__ import annotations

from functools import partial

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
    StoreFull,
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


async def test_all_keys_of_sessions_and_members_have_an_end_without_any_process(
    engine: RedisServer, prefix: str
) -> None:
    """All processes may die at once and never come back, with open streams and full mailboxes."""
    async with two(engine, prefix) as (one, other):
        member, second = await one.sessions.join(lease=60), await other.sessions.join(lease=60)
        for number in range(2):
            await use(one.sessions, member.token, f"{number}", one.now() + 100)
        await one.sessions.open("0", member.token, 2, ["2"])
        await other.sessions.carry("0", second.token, 2)
        await one.sessions.append("0", [StoredEvent(2, 0, b"x")], member.token)
        await one.sessions.append("1", [StoredEvent(0, 0, b"x")])
        await other.sessions.send("0", b"x", request="2")
        await one.sessions.add(StoredSession("new", b"", {}, one.now() + 100), limit=9, unless="ready")

        def lifetimes() -> dict[str, int]:
            names = engine.keys(f"{{{prefix}}}:*") - {f"{{{prefix}}}:about"}
            return {name.split(":", 2)[2]: int(engine.ask("pttl", name)) // 1000 for name in names}

        found = lifetimes()
        assert found.keys() >= {"session:0", "streams:0", "members", "opened:1", "carried:2", "mail:2", "letters:2"}
        assert found.keys() >= {"member:1", "member:2", "mail:1", "letters:1", "sessions", "spare:ready", "log"}
        assert {name: seconds for name, seconds in found.items() if seconds < 0} == {}
        assert {found[name] > 86_000 for name in ("session:0", "streams:0", "sessions", "opened:1")} == {True}
        assert found["session:1"] < 3_700
        await one.sessions.append("0", [], member.token, ended=[2])
        assert lifetimes()["session:0"] < 3_700
        await one.sessions.leave(member.token)
        await other.sessions.leave(second.token)
        assert {name: seconds for name, seconds in lifetimes().items() if not 0 <= seconds <= 86_400} == {}


def inside(engine: RedisServer, prefix: str, name: str) -> str:
    """Return the whole name of a key."""
    return f"{{{prefix}}}:{engine.ask('hget', f'{{{prefix}}}:about', 'epoch')}:{name}"


async def test_a_member_lets_sessions_live_whose_streams_it_has_open(engine: RedisServer, prefix: str) -> None:
    """After half of the time for which they stay without it."""
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)
        await stores.sessions.add(StoredSession("s", b"", {}, stores.now() + 60), limit=9)
        await stores.sessions.open("s", member.token, 2, ["2"])
        names = [inside(engine, prefix, f"{kind}:s") for kind in ("session", "streams")]
        for renewed in (False, True):
            for name in names:
                engine.ask("expire", name, "100")
            if renewed:
                engine.ask("zadd", inside(engine, prefix, "opened:1"), "1", "2 s")
            await stores.sessions.stay(member.token, lease=60)
            assert {int(engine.ask("ttl", name)) > 86_000 for name in names} == {renewed}


async def test_what_the_engine_has_deleted_of_a_session_leaves_nothing_behind(engine: RedisServer, prefix: str) -> None:
    """The processes that had its streams were away for a day, and others were there."""
    async with two(engine, prefix) as (one, other):
        member, second = await one.sessions.join(lease=0.0), await other.sessions.join(lease=60)
        await one.sessions.add(StoredSession("s", b"", {}, one.now() + 60), limit=9)
        await one.sessions.open("s", member.token, 2, ["2"])
        await other.sessions.carry("s", second.token, 2)
        engine.ask("del", inside(engine, prefix, "session:s"), inside(engine, prefix, "streams:s"))
        engine.ask("zadd", inside(engine, prefix, "sessions"), "1", "s")
        (taken,) = await other.sessions.take_over(lease=60, most=9)
        assert [*await other.sessions.open_streams(taken.token, 9)] == []
        for each in (taken, second):
            await other.sessions.stay(each.token, lease=60)
            await other.sessions.leave(each.token)
    assert engine.keys(f"{{{prefix}}}:*") == {f"{{{prefix}}}:about"}


# --- much to do -------------------------------------------------------------------------------------------------------

MANY = 120
"""More than two pieces of what one script does, but for letters."""


async def test_a_member_with_many_streams_leaves_in_pieces(engine: RedisServer, prefix: str) -> None:
    """The engine does nothing else meanwhile. If the process dies between two pieces, another one goes on."""
    async with two(engine, prefix) as (one, other):
        member, second = await one.sessions.join(lease=0.0), await other.sessions.join(lease=60)
        for number in range(MANY):
            await one.sessions.add(StoredSession(f"{number}", b"", {}, one.now() + 60), limit=MANY)
            await one.sessions.open(f"{number}", member.token, 1, ["1"])
            await one.sessions.open(f"{number}", member.token, 2, ["2"])
            await other.sessions.open(f"{number}", second.token, 3, ["3"])
            await one.sessions.carry(f"{number}", member.token, 3)
            await other.sessions.carry(f"{number}", second.token, 1)
        (outcome, *_) = await one._serve("leave", member.token)  # noqa: SLF001 - one piece
        assert outcome == b"more"
        left = len(await one.sessions.open_streams(member.token, 999))
        assert 2 * MANY - 100 <= left < 2 * MANY
        (taken,) = await other.sessions.take_over(lease=60, most=9)
        await one.sessions.leave(member.token)  # it is stale
        assert len(await other.sessions.open_streams(taken.token, 999)) == left
        await other.sessions.leave(taken.token)
        letters, last = [], 0
        while page := await other.sessions.letters(second.token, last):
            letters += page
            last = page[-1].number
        told = {(letter.kind, letter.session, letter.stream, letter.ended) for letter in letters if letter.ended}
        assert told == {("events", f"{number}", 1, True) for number in range(MANY)}
        assert {await other.sessions.carry("0", second.token, stream) for stream in (1, 2)} == {(0, False)}
        assert len(await other.sessions.open_streams(second.token, 999)) == MANY
        assert engine.keys(inside(engine, prefix, "*:1")) == {
            inside(engine, prefix, f"{k}:1") for k in ("session", "streams")
        }


@pytest.mark.parametrize("how", ["end", "stay", "add", "open_streams", "leave"])
async def test_a_session_with_many_streams_ends_in_pieces(engine: RedisServer, prefix: str, how: str) -> None:
    """It does not exist from the first piece on. If the process dies then, whatever is called next goes on."""
    async with two(engine, prefix) as (one, other):
        member, second = await one.sessions.join(lease=60), await other.sessions.join(lease=60)
        await one.sessions.add(StoredSession("s", b"", {"a": b""}, one.now() + 60), limit=9)
        for stream in range(1, MANY + 1):
            await one.sessions.open("s", member.token, stream, ["1"])
        for stream in range(1, 4):
            await other.sessions.carry("s", second.token, stream)
        (outcome, *_) = await one._serve("end_session", "s")  # noqa: SLF001 - one piece
        assert outcome == b"more"
        assert await other.sessions.session("s") is None
        assert await other.sessions.carry("s", second.token, 1) is None
        assert not await one.sessions.open("s", member.token, 500, ["1"])
        assert await one.sessions.append("s", [StoredEvent(1, 7, b"x")], member.token, ended=[1]) == [7]
        if how == "end":
            await one.sessions.end("s")
        elif how == "stay":
            for _ in range(3):
                await other.sessions.stay(second.token, lease=60)
        elif how == "add":
            await other.sessions.add(StoredSession("s", b"", {}, one.now() + 60), limit=1)
            found = await other.sessions.session("s")
            assert found
            assert (found.version, found.fields) == (1, {})
            assert await other.sessions.carry("s", second.token, 1) == (0, False)
            await other.sessions.end("s")
        elif how == "open_streams":
            assert [*await one.sessions.open_streams(member.token, 7)] == []
        else:
            await one.sessions.leave(member.token)
        await other.sessions.stay(second.token, lease=60)
        assert engine.keys(inside(engine, prefix, "*s:s")) == set()
        for number, token in ((1, member.token), (2, second.token)):
            assert not engine.keys(inside(engine, prefix, f"opened:{number}"))
            if how != "leave" or number == 2:
                letters = await other.sessions.letters(token, 0)
                assert ("ended", "s") in {(letter.kind, letter.session) for letter in letters}


async def test_an_end_in_pieces_that_has_begun_goes_on_in_spite_of_a_cancellation(
    engine: RedisServer, prefix: str
) -> None:
    async with two(engine, prefix) as (one, other):
        member = await one.sessions.join(lease=60)
        await one.sessions.add(StoredSession("s", b"", {}, one.now() + 60), limit=9)
        async with trio.open_nursery() as nursery:
            for stream in range(1, 1001):
                nursery.start_soon(one.sessions.open, "s", member.token, stream, ["1"])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.sessions.end, "s")
            while await other.sessions.session("s") is not None:
                pass
            assert engine.keys(inside(engine, prefix, "streams:s"))  # it has not come to the end
            nursery.cancel_scope.cancel()
        assert not engine.keys(inside(engine, prefix, "*s:s"))


async def test_many_letters_are_deleted_in_pieces(engine: RedisServer, prefix: str) -> None:
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)
        await stores.sessions.add(StoredSession("s", b"", {}, stores.now() + 60), limit=9)
        async with trio.open_nursery() as nursery:
            for _ in range(700):
                send = partial(stores.sessions.send, "s", b"x" * 100, member=member.number, limit=100_000)
                nursery.start_soon(send)
        (outcome, *_) = await stores._serve("stay", member.token, "60", "650")  # noqa: SLF001 - one piece
        assert outcome == b"more"
        (first, *_) = await stores.sessions.letters(member.token, 0)
        assert 100 < first.number < 650
        await stores.sessions.stay(member.token, lease=60, read=650)
        (first, *_) = await stores.sessions.letters(member.token, 0)
        assert first.number == 651
        assert engine.ask("hget", inside(engine, prefix, "member:1"), "bytes") == "5000"


async def test_a_full_store_is_not_searched(engine: RedisServer, prefix: str) -> None:
    """Neither where all sessions have finished the handshake, nor for the one among them that has not."""

    def commands() -> int:
        lines = [line for line in engine.ask("info", "commandstats").splitlines() if ":calls=" in line]
        return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines)

    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        member = await stores.sessions.join(lease=60)

        async def add(key: str) -> None:
            await stores.sessions.add(StoredSession(key, b"", {}, stores.now() + 60), limit=200, unless="ready")

        async def finish(key: str) -> None:
            await add(key)
            await stores.sessions.change(key, member.token, fields={"ready": b""})

        async with trio.open_nursery() as nursery:
            for number in range(200):
                nursery.start_soon(finish, f"{number}")
        before = commands()
        with pytest.raises(StoreFull):
            await add("full")
        assert commands() - before < 40
        await stores.sessions.change("150", member.token, fields={"ready": None})
        before = commands()
        await add("last")
        assert commands() - before < 60
        assert await stores.sessions.session("150") is None


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
