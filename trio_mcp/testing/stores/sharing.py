"""The rules for what processes share: no change is missed, no write of a state is lost, and counters count once."""

from __future__ import annotations

import trio

from trio_mcp.stores.contract import Changed, StateEntry, Stores
from trio_mcp.testing.stores.rule import PairOfStores, store_rule

__all__: list[str] = []

MANY = 10

# --- changes ----------------------------------------------------------------------------------------------------------


@store_rule("What one process announces, all find, each topic once and in the order of the last changes")
async def changes_are_found(pair: PairOfStores) -> None:
    pair.equal(await pair.one.changed(0), Changed(0, {}, complete=True), "changed(0) before any change")
    pair.equal(await pair.one.announce(["a", "b"]), 2, "what announce() of two topics returns")
    found = await pair.two.changed(0)
    pair.equal((list(found.topics.items()), found.complete), ([("a", 1), ("b", 2)], True), "what has changed")
    await pair.two.announce(["a"])
    await pair.one.announce(["c"])
    later = await pair.one.changed(found.newest)
    pair.equal(([*later.topics], later.complete), (["a", "c"], True), "what has changed since")
    whole = await pair.one.changed(0)
    pair.equal(list(whole.topics.items()), [("b", 2), ("a", 3), ("c", 4)], "all that has changed")
    pair.equal([*(await pair.two.changed(later.newest)).topics], [], "what has changed since the newest change")
    pair.equal(await pair.two.announce([]), later.newest, "what announce([]) returns")


@store_rule("Of topics that are announced at once by several processes, none is missed")
async def no_change_is_missed(pair: PairOfStores) -> None:
    async def announce(number: int) -> None:
        for turn in range(MANY):
            await (pair.one, pair.two)[number % 2].announce([f"{number}/{turn}"])

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(announce, number)
    found = await pair.one.changed(0)
    pair.equal(sorted(found.topics), sorted(f"{n}/{t}" for n in range(4) for t in range(MANY)), "what has changed")
    pair.equal(len(found.topics), len(set(found.topics)), "how many topics have changed")


# --- the state of users -----------------------------------------------------------------------------------------------


@store_rule("A state is replaced only by one who has seen it")
async def states_are_compared(pair: PairOfStores) -> None:
    pair.equal(await pair.one.state("ann", "cart"), None, "state() before any write")

    async def put(store: Stores, value: bytes, tag: str | None) -> bool:
        return (await store.put_state("ann", "cart", value, tag=tag, expires=None)).done

    pair.equal(await put(pair.one, b"1", "x"), False, "put_state() with a tag")
    pair.equal(await put(pair.one, b"1", None), True, "the first put_state()")
    pair.equal(await put(pair.two, b"2", None), False, "a second one")
    first = await pair.two.state("ann", "cart")
    assert first is not None
    pair.equal(first.value, b"1", "the value")
    pair.equal(await put(pair.two, b"2", first.tag), True, "a replacement")
    pair.equal(await put(pair.one, b"3", first.tag), False, "a late replacement")
    second = await pair.one.state("ann", "cart")
    pair.equal(second and second.value, b"2", "the value after that")
    for user, name in (("bob", "cart"), ("ann", "other")):
        pair.equal(await pair.one.state(user, name), None, "another user's state, and another name")


@store_rule("A process that has kept a state, or could not, knows what is kept now")
async def what_is_kept_is_said(pair: PairOfStores) -> None:
    async def put(store: Stores, value: bytes, tag: str | None) -> StateEntry | None:
        put = await store.put_state("ann", "cart", value, tag=tag, expires=None)
        pair.equal(put.entry, await pair.one.state("ann", "cart"), f"the entry with done={put.done}")
        return put.entry

    pair.equal(await put(pair.one, b"1", "x"), None, "put_state() with a tag, while nothing is kept")
    first = await put(pair.one, b"1", None)
    assert first is not None
    pair.equal(first.value, b"1", "the value that put_state() has kept")
    second = await put(pair.two, b"2", first.tag)
    pair.equal(await put(pair.one, b"3", first.tag), second, "the entry with a late put_state()")


@store_rule("A user's states are forgotten together, and a tag from before does not fit what follows")
async def states_are_forgotten(pair: PairOfStores) -> None:
    for user, name in (("ann", "a"), ("ann", "b"), ("bob", "a")):
        await pair.one.put_state(user, name, b"1", tag=None, expires=None)
    old = await pair.one.state("ann", "a")
    assert old is not None
    await pair.two.forget_states("ann")
    left = [await pair.one.state(user, name) for user, name in (("ann", "a"), ("ann", "b"), ("bob", "a"))]
    pair.equal([each is not None for each in left], [False, False, True], "which states there are")
    put = await pair.one.put_state("ann", "a", b"1", tag=None, expires=None)
    pair.equal(put.done, True, "put_state() after that")
    put = await pair.two.put_state("ann", "a", b"2", tag=old.tag, expires=None)
    pair.equal(put.done, False, "put_state() with an old tag")
    await pair.one.forget_states("unknown")


@store_rule("A state that has expired is gone")
async def states_expire(pair: PairOfStores) -> None:
    now = pair.one.now()
    await pair.one.put_state("ann", "past", b"1", tag=None, expires=now - 1)
    pair.equal(await pair.two.state("ann", "past"), None, "a state that has expired")
    put = await pair.two.put_state("ann", "past", b"2", tag=None, expires=now + 3600)
    pair.equal(put.done, True, "another in its place")
    found = await pair.one.state("ann", "past")
    pair.equal(found and found.value, b"2", "that state")
    assert found is not None
    put = await pair.one.put_state("ann", "past", b"3", tag=found.tag, expires=None)
    pair.equal(put.done, True, "one that stays")
    pair.equal(await pair.two.state("ann", "past") is None, False, "whether it is gone")


@store_rule("Of several processes that update a state at once, none loses what another has written")
async def no_update_is_lost(pair: PairOfStores) -> None:
    async def count(number: int) -> None:
        store = (pair.one, pair.two)[number % 2]
        for _ in range(MANY):
            done = False
            while not done:
                found = await store.state("ann", "count")
                value, tag = (b"0", None) if found is None else (found.value, found.tag)
                put = await store.put_state("ann", "count", b"%d" % (int(value) + 1), tag=tag, expires=None)
                done = put.done

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(count, number)
    found = await pair.two.state("ann", "count")
    pair.equal(found and found.value, b"%d" % (4 * MANY), "the count after 40 updates")


# --- counters ---------------------------------------------------------------------------------------------------------


@store_rule("A bucket gives its burst of tokens to all processes together, and then says how long to wait")
async def buckets_are_shared(pair: PairOfStores) -> None:
    took = [await (pair.one, pair.two)[turn % 2].take("a", rate=0.001, burst=3) for turn in range(4)]
    pair.equal(took[:3], [0.0, 0.0, 0.0], "the first tokens")
    if not 900 < took[3] <= 1000:
        pair.fail(f"take() from an empty bucket that gets a token in 1000 s: got {took[3]!r}")
    again = await pair.one.take("a", rate=0.001, burst=3)
    if not 0 < again <= took[3]:
        pair.fail(f"take() from an empty bucket must not make the wait longer: got {again!r} after {took[3]!r}")
    pair.equal(await pair.one.take("b", rate=0.001, burst=3), 0.0, "a token of another bucket")


@store_rule("The tokens of a bucket come back")
async def buckets_fill(pair: PairOfStores) -> None:
    start, rate = pair.one.clock(), 1 / pair.lease
    pair.equal(await pair.one.take("a", rate=rate, burst=1), 0.0, "the only token")
    await pair.run_out(start)
    await pair.run_out(pair.two.clock() - pair.lease)
    pair.equal(await pair.two.take("a", rate=rate, burst=1), 0.0, "a token after it has come back")


@store_rule("A key is new once, to all processes together, until its time is over")
async def keys_are_new_once(pair: PairOfStores) -> None:
    pair.equal(await pair.one.remember("a", seconds=3600), True, "whether a key is new")
    pair.equal(await pair.two.remember("a", seconds=3600), False, "whether it still is")
    pair.equal(await pair.two.remember("b", seconds=-1), True, "whether another key is new, which is forgotten at once")
    pair.equal(await pair.one.remember("b", seconds=3600), True, "whether it is new again")
    pair.equal(await pair.one.remember("b", seconds=3600), False, "whether it still is")
