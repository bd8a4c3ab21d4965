"""The rules for sessions and their streams: every process sees the same, and events reach the one that carries them."""

from __future__ import annotations

import attrs
import trio
import trio.testing

from trio_mcp.stores.contract import StoreFull
from trio_mcp.stores.event_store import EventsLost, StoredEvent
from trio_mcp.stores.session_store import Letter, Member, OpenStream, StoredSession
from trio_mcp.testing.stores.members import LONG, add_session, get_letters, join_both
from trio_mcp.testing.stores.rule import PairOfStores, store_rule, until

__all__: list[str] = []

MANY = 10


def kinds(letters: list[Letter]) -> list[tuple[str, str, int]]:
    """Return what letters are about."""
    return [(each.kind, each.session, each.stream) for each in letters]


# --- sessions ---------------------------------------------------------------------------------------------------------


@store_rule("A session is kept as it was added, and its key is used once")
async def sessions_are_kept(pair: PairOfStores) -> None:
    session = await add_session(pair, declaration=b"\0\xff", fields=["a", "b"])
    pair.equal(await pair.two.sessions.session("s"), session, "session()")
    pair.equal(await pair.two.sessions.session("s", known=2), session, "session() with another version")
    known = attrs.evolve(session, declaration=b"", fields={})
    pair.equal(await pair.two.sessions.session("s", known=1), known, "session() of a known version")
    pair.equal(await pair.two.sessions.session("unknown"), None, "session() with an unknown key")
    again = pair.two.sessions.add(StoredSession("s", b"", {}, session.expires), limit=9)
    await pair.raises(ValueError, again, "add() with a key that is taken")
    pair.equal(await pair.one.sessions.session("s"), session, "session() after that")


@store_rule("Each change of fields gives a session the next version, and it never expires earlier")
async def sessions_change(pair: PairOfStores) -> None:
    session = await add_session(pair, fields=["a", "b"])
    member, other = await join_both(pair)
    await pair.one.sessions.carry("s", member.token, 0)
    change = pair.two.sessions.change
    later = session.expires + 100
    pair.equal(await change("s", other.token, expires=later), 1, "change() of the time at which it expires")
    pair.equal(await change("s", other.token, expires=later - 50), 1, "change() to an earlier time")
    pair.equal(await change("s", other.token, fields={}), 1, "change() of no field")
    pair.equal(await get_letters(pair.one, member), [], "the letters after that")
    pair.equal(await change("s", other.token, fields={"a": None, "b": b"2", "c": b"3"}), 2, "change() of fields")
    expected = attrs.evolve(session, fields={"b": b"2", "c": b"3"}, expires=later, version=2)
    pair.equal(await pair.one.sessions.session("s", known=1), expected, "session() after that")
    changed = [("changed", "s", 0)]
    pair.equal(kinds(await get_letters(pair.one, member)), changed, "the letters of one who carries stream 0")
    pair.equal(await pair.one.sessions.change("s", member.token, fields={"a": None}), 3, "change() by that one")
    pair.equal(kinds(await get_letters(pair.one, member)), changed, "its letters after that")
    pair.equal(await get_letters(pair.two, other), [], "the letters of another")
    pair.equal(await change("unknown", other.token, fields={"a": b""}), None, "change() of an unknown session")


@store_rule(
    "Beyond the limit, a session takes the place of the one without a field that expires first, if there is one"
)
async def sessions_have_a_limit(pair: PairOfStores) -> None:
    member, _ = await join_both(pair)
    for key, fields, seconds in (
        ("named", ["ready"], 10),
        ("open", [], 20),
        ("late", ["other"], 40),
        ("early", [], 30),
        ("old", [], -1),
    ):
        await add_session(pair, key, fields=fields, seconds=seconds)
    await pair.one.sessions.open("open", member.token, 1, ["1"])
    await pair.one.sessions.carry("early", member.token, 0)
    await pair.one.sessions.append("early", [StoredEvent(0, 0, b"x")], member.token)

    async def add(key: str, limit: int, unless: str = "") -> None:
        session = StoredSession(key, b"", {"ready": b""}, pair.two.now() + 60)
        await pair.two.sessions.add(session, limit=limit, unless=unless)

    async def left() -> list[str]:
        keys = ("named", "open", "late", "early", "1", "2", "3", "4")
        return [key for key in keys if await pair.one.sessions.session(key) is not None]

    await add("1", 5)
    pair.equal(await left(), ["named", "open", "late", "early", "1"], "the sessions after one that needs no place")
    await pair.raises(StoreFull, add("2", 5), "add() beyond the limit")
    await add("2", 5, "ready")
    pair.equal(await left(), ["named", "open", "late", "1", "2"], "the sessions after one took a place")
    await pair.raises(EventsLost, pair.one.sessions.after("early", 0, 0), "after() of the one that was deleted")
    letters = kinds(await get_letters(pair.one, member))
    pair.equal(letters, [("ended", "early", 0)], "the letters of one who carried a stream of it")
    await add("3", 5, "ready")
    pair.equal(await left(), ["named", "open", "1", "2", "3"], "the sessions after another took a place")
    await pair.raises(StoreFull, add("4", 5, "ready"), "add() where no session may be deleted")
    pair.equal(await left(), ["named", "open", "1", "2", "3"], "the sessions after that")


@store_rule("A session that was ended does not exist, nothing of it is left, and those who had its streams are told")
async def sessions_end(pair: PairOfStores) -> None:
    for key in ("s", "t"):
        await add_session(pair, key, fields=["a"])
    opener, carrier = await join_both(pair)
    for key in ("s", "t"):
        await pair.one.sessions.open(key, opener.token, 1, ["1"])
        await pair.one.sessions.append(key, [StoredEvent(1, 0, b"x"), StoredEvent(0, 0, b"y")], opener.token)
        await pair.two.sessions.carry(key, carrier.token, 0)
    await pair.one.sessions.end("s")
    await pair.one.sessions.end("s")
    for name, store, member in (("has a stream open", pair.one, opener), ("carries one", pair.two, carrier)):
        letters = kinds(await get_letters(store, member))
        pair.equal(letters, [("ended", "s", 0)], f"the letters of one who {name}")
    await check_absent(pair, opener)
    pair.equal([*await pair.two.sessions.open_streams(opener.token, 9)], [OpenStream("t", 1, ("1",))], "what is open")
    pair.equal(len(await pair.two.sessions.after("t", 1, 0)), 1, "how many events another session has")
    await add_session(pair)
    found = await pair.two.sessions.session("s")
    pair.equal(found and found.fields, {}, "the fields of a new session with its key")
    pair.equal(await pair.two.sessions.carry("s", carrier.token, 1), (0, False), "carry() of a stream of it")
    pair.equal(await pair.two.sessions.carry("s", carrier.token, 0), (0, True), "carry() of its stream 0")


async def check_absent(pair: PairOfStores, member: Member) -> None:
    """Check that the session ``"s"`` does not exist for any method."""
    sessions, token = pair.two.sessions, member.token
    pair.equal(await sessions.session("s"), None, "session() of one that does not exist")
    pair.equal(await sessions.session("s", known=1), None, "session() of one that does not exist, with its version")
    pair.equal(await sessions.change("s", token, expires=pair.one.now() + 60), None, "change() of one")
    pair.equal(await sessions.open("s", token, 2, ["2"]), False, "open() in one")
    pair.equal(await sessions.carry("s", token, 0), None, "carry() in one")
    pair.equal(await sessions.send("s", b"", member=member.number), False, "send() in one")
    numbers = await sessions.append(
        "s", [StoredEvent(5, 7, b"x"), StoredEvent(0, 0, b"y")], token, expires=pair.one.now() + 60
    )
    pair.equal([*numbers], [7, 0], "the numbers of append() to one")
    await sessions.drop("s", token, 0)
    for stream in (0, 5):
        await pair.raises(EventsLost, sessions.after("s", stream, 6 if stream else 0), "after() of what was appended")
    await sessions.end("s")


@store_rule("A session exists until it has expired and has no open stream")
async def sessions_expire(pair: PairOfStores) -> None:
    member, other = await join_both(pair)
    soon = pair.one.now() + 0.3
    for key in ("s", "open", "left"):
        await pair.one.sessions.add(StoredSession(key, b"", {"a": b""}, soon), limit=9)
    await pair.one.sessions.carry("s", member.token, 0)
    await pair.one.sessions.open("open", member.token, 1, ["1"])
    await pair.one.sessions.open("left", other.token, 1, ["1"])
    await until(pair.one.now, soon)
    await check_absent(pair, member)
    for key in ("open", "left"):
        pair.equal(await pair.two.sessions.session(key) is None, False, "whether one with an open stream is gone")
    numbers = await pair.one.sessions.append("open", [StoredEvent(1, 0, b"x")], member.token)
    pair.equal([*numbers], [1], "the numbers of append() to one with an open stream")
    pair.equal(await pair.one.sessions.change("open", member.token, fields={"b": b""}), 2, "change() of one")
    await pair.one.sessions.append("open", [], member.token, ended=[1])
    await pair.two.sessions.leave(other.token)
    for key in ("open", "left"):
        pair.equal(await pair.two.sessions.session(key), None, "session() after the end of its stream")
    pair.equal(await get_letters(pair.one, member), [], "the letters of one who carried streams of them")
    await add_session(pair)
    found = await pair.two.sessions.session("s")
    pair.equal(found and (found.version, found.fields), (1, {}), "a new session with the key of one that has expired")
    pair.equal(await pair.two.sessions.carry("s", member.token, 0), (0, True), "carry() in the new one")


# --- streams ----------------------------------------------------------------------------------------------------------


@store_rule("A stream is open until an append() ends it, and has the requests that it was opened with last")
async def streams_are_open(pair: PairOfStores) -> None:
    await add_session(pair)
    member, other = await join_both(pair)
    sessions = pair.one.sessions
    pair.equal(await sessions.open("s", member.token, 1, ["1", '"a"']), True, "open()")
    pair.equal(await sessions.open("s", member.token, 1, ['"a"']), True, "open() with fewer requests")
    pair.equal(await sessions.open("s", other.token, 2, ["2"]), True, "open() by another member")
    pair.equal(await sessions.open("unknown", member.token, 1, ["1"]), False, "open() in an unknown session")
    found = [*await pair.two.sessions.open_streams(member.token, 9)]
    pair.equal(found, [OpenStream("s", 1, ('"a"',))], "the open streams of a member")
    await sessions.append("s", [StoredEvent(1, 1, b"x")], member.token, ended=[1, 3])
    pair.equal([*await pair.two.sessions.open_streams(member.token, 9)], [], "its open streams after the end")
    pair.equal(len(await pair.two.sessions.open_streams(other.token, 9)), 1, "how many another has")
    await sessions.open("s", other.token, 1, ["1"])
    numbers = await sessions.append("s", [StoredEvent(1, 0, b"y")], other.token)
    pair.equal([*numbers], [2], "the number of an event in a stream that was opened again")


@store_rule("The last member to carry a stream is told of the events that others append, and of its end")
async def streams_are_carried(pair: PairOfStores) -> None:
    await add_session(pair)
    writer, carrier = await join_both(pair)
    third = await pair.one.sessions.join(lease=LONG)
    one, two = pair.one.sessions, pair.two.sessions
    await one.open("s", writer.token, 1, ["1"])

    async def append(*events: StoredEvent, by: Member = writer, ended: tuple[int, ...] = ()) -> None:
        await one.append("s", events, by.token, ended=ended)

    await append(StoredEvent(1, 0, b"1"))
    pair.equal(await get_letters(pair.one, writer), [], "the letters of one who writes and carries a stream")
    await append(StoredEvent(1, 0, b"2"), by=third)
    letters = [attrs.evolve(each, number=0) for each in await get_letters(pair.one, writer)]
    pair.equal(letters, [Letter(0, "events", "s", 1, 2)], "its letters after another has appended an event")
    pair.equal(await two.carry("s", carrier.token, 1), (2, True), "carry() of an open stream")
    letters = await get_letters(pair.one, writer)
    pair.equal(kinds(letters), [("events", "s", 1), ("taken", "s", 1)], "the letters of the one before")
    pair.equal(await two.carry("s", carrier.token, 1), (2, True), "carry() by the same member")
    await one.drop("s", writer.token, 1)
    await append(StoredEvent(1, 0, b"3"), StoredEvent(1, 0, b"4"), StoredEvent(0, 0, b"x"))
    letters = [attrs.evolve(each, number=0) for each in await get_letters(pair.two, carrier)]
    pair.equal(letters, [Letter(0, "events", "s", 1, 4)], "the letters of one who carries it")
    await append(by=writer, ended=(1,))
    letters = [attrs.evolve(each, number=0) for each in await get_letters(pair.two, carrier)]
    pair.equal(letters, [Letter(0, "events", "s", 1, 4, ended=True)], "its letters after the end")
    pair.equal(await one.carry("s", third.token, 1), (4, False), "carry() of a stream that has ended")
    pair.equal(await one.carry("s", third.token, 9), (0, False), "carry() of an unknown stream")
    pair.equal(await one.carry("unknown", third.token, 1), None, "carry() in an unknown session")
    await append(StoredEvent(1, 0, b"late"), StoredEvent(9, 0, b"late"))
    pair.equal(len(await get_letters(pair.two, carrier)), 1, "how many letters it has after events that are too late")
    pair.equal(await get_letters(pair.one, third), [], "the letters of one who could not carry them")
    pair.equal(await one.carry("s", third.token, 0), (1, True), "carry() of stream 0")
    await append(StoredEvent(0, 0, b"y"))
    pair.equal(kinds(await get_letters(pair.one, third)), [("events", "s", 0)], "the letters of one who carries that")
    await one.drop("s", third.token, 0)
    await append(StoredEvent(0, 0, b"z"))
    await one.change("s", writer.token, fields={"x": b""})
    letters = await get_letters(pair.one, third)
    pair.equal([each.event for each in letters], [2], "the letters after drop()")


@store_rule("One who carries a stream again finds no letters from before about it, but those about changes")
async def streams_are_carried_again(pair: PairOfStores) -> None:
    await add_session(pair)
    first, second = await join_both(pair)
    sessions = pair.one.sessions
    for stream in (1, 2):
        await sessions.open("s", second.token, stream, ["1"])
    for stream in (0, 1, 2):
        await sessions.carry("s", first.token, stream)
    events = [StoredEvent(stream, 0, b"x") for stream in (0, 1, 2)]
    await sessions.append("s", events, second.token)
    await sessions.change("s", second.token, fields={"x": b""})
    await sessions.send("s", b"message", member=first.number)
    for stream in (0, 1, 2):
        await pair.two.sessions.carry("s", second.token, stream)
    for stream in (0, 1):
        pair.equal(await sessions.carry("s", first.token, stream), (1, True), "carry() once more")
    expected = [("events", "s", 2), ("changed", "s", 0), ("message", "s", 0), ("taken", "s", 2)]
    pair.equal(kinds(await get_letters(pair.one, first)), expected, "the letters of one who carries two of three again")


@store_rule("No number is given twice in an open stream and in stream 0, even if the events are no longer stored")
async def numbers_are_given_once(pair: PairOfStores) -> None:
    await add_session(pair)
    member, other = await join_both(pair)
    await pair.one.sessions.open("s", member.token, 1, ["1"])
    events = [StoredEvent(stream, 0, b"x") for stream in (0, 1, 1)]
    await pair.one.sessions.append("s", events, member.token)
    await pair.one.sessions.append("s", [StoredEvent(1, 3, b"x")], member.token)
    await pair.two.sessions.forget("s")
    found = [await pair.two.sessions.carry("s", other.token, stream) for stream in (0, 1)]
    pair.equal(found, [(1, True), (3, True)], "the newest numbers in carry()")
    numbers = await pair.two.sessions.append("s", events, other.token)
    pair.equal([*numbers], [2, 4, 5], "the numbers of append()")
    pair.equal(len(await pair.two.sessions.after("s", 1, 3)), 2, "how many events are stored")


@store_rule("Of events that several processes append to one stream at once, each has a number of its own")
async def numbers_are_unique(pair: PairOfStores) -> None:
    await add_session(pair)
    members = await join_both(pair)
    numbers: list[int] = []

    async def append(number: int) -> None:
        store, member = (pair.one, pair.two)[number % 2], members[number % 2]
        for _ in range(MANY):
            numbers.extend(await store.sessions.append("s", [StoredEvent(0, 0, b"%d" % number)], member.token))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(append, number)
    pair.equal(sorted(numbers), [*range(1, 4 * MANY + 1)], "the numbers that four tasks got")


# --- cancellation -----------------------------------------------------------------------------------------------------


@store_rule(
    "A call about sessions that is cancelled before it begins has no effect, and one that returns is a checkpoint"
)
async def cancelled_session_calls_have_no_effect(pair: PairOfStores) -> None:
    session = await add_session(pair)
    member, other = await join_both(pair)
    sessions, token = pair.one.sessions, member.token
    await sessions.open("s", token, 1, ["1"])
    start = pair.one.clock()
    await pair.two.sessions.stay(other.token, lease=0.0)
    await pair.run_out(start - pair.lease)
    for call in (
        lambda: sessions.join(lease=60),
        lambda: sessions.stay(other.token, lease=LONG),
        lambda: sessions.letters(token, 0),
        lambda: sessions.take_over(lease=60, most=9),
        lambda: sessions.open_streams(token, 9),
        lambda: sessions.leave(token),
        lambda: sessions.add(attrs.evolve(session, key="new"), limit=9),
        lambda: sessions.session("s"),
        lambda: sessions.change("s", token, fields={"x": b""}),
        lambda: sessions.end("s"),
        lambda: sessions.open("s", token, 2, ["2"]),
        lambda: sessions.append("s", [StoredEvent(1, 1, b"x")], token, ended=[1]),
        lambda: sessions.after("s", 1, 0),
        lambda: sessions.forget("s"),
        lambda: sessions.carry("s", token, 0),
        lambda: sessions.drop("s", token, 1),
        lambda: sessions.send("s", b"x", member=member.number),
    ):
        with trio.CancelScope() as scope:
            scope.cancel()
            await call()
        if not scope.cancelled_caught:
            pair.fail("a call returned in a cancelled scope")
    pair.equal(await pair.two.sessions.session("s"), session, "the session after that")
    pair.equal(await pair.two.sessions.session("new"), None, "another session after that")
    found = [*await pair.two.sessions.open_streams(token, 9)]
    pair.equal(found, [OpenStream("s", 1, ("1",))], "the open streams after that")
    await pair.two.sessions.append("s", [StoredEvent(1, 0, b"x")], other.token)
    letters = await get_letters(pair.one, member)
    pair.equal([(each.kind, each.event) for each in letters], [("events", 1)], "its letters after that")
    taken = await pair.two.sessions.take_over(lease=60, most=9)
    pair.equal([each.number for each in taken], [other.number], "who is taken over after that")
    with trio.testing.assert_checkpoints():
        await sessions.leave("unknown")
    with trio.testing.assert_checkpoints():
        await sessions.append("s", [], token)
    with trio.testing.assert_checkpoints():
        await sessions.take_over(lease=60, most=9)
