"""The rules for members: each holds a lease, and gets what the others leave in its mailbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

import trio

from trio_mcp.stores.contract import StaleWriter, StoreFull, Stores
from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.session_store import LETTERS, Letter, Member, OpenStream, StoredSession
from trio_mcp.testing.stores.rule import PairOfStores, store_rule

__all__ = ["LONG", "add_session", "get_letters", "join_both"]

MANY = 12

LONG = 1e6
"""Seconds of a lease that is not lost."""


async def add_session(
    pair: PairOfStores,
    key: str = "s",
    *,
    declaration: bytes = b"declared",
    fields: Collection[str] = (),
    seconds: float = 3600.0,
) -> StoredSession:
    """Add a session that expires in so many seconds; the value of each field is its name."""
    values = {name: name.encode() for name in fields}
    session = StoredSession(key, declaration, values, pair.one.now() + seconds)
    await pair.one.sessions.add(session, limit=1000)
    return session


async def join_both(pair: PairOfStores) -> tuple[Member, Member]:
    """Join as two members, one with each of the stores."""
    return await pair.one.sessions.join(lease=LONG), await pair.two.sessions.join(lease=LONG)


async def get_letters(stores: Stores, member: Member, after: int = 0) -> list[Letter]:
    """Return all letters of a member, however many `letters` returns at once."""
    found: list[Letter] = []
    while more := await stores.sessions.letters(member.token, found[-1].number if found else after):
        found += more
    return found


def about(letters: Collection[Letter]) -> list[tuple[str, str, int, int, bool, bytes]]:
    """Return what letters say, without their numbers."""
    return [(each.kind, each.session, each.stream, each.event, each.ended, each.data) for each in letters]


# --- leases -----------------------------------------------------------------------------------------------------------


@store_rule("Each member has a number that no other has ever had, a token of its own, and an empty mailbox")
async def members_are_numbered(pair: PairOfStores) -> None:
    members = [await store.sessions.join(lease=LONG) for store in (pair.one, pair.two, pair.one)]
    await pair.one.sessions.leave(members[-1].token)
    members.append(await pair.two.sessions.join(lease=LONG))
    pair.equal(len({member.number for member in members}), 4, "how many numbers of four members differ")
    pair.equal(min(member.number for member in members) > 0, True, "whether the numbers are above 0")
    pair.equal(len({"", *(member.token for member in members)}), 5, "how many tokens differ, with the empty one")
    pair.equal(await get_letters(pair.one, members[-1]), [], "the letters of a new member")


@store_rule("What needs a token is refused with a stale one, and has no effect")
async def members_hold_tokens(pair: PairOfStores) -> None:
    session = await add_session(pair)
    member, gone = await join_both(pair)
    await pair.two.sessions.open("s", member.token, 1, ["1"])
    await pair.two.sessions.carry("s", member.token, 1)
    await pair.two.sessions.append("s", [StoredEvent(1, 1, b"x")], member.token)
    await pair.two.sessions.leave(gone.token)
    sessions, event = pair.one.sessions, [StoredEvent(1, 1, b"x")]
    calls: dict[str, Callable[[str], Awaitable[object]]] = {
        "stay()": lambda token: sessions.stay(token, lease=60),
        "letters()": lambda token: sessions.letters(token, 0),
        "open_streams()": lambda token: sessions.open_streams(token, 9),
        "change()": lambda token: sessions.change("s", token, fields={"x": b""}),
        "open()": lambda token: sessions.open("s", token, 2, ["1"]),
        "append()": lambda token: sessions.append("s", [StoredEvent(1, 2, b"x")], token, ended=[1]),
        "append() of an event that is stored": lambda token: sessions.append("s", event, token),
        "append() to an unknown session": lambda token: sessions.append("unknown", event, token),
        "carry()": lambda token: sessions.carry("s", token, 1),
    }
    for token in (gone.token, "stale", ""):
        for what, call in calls.items():
            await pair.raises(StaleWriter, call(token), f"{what} with a stale token")
        await sessions.leave(token)
        await sessions.drop("s", token, 1)
    pair.equal(await pair.two.sessions.session("s"), session, "session() after that")
    pair.equal([*await pair.two.sessions.after("s", 1, 0)], event, "the events after that")
    found = [*await pair.two.sessions.open_streams(member.token, 9)]
    pair.equal(found, [OpenStream("s", 1, ("1",))], "the open streams after that")


@store_rule("A member that stays in time is not taken over, and keeps its letters until it has read them")
async def members_stay(pair: PairOfStores) -> None:
    await add_session(pair)
    member = await pair.one.sessions.join(lease=pair.lease)
    await pair.two.sessions.send("s", b"1", member=member.number)
    for _ in range(2):
        start = pair.one.clock()
        await pair.one.sessions.stay(member.token, lease=10 * pair.lease)
        await pair.run_out(start)
        pair.equal([*await pair.two.sessions.take_over(lease=60, most=9)], [], "take_over() of one who stays")
    pair.equal(about(await get_letters(pair.one, member)), [("message", "s", 0, 0, False, b"1")], "its letters")
    start = pair.one.clock()
    await pair.one.sessions.stay(member.token, lease=pair.lease)
    await pair.run_out(start)
    await pair.run_out(pair.two.clock() - pair.lease)
    taken = await pair.two.sessions.take_over(lease=60, most=9)
    pair.equal([each.number for each in taken], [member.number], "take_over() after a shorter lease")


@store_rule(
    "A member whose lease was lost goes on until it is taken over; then its token is stale, and the new one is not"
)
async def lost_members_are_taken_over(pair: PairOfStores) -> None:
    await add_session(pair)
    other = await pair.two.sessions.join(lease=LONG)
    start = pair.one.clock()
    member = await pair.one.sessions.join(lease=pair.lease)
    for stream in (1, 2):
        await pair.one.sessions.open("s", member.token, stream, [f"{stream}"])
    await pair.two.sessions.carry("s", other.token, 2)
    await pair.run_out(start)
    await pair.run_out(pair.two.clock() - pair.lease)
    await pair.one.sessions.append("s", [StoredEvent(1, 0, b"late")], member.token)
    await pair.two.sessions.send("s", b"1", request="1")
    taken = [*await pair.two.sessions.take_over(lease=LONG, most=9)]
    pair.equal([each.number for each in taken], [member.number], "the numbers of those that are taken over")
    (new,) = taken
    pair.equal(new.token in ("", member.token), False, "whether the token is the old one")
    pair.equal([*await pair.one.sessions.take_over(lease=60, most=9)], [], "a second take_over()")
    late = pair.one.sessions.append("s", [StoredEvent(1, 1, b"late")], member.token)
    await pair.raises(StaleWriter, late, "append() with the old token")
    await pair.raises(StaleWriter, pair.one.sessions.stay(member.token, lease=60), "stay() with the old token")
    pair.equal(await get_letters(pair.two, new), [], "the letters of one that was taken over")
    streams = [*await pair.two.sessions.open_streams(new.token, 9)]
    expected = [OpenStream("s", 1, ("1",)), OpenStream("s", 2, ("2",))]
    pair.equal(sorted(streams, key=lambda each: each.stream), expected, "its open streams")
    pair.equal(len(await pair.two.sessions.open_streams(new.token, 1)), 1, "how many of two streams one call returns")
    for each in streams:
        await pair.two.sessions.append("s", [StoredEvent(each.stream, 0, b"lost")], new.token, ended=[each.stream])
    pair.equal([*await pair.two.sessions.open_streams(new.token, 9)], [], "its open streams after their end")
    pair.equal([*await pair.one.sessions.after("s", 1, 1)], [StoredEvent(1, 2, b"lost")], "what ends its stream")
    letters = about(await get_letters(pair.two, other))
    pair.equal(letters, [("events", "s", 2, 1, True, b"")], "the letters of one that carried its stream")
    await pair.two.sessions.leave(new.token)
    pair.equal(await pair.one.sessions.send("s", b"", member=new.number), False, "send() to one that has left")


@store_rule("If several processes take over members at once, each member goes to one of them")
async def one_takes_over(pair: PairOfStores) -> None:
    start = pair.one.clock()
    members = [await pair.one.sessions.join(lease=0.0) for _ in range(MANY)]
    await pair.run_out(start - pair.lease)
    taken: list[Member] = []

    async def take(number: int) -> None:
        for _ in range(MANY):
            taken.extend(await (pair.one, pair.two)[number % 2].sessions.take_over(lease=LONG, most=2))

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(take, number)
    pair.equal(sorted(each.number for each in taken), [each.number for each in members], "whom four processes got")
    pair.equal(len({each.token for each in (*taken, *members)}), 2 * MANY, "how many tokens differ")


@store_rule("One who leaves leaves no open stream, and those who carry its streams are told that they have ended")
async def members_leave(pair: PairOfStores) -> None:
    await add_session(pair)
    member, other = await join_both(pair)
    for stream in (1, 2):
        await pair.one.sessions.open("s", member.token, stream, ["1"])
    await pair.one.sessions.open("s", other.token, 3, ["1"])
    await pair.one.sessions.append("s", [StoredEvent(1, 0, b"x")], member.token)
    await pair.two.sessions.carry("s", other.token, 1)
    await pair.one.sessions.carry("s", member.token, 3)
    await pair.one.sessions.leave(member.token)
    letters = about(await get_letters(pair.two, other))
    expected = [("taken", "s", 3, 0, False, b""), ("events", "s", 1, 1, True, b"")]
    pair.equal(letters, expected, "the letters of one that carried its stream")
    found = [await pair.two.sessions.carry("s", other.token, stream) for stream in (1, 2, 3)]
    pair.equal(found, [(1, False), (0, False), (0, True)], "carry() of its streams, and of another")
    pair.equal(await pair.two.sessions.send("s", b"", request="1"), True, "send() to another's request")
    pair.equal(await pair.two.sessions.send("s", b"", member=member.number), False, "send() to one that has left")


# --- mailboxes --------------------------------------------------------------------------------------------------------


@store_rule("Messages stay in their order, and a member's letters until it has read them; numbers grow in any case")
async def letters_are_in_order(pair: PairOfStores) -> None:
    await add_session(pair)
    member, other = await join_both(pair)
    for number in range(MANY):
        sent = await (pair.one, pair.two)[number % 2].sessions.send("s", b"%d" % number, member=member.number)
        pair.equal(sent, True, "send() to a member")
    letters = await get_letters(pair.one, member)
    pair.equal([letter.data for letter in letters], [b"%d" % number for number in range(MANY)], "the messages")
    numbers = [letter.number for letter in letters]
    pair.equal(numbers, sorted({*numbers} - {0}), "the numbers of letters")
    pair.equal(await get_letters(pair.two, member, numbers[4]), letters[5:], "the letters after the fifth")
    await pair.one.sessions.stay(member.token, lease=LONG, read=numbers[-1])
    pair.equal(await get_letters(pair.one, member), [], "the letters after all were read")
    await pair.two.sessions.send("s", b"new", member=member.number)
    (letter,) = await get_letters(pair.one, member)
    pair.equal(letter.number > numbers[-1], True, "whether the number of the next letter is higher")
    await pair.one.sessions.stay(member.token, lease=LONG, read=numbers[-1])
    pair.equal(await get_letters(pair.one, member), [letter], "the letters after a stay() that has not read it")
    pair.equal(await get_letters(pair.one, other), [], "the letters of another member")


@store_rule("A letter replaces the one that waits about the same, and comes after all that were there")
async def letters_are_replaced(pair: PairOfStores) -> None:
    await add_session(pair)
    writer, carrier = await join_both(pair)
    await pair.one.sessions.open("s", writer.token, 1, ["1"])
    for stream in (0, 1):
        await pair.two.sessions.carry("s", carrier.token, stream)
    for number in range(1, 4):
        await pair.one.sessions.append("s", [StoredEvent(1, number, b"x")], writer.token)
        await pair.one.sessions.change("s", writer.token, fields={"x": b"%d" % number})
        if number == 1:
            before = await get_letters(pair.two, carrier)
            await pair.one.sessions.send("s", b"message", member=carrier.number)
    letters = await get_letters(pair.two, carrier)
    expected = [
        ("message", "s", 0, 0, False, b"message"),
        ("events", "s", 1, 3, False, b""),
        ("changed", "s", 0, 0, False, b""),
    ]
    pair.equal(about(letters), expected, "the letters after three events and three changes")
    pair.equal(await get_letters(pair.two, carrier, before[-1].number), letters, "those after what was read before")
    await pair.one.sessions.append("s", [StoredEvent(0, 0, b"y")], writer.token)
    pair.equal(len(await get_letters(pair.two, carrier)), 4, "how many letters there are after an event of stream 0")


@store_rule("A mailbox has a limit, but for a single message; a message for several members goes to all or to none")
async def mailboxes_are_bounded(pair: PairOfStores) -> None:
    await add_session(pair)
    member, other = await join_both(pair)
    for stream, each in enumerate((member, other), 1):
        await pair.one.sessions.open("s", each.token, stream, ["1"])
    sessions = pair.two.sessions
    pair.equal(await sessions.send("s", b"12345678", member=member.number, limit=4), True, "send() of a large message")
    full = sessions.send("s", b"x", member=member.number, limit=4)
    await pair.raises(StoreFull, full, "send() to a full mailbox")
    await pair.raises(StoreFull, sessions.send("s", b"x", request="1", limit=4), "send() to two, of which one is full")
    pair.equal(await get_letters(pair.one, other), [], "the letters of the other one")
    (letter,) = await get_letters(pair.one, member)
    await pair.one.sessions.stay(member.token, lease=LONG, read=letter.number)
    sent = [await sessions.send("s", b"xx", request="1", limit=4) for _ in range(2)]
    pair.equal(sent, [True, True], "send() of as much as the limit, once the mailbox is empty")
    await pair.raises(StoreFull, sessions.send("s", b"x", member=other.number, limit=4), "send() of one byte more")
    pair.equal(len(await get_letters(pair.one, member)), 2, "how many letters it has")


@store_rule("A message reaches each member that runs a request with its id in this session, once")
async def messages_reach_requests(pair: PairOfStores) -> None:
    for key in ("s", "t"):
        await add_session(pair, key)
    member, other = await join_both(pair)
    for key, stream, each, requests in (
        ("s", 1, member, ["1", '"a"']),
        ("s", 2, member, ["1"]),
        ("t", 1, other, ["1"]),
        ("s", 3, other, ['"1"']),
    ):
        await pair.one.sessions.open(key, each.token, stream, requests)
    sessions = pair.two.sessions
    pair.equal(await sessions.send("s", b"x", request="1"), True, "send() to a request")
    pair.equal(about(await get_letters(pair.one, member)), [("message", "s", 0, 0, False, b"x")], "what its member got")
    pair.equal(await get_letters(pair.one, other), [], "what another member got, with this id in another session")
    calls: dict[str, Callable[[], Awaitable[bool]]] = {
        "an unknown id": lambda: sessions.send("s", b"", request="2"),
        "an unknown session": lambda: sessions.send("unknown", b"", request="1"),
        "an unknown member": lambda: sessions.send("s", b"", member=10**6),
        "a member, and an unknown session": lambda: sessions.send("unknown", b"", member=member.number),
        "no member": lambda: sessions.send("s", b""),
    }
    for what, call in calls.items():
        pair.equal(await call(), False, f"send() to {what}")
    await pair.one.sessions.open("s", member.token, 1, ['"a"'])
    await pair.one.sessions.append("s", [], member.token, ended=[2])
    pair.equal(await sessions.send("s", b"", request="1"), False, "send() to a request that has its response")
    pair.equal(await sessions.send("s", b"", request='"a"'), True, "send() to one that has none yet")
    pair.equal(len(await get_letters(pair.one, member)), 2, "how many letters it has")


@store_rule("Letters wake those who listen to their topic")
async def letters_are_announced(pair: PairOfStores) -> None:
    await add_session(pair)
    member, _ = await join_both(pair)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pair.two.hear)
        with pair.two.listen(LETTERS, look=LONG) as listener:
            heard = False
            # The process may only begin to hear after the first letter.
            while not heard:
                await pair.one.sessions.send("s", b"x", member=member.number)
                with trio.move_on_after(0.5):
                    await listener.woken()
                    heard = True
        nursery.cancel_scope.cancel()
