"""The rules for the messages of sessions: they keep their order, and a gap is reported."""

from __future__ import annotations

from trio_mcp.stores.event_store import EventsLost, StoredEvent
from trio_mcp.testing.stores.rule import PairOfStores, store_rule

__all__: list[str] = []


def events(stream: int, *numbers: int) -> list[StoredEvent]:
    """Return events whose data names their stream and number."""
    return [StoredEvent(stream, number, b"%d/%d" % (stream, number)) for number in numbers]


async def every(pair: PairOfStores, session: str, stream: int) -> list[StoredEvent]:
    """Return all events of a stream, however many `after` returns at once."""
    found: list[StoredEvent] = []
    while more := await pair.two.sessions.after(session, stream, found[-1].number if found else 0):
        found += more
    return found


@store_rule("The events of a stream are returned in order, and none of another stream or session")
async def events_follow_each_other(pair: PairOfStores) -> None:
    numbers = await pair.one.sessions.append("a", [*events(1, 1, 2), *events(2, 1)])
    pair.equal([*numbers], [1, 2, 1], "what append() returns")
    await pair.two.sessions.append("b", events(1, 1))
    await pair.one.sessions.append("a", events(1, *range(3, 301)))
    pair.equal(await every(pair, "a", 1), events(1, *range(1, 301)), "the events of a stream")
    pair.equal(await every(pair, "a", 2), events(2, 1), "the events of another stream")
    pair.equal(await every(pair, "b", 1), events(1, 1), "the events of another session")
    pair.equal([*await pair.two.sessions.after("a", 1, 299)], events(1, 300), "after() the last but one")
    pair.equal([*await pair.two.sessions.after("a", 1, 300)], [], "after() the last")


@store_rule("An event that is stored already stays as it is")
async def stored_events_stay(pair: PairOfStores) -> None:
    await pair.one.sessions.append("a", events(1, 1, 2))
    numbers = await pair.two.sessions.append("a", [StoredEvent(1, 2, b"changed"), *events(1, 3)])
    pair.equal([*numbers], [2, 3], "what append() returns")
    pair.equal(await every(pair, "a", 1), events(1, 1, 2, 3), "the events of the stream")


@store_rule("Events after a gap, and those of an unknown stream, are lost")
async def gaps_are_reported(pair: PairOfStores) -> None:
    await pair.one.sessions.append("a", events(1, 1))
    await pair.one.sessions.append("a", events(2, 5))
    for session, stream, number in (("b", 1, 0), ("a", 3, 0), ("a", 1, 2), ("a", 2, 3)):
        call = pair.two.sessions.after(session, stream, number)
        await pair.raises(EventsLost, call, f"after({session!r}, {stream}, {number})")


@store_rule("An event whose number is 0 gets the next number of its stream, whichever process appends it")
async def numbers_are_given(pair: PairOfStores) -> None:
    got: list[int] = []
    for store in (pair.one, pair.two, pair.one):
        got += await store.sessions.append(
            "a", [StoredEvent(0, 0, b"x"), StoredEvent(0, 0, b"y"), StoredEvent(1, len(got) + 1, b"")]
        )
    pair.equal(got, [1, 2, 1, 3, 4, 4, 5, 6, 7], "the numbers that append() returns")
    pair.equal([event.number for event in await every(pair, "a", 0)], [1, 2, 3, 4, 5, 6], "the numbers of stream 0")


@store_rule("A session that is forgotten has no events, and others keep theirs")
async def sessions_are_forgotten(pair: PairOfStores) -> None:
    for session in ("a", "b"):
        await pair.one.sessions.append(session, events(1, 1))
    await pair.two.sessions.forget("a")
    await pair.two.sessions.forget("unknown")
    await pair.raises(EventsLost, pair.one.sessions.after("a", 1, 0), "after() of a session that was forgotten")
    pair.equal(await every(pair, "b", 1), events(1, 1), "the events of another session")
