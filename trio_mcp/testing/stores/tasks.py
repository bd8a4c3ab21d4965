"""The rules for tasks: their columns and journals, concurrent changes, and expiry."""

from __future__ import annotations

import attrs
import trio

from trio_mcp.stores.contract import StaleWriter, StoredTask, StoreError, StoreFull
from trio_mcp.testing.stores.rule import PairOfStores, store_rule, until

__all__: list[str] = []

ODD = "\N{SNOWMAN} a\nb\t'\"\\ \N{MUSICAL SYMBOL G CLEF}"
BYTES = bytes(range(256))


@store_rule("A store belongs to one server: own() accepts its name from each process, and refuses other names")
async def belongs_to_one_server(pair: PairOfStores) -> None:
    await pair.one.own("name")
    await pair.two.own("name")
    await pair.one.own("name")
    await pair.raises(StoreError, pair.two.own("other"), "own() with another server's name")


@store_rule("A block may be entered again while it is open, and the store stays open until the last exit")
async def may_be_entered_again(pair: PairOfStores) -> None:
    async with pair.one as entered:
        pair.equal(entered, pair.one, "what `async with` returns")
        await entered.add_task(pair.task("a"))
    pair.equal((await pair.one.versions(["a"])), {"a": 1}, "versions() after the inner block")


@store_rule("A task is returned as it was added, to every process")
async def keeps_every_column(pair: PairOfStores) -> None:
    plain = await pair.one.add_task(pair.task("plain"))
    full = await pair.one.add_task(
        StoredTask(
            key="full",
            owner=ODD,
            tool=ODD,
            status="input_required",
            created=1.25,
            updated=2.5,
            expires=pair.one.now() + 1000.5,
            begun=True,
            takeovers=3,
            cancelling=True,
            message=ODD,
            body=BYTES,
            asked=BYTES[::-1],
            result=b"x" * 300_000,
        )
    )
    for store in (pair.one, pair.two):
        pair.equal(await store.task("plain"), plain, "task() of a plain task")
        pair.equal(await store.task("full"), full, "task() of a task with a value in every column")
        pair.equal(await store.task("unknown"), None, "task() of an unknown key")
    found = await pair.two.versions(["plain", "unknown", "full"])
    pair.equal(dict(found), {"plain": 1, "full": 1}, "versions() of two tasks and an unknown key")


@store_rule("A key names one task: a second one is refused, and the first stays as it is")
async def keys_are_unique(pair: PairOfStores) -> None:
    first = await pair.one.add_task(pair.task("a", body=b"first"), [("x", BYTES)])
    await pair.raises(ValueError, pair.two.add_task(pair.task("a"), [("y", b"2")]), "add_task() with a known key")
    pair.equal(await pair.two.task("a"), first, "the task")
    pair.equal([*await pair.two.journal("a")], [("x", BYTES)], "the journal")


@store_rule("The store holds no more than `limit` tasks; expired tasks don't count")
async def has_a_limit(pair: PairOfStores) -> None:
    await pair.one.add_task(pair.task("old", expires=pair.one.now() - 1), limit=2)
    await pair.one.add_task(pair.task("a"), limit=2)
    await pair.two.add_task(pair.task("b"), limit=2)
    await pair.raises(StoreFull, pair.one.add_task(pair.task("c"), limit=2), "a third task with limit=2")
    pair.equal(await pair.two.task("c"), None, "task() of what was refused")
    await pair.one.add_task(pair.task("c"), limit=3)
    await pair.one.add_task(pair.task("d"))


@store_rule("A journal keeps its entries in the order in which they were added; an existing key keeps its value")
async def journals_are_in_order(pair: PairOfStores) -> None:
    task = await pair.one.add_task(pair.task("a"), [("z", b"1"), ("b", b"2")], lease=60)
    other = await pair.one.add_task(pair.task("b"), [("z", b"other")], lease=60)
    await pair.two.note("a", task.token, ("a", b"again"))
    await pair.one.note("b", other.token, ("a", b"other"))
    await pair.one.note("a", task.token, ("b", b"changed"))
    replaced = await pair.two.put_task(attrs.evolve(task, version=2), [("z", b"changed"), ("c", b"4")])
    pair.equal(replaced, True, "put_task() with the next version")
    for store in (pair.one, pair.two):
        expected = [("z", b"1"), ("b", b"2"), ("a", b"again"), ("c", b"4")]
        pair.equal([*await store.journal("a")], expected, "journal()")
    pair.equal([*await pair.one.journal("unknown")], [], "journal() of an unknown key")


@store_rule("put_task() replaces a task if the version is the next one; otherwise it changes nothing")
async def replaces_the_version_before(pair: PairOfStores) -> None:
    task = await pair.one.add_task(pair.task("a"))
    second = attrs.evolve(task, version=2, status="failed", message=ODD, expires=pair.one.now() + 50, result=BYTES)
    pair.equal(await pair.two.put_task(second), True, "put_task() with version 2 after 1")
    pair.equal(await pair.one.task("a"), second, "task() after put_task()")
    for version in (1, 2, 4):
        wrong = attrs.evolve(task, version=version, body=b"wrong")
        pair.equal(await pair.one.put_task(wrong, [("x", b"")]), False, f"put_task() with version {version} after 2")
    pair.equal(await pair.two.task("a"), second, "task() after put_task() with wrong versions")
    pair.equal([*await pair.two.journal("a")], [], "journal() after put_task() with wrong versions")
    unknown = pair.task("unknown", version=2)
    pair.equal(await pair.one.put_task(unknown), False, "put_task() of an unknown key")
    pair.equal(await pair.one.task("unknown"), None, "task() after that")


@store_rule("If several processes replace the same version, one of them succeeds")
async def one_replaces(pair: PairOfStores) -> None:
    task = await pair.one.add_task(pair.task("a"))
    for version in range(2, 8):
        won: list[bytes] = []

        async def put(number: int, version: int = version, won: list[bytes] = won) -> None:
            body = b"%d" % number
            store = (pair.one, pair.two)[number % 2]
            if await store.put_task(attrs.evolve(task, version=version, body=body), [(f"{version}", body)]):
                won.append(body)

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(put, number)
        pair.equal(len(won), 1, "how many of six put_task() with the same version returned True")
        found = await pair.two.task("a")
        pair.equal(found and found.body, won[0], "the body of the task")
        pair.equal((await pair.one.journal("a"))[-1], (f"{version}", won[0]), "the last entry of the journal")


@store_rule("A write with a token succeeds only if it is that of the task's lease; an empty token ends the lease")
async def writers_hold_the_lease(pair: PairOfStores) -> None:
    task = await pair.one.add_task(pair.task("a", token="ignored"), lease=60)
    free = await pair.one.add_task(pair.task("b", token="ignored"))
    pair.equal((bool(task.token), free.token), (True, ""), "whether add_task() gives a token with a lease, and without")
    following = attrs.evolve(task, version=2)
    for token in ("stale", ""):
        await pair.raises(StaleWriter, pair.two.note("a", token, ("x", b"")), f"note() with the token {token!r}")
        await pair.raises(StaleWriter, pair.two.put_task(following, token=token), f"put_task() with token={token!r}")
    await pair.raises(StaleWriter, pair.two.note("b", "", ("x", b"")), "note() with no token to a task without a lease")
    stolen = attrs.evolve(following, token="stale")
    await pair.raises(StaleWriter, pair.two.put_task(stolen), "put_task() of a task with another token")
    await pair.raises(StaleWriter, pair.two.note("unknown", "stale", ("x", b"")), "note() to an unknown key")
    pair.equal(await pair.two.put_task(pair.task("unknown"), token="stale"), False, "put_task() of an unknown key")
    pair.equal((await pair.one.task("a"), [*await pair.one.journal("a")]), (task, []), "the task after all that")
    pair.equal(await pair.two.put_task(following, token=task.token), True, "put_task() with the token")
    ended = attrs.evolve(task, version=3, token="", status="input_required")
    pair.equal(await pair.one.put_task(ended), True, "put_task() with an empty token in the task")
    await pair.raises(StaleWriter, pair.two.note("a", task.token, ("x", b"")), "note() after the end of the lease")
    renewed = await pair.two.renew({"a": task.token}, lease=60)
    pair.equal(dict(renewed), {"a": None}, "renew() after the end of the lease")


@store_rule("An expired task does not exist for any method, whether or not it was deleted")
async def expired_tasks_are_gone(pair: PairOfStores) -> None:
    past = pair.one.now() - 1
    for number in range(3):
        await pair.one.add_task(pair.task(f"old {number}", expires=past))
    task = await pair.one.add_task(pair.task("a", expires=past), [("x", b"")], lease=60)
    later = await pair.one.add_task(pair.task("later", expires=pair.one.now() + 1000))
    pair.equal(await pair.two.task("a"), None, "task()")
    pair.equal([*await pair.two.journal("a")], [], "journal()")
    pair.equal(dict(await pair.two.versions(["a", "later"])), {"later": 1}, "versions()")
    pair.equal(await pair.two.put_task(attrs.evolve(task, version=2, expires=None)), False, "put_task()")
    await pair.raises(StaleWriter, pair.two.note("a", task.token, ("y", b"")), "note()")
    pair.equal(dict(await pair.two.renew({"a": task.token}, lease=60)), {"a": None}, "renew()")
    claims = await pair.two.claim_tasks(["tool"], lease=60, most=10)
    pair.equal([claim.task.key for claim in claims], ["later"], "what claim_tasks() returns")
    again = await pair.two.add_task(pair.task("a", body=b"again"))
    pair.equal(await pair.one.task("a"), again, "task() of a new task with the key of an expired one")
    pair.equal([*await pair.one.journal("a")], [], "the journal of a new task with the key of an expired one")
    pair.equal(later.version, 1, "the version of a new task")


@store_rule("put_task() may change when a task expires")
async def expiry_can_be_moved(pair: PairOfStores) -> None:
    soon = pair.one.now() + 0.2
    kept = await pair.one.add_task(pair.task("kept", expires=soon))
    shortened = await pair.one.add_task(pair.task("shortened"))
    await pair.two.put_task(attrs.evolve(kept, version=2, expires=None))
    await pair.two.put_task(attrs.evolve(shortened, version=2, expires=soon))
    await until(pair.one.now, soon)
    await pair.one.add_task(pair.task("other"))  # a write, which may delete what has expired
    pair.equal(dict(await pair.two.versions(["kept", "shortened"])), {"kept": 2}, "versions() after the first expiry")
