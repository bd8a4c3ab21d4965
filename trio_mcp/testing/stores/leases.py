"""The rules for leases, claims and wake-ups: a task has one holder at a time, and no wake-up is lost in a process."""

from __future__ import annotations

import attrs
import trio
import trio.testing

from trio_mcp.stores.contract import StaleWriter
from trio_mcp.testing.stores.rule import PairOfStores, store_rule

__all__: list[str] = []

MANY = 20


@store_rule("All processes have the same clock")
async def clocks_agree(pair: PairOfStores) -> None:
    times = [store.clock() for store in (pair.one, pair.two, pair.one)]
    pair.equal(times, sorted(times), "clock() of one store, of the other, and of the first again")


@store_rule("claim_tasks() claims tasks of the given tools that are ready, the oldest first, and no task twice")
async def ready_tasks_are_claimed(pair: PairOfStores) -> None:
    for key, created in (("third", 3.0), ("first", 1.0), ("fourth", 4.0), ("second", 2.0)):
        await pair.one.add_task(pair.task(key, created=created, tool=f"tool {key}"))
    for status in ("input_required", "completed", "failed", "cancelled"):
        await pair.one.add_task(pair.task(status, status=status, tool="tool first", created=0.0))
    await pair.one.add_task(pair.task("held", tool="tool first", created=0.0), lease=60)
    tools = ["tool first", "tool second", "tool third"]
    claims = [*await pair.two.claim_tasks(tools, lease=60, most=2)]
    pair.equal([claim.task.key for claim in claims], ["first", "second"], "the keys of two of three ready tasks")
    for claim in claims:
        pair.equal((claim.lost, claim.task.version), (False, 2), "`lost` and the version of a claimed task")
        pair.equal(await pair.one.task(claim.task.key), claim.task, "task() of a claimed task")
        await pair.one.note(claim.task.key, claim.task.token, ("x", b""))
    pair.equal(len({"", *(claim.task.token for claim in claims)}), 3, "how many tokens differ, with the empty one")
    rest = await pair.one.claim_tasks(tools, lease=60, most=2)
    pair.equal([claim.task.key for claim in rest], ["third"], "the keys of a second claim")
    pair.equal([*await pair.two.claim_tasks(tools, lease=60, most=2)], [], "a third claim")
    pair.equal([*await pair.two.claim_tasks([], lease=60, most=2)], [], "a claim without tools")


@store_rule("If several processes claim tasks at the same time, each task goes to one of them")
async def one_claims(pair: PairOfStores) -> None:
    for number in range(MANY):
        await pair.one.add_task(pair.task(f"{number}"))
    claimed: list[str] = []

    async def claim(number: int) -> None:
        for _ in range(MANY):
            claims = await (pair.one, pair.two)[number % 2].claim_tasks(["tool"], lease=60, most=3)
            claimed.extend(each.task.key for each in claims)

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(claim, number)
    pair.equal(sorted(claimed), sorted(f"{number}" for number in range(MANY)), "what four claimants got")


@store_rule(
    "A lease that was not renewed in time is lost: a claim gives the task a new token, and the old token is stale"
)
async def lost_leases_are_claimed(pair: PairOfStores) -> None:
    start = pair.one.clock()
    task = await pair.one.add_task(pair.task("a"), lease=pair.lease)
    waiting = await pair.one.add_task(pair.task("waiting", status="input_required"), lease=pair.lease)
    await pair.run_out(start)
    await pair.run_out(pair.two.clock() - pair.lease)
    # Until another process claims the task, the holder of an expired lease may still write.
    await pair.one.note("a", task.token, ("late", b""))
    claims = [*await pair.two.claim_tasks(["tool"], lease=60, most=5)]
    pair.equal([(claim.task.key, claim.lost) for claim in claims], [("a", True)], "the claims after the lease")
    new = claims[0].task
    pair.equal(new, attrs.evolve(task, version=2, token=new.token), "the claimed task, but for its token and version")
    pair.equal(new.token in ("", task.token), False, "whether the token is the old one")
    late = attrs.evolve(task, version=3)
    await pair.raises(StaleWriter, pair.one.note("a", task.token, ("later", b"")), "note() with the old token")
    await pair.raises(StaleWriter, pair.one.put_task(late, token=task.token), "put_task() with the old token")
    pair.equal(dict(await pair.one.renew({"a": task.token}, lease=60)), {"a": None}, "renew() with the old token")
    pair.equal([*await pair.one.journal("a")], [("late", b"")], "the journal")
    pair.equal([*await pair.one.claim_tasks(["tool"], lease=60, most=5)], [], "a second claim")
    ready = attrs.evolve(waiting, version=2, token="", status="working")
    pair.equal(await pair.two.put_task(ready), True, "put_task() that makes a task ready whose lease was lost")
    again = await pair.one.claim_tasks(["tool"], lease=60, most=5)
    pair.equal([(claim.task.key, claim.lost) for claim in again], [("waiting", False)], "the claim of that task")


@store_rule("A lease that is renewed in time is kept for the duration that the renewal gives")
async def renewed_leases_are_kept(pair: PairOfStores) -> None:
    task = await pair.one.add_task(pair.task("a"), lease=pair.lease)
    for _ in range(3):
        start = pair.one.clock()
        found = await pair.one.renew({"a": task.token, "unknown": "x"}, lease=10 * pair.lease)
        pair.equal(dict(found), {"a": task, "unknown": None}, "what renew() returns")
        await pair.run_out(start)
        pair.equal([*await pair.two.claim_tasks(["tool"], lease=60, most=1)], [], "a claim while the lease is renewed")
    pair.equal(dict(await pair.two.renew({"a": ""}, lease=60)), {"a": None}, "renew() with an empty token")
    changed = attrs.evolve(task, version=2, cancelling=True)
    pair.equal(await pair.two.put_task(changed), True, "put_task() by another process, without a token")
    found = await pair.one.renew({"a": task.token}, lease=pair.lease)
    pair.equal(dict(found), {"a": changed}, "what renew() returns after another process changed the task")
    await pair.run_out(pair.one.clock())
    claims = await pair.two.claim_tasks(["tool"], lease=60, most=1)
    pair.equal([claim.lost for claim in claims], [True], "a claim after the shorter renewal")


@store_rule("A wake-up reaches every listener of the topic, also one that does not wait at that moment")
async def wakes_are_heard(pair: PairOfStores) -> None:
    store = pair.one
    with store.listen("a") as first, store.listen("a") as second:
        store.wake("a")
        for listener in (first, second):
            await listener.woken()
        with trio.CancelScope() as scope:
            scope.cancel()
            await first.woken()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.woken)
            await trio.testing.wait_all_tasks_blocked()
            store.wake("a")
    store.wake("a")  # with no listener


@store_rule("A call that is cancelled before it begins has no effect, and a call that returns is a checkpoint")
async def cancelled_calls_have_no_effect(pair: PairOfStores) -> None:
    store = pair.one
    held = await store.add_task(pair.task("held"), lease=60)
    await store.add_task(pair.task("ready"))
    following = attrs.evolve(held, version=2)
    for call in (
        lambda: store.add_task(pair.task("new")),
        lambda: store.note("held", held.token, ("x", b"")),
        lambda: store.put_task(following),
        lambda: store.claim_tasks(["tool"], lease=60, most=1),
        lambda: store.renew({"held": held.token}, lease=0.001),
        lambda: store.task("held"),
        lambda: store.journal("held"),
        lambda: store.versions(["held"]),
        lambda: store.own("other"),
        lambda: store.sessions.after("session", 1, 0),
        lambda: store.sessions.forget("session"),
        lambda: store.announce(["topic"]),
        lambda: store.changed(0),
        lambda: store.put_state("ann", "cart", b"1", tag=None, expires=None),
        lambda: store.state("ann", "cart"),
        lambda: store.forget_states("ann"),
        lambda: store.take("bucket", rate=0.001, burst=1),
        lambda: store.remember("key", seconds=3600),
        store.hear,
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await call()
        if not scope.cancelled_caught:
            pair.fail("a call returned in a cancelled scope")
    pair.equal(dict(await pair.two.versions(["new", "held", "ready"])), {"held": 1, "ready": 1}, "the tasks after that")
    pair.equal([*await pair.two.journal("held")], [], "the journal after that")
    await pair.two.own("name")
    pair.equal((await pair.two.changed(0)).newest, 0, "the newest change after that")
    pair.equal(await pair.two.state("ann", "cart"), None, "a state after that")
    pair.equal(await pair.two.take("bucket", rate=0.001, burst=1), 0.0, "a token after that")
    pair.equal(await pair.two.remember("key", seconds=3600), True, "whether a key is new after that")
    with trio.testing.assert_checkpoints():
        await store.renew({}, lease=1)
    with trio.testing.assert_checkpoints():
        await store.versions([])
    with trio.testing.assert_checkpoints():
        await store.sessions.append("session", [])
