"""The sessions of stores, and the members that serve them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from tests.checkpoints.store_rows import LONG, MOST, in_a_file, in_an_engine, in_memory
from tests.checkpoints.table import Check, all_or_nothing, call, cancelled_before, effect
from trio_mcp import EventsLost, StoredEvent
from trio_mcp.stores import Letter, Member, SessionStore, StaleWriter, StoredSession
from trio_mcp.stores.memory_sessions import MemorySessions
from trio_mcp.stores.sqlite_sessions import SqliteSessions
from trio_mcp.stores.valkey_sessions import ValkeySessions


@attrs.frozen
class Scene:
    """A session with a member that has a stream open, which another one carries.

    Attributes:
        sessions: Where they are kept.
        writer: The member that has the stream 1 open.
        carrier: The other one.
        lost: Members whose leases are lost.
    """

    sessions: SessionStore
    writer: Member
    carrier: Member
    lost: list[Member]

    @classmethod
    async def made(cls, sessions: SessionStore) -> Scene:
        writer, carrier = [await sessions.join(lease=LONG) for _ in range(2)]
        await sessions.add(session("s"), limit=MOST)
        await sessions.open("s", writer.token, 1, ["1"])
        await sessions.carry("s", carrier.token, 1)
        return cls(sessions, writer, carrier, [])

    async def prepare(self) -> None:
        """Add much that can be changed, once each."""
        for number in range(1, MOST):
            self.lost.append(await self.sessions.join(lease=0.0))
            await self.sessions.add(session(f"old {number}"), limit=10 * MOST)
            await self.sessions.append(f"old {number}", [StoredEvent(1, 1, b"")])
            await self.sessions.open("s", self.carrier.token, 100 + number, ["2"])

    async def letters(self, member: Member) -> list[Letter]:
        return [*await self.sessions.letters(member.token, 0)]


def session(key: str) -> StoredSession:
    return StoredSession(key, b"", {"a": b""}, 1e10)


EVENT = [StoredEvent(1, 0, b"")]

WAYS: dict[str, dict[str, Callable[[Scene], Awaitable[Any]]]] = {
    "join": {"a member": lambda each: each.sessions.join(lease=LONG)},
    "stay": {"in time": lambda each: each.sessions.stay(each.writer.token, lease=LONG, read=9)},
    "letters": {
        "some": lambda each: each.sessions.letters(each.writer.token, 0),
        "none": lambda each: each.sessions.letters(each.writer.token, 9),
    },
    "take_over": {"no member": lambda each: each.sessions.take_over(lease=LONG, most=1)},
    "open_streams": {
        "one": lambda each: each.sessions.open_streams(each.writer.token, 9),
        "none": lambda each: each.sessions.open_streams(each.carrier.token, 9),
    },
    "leave": {
        "a stale token": lambda each: each.sessions.leave("stale"),
        "a member": lambda each: each.sessions.leave(each.writer.token),
    },
    "add": {"a session": lambda each: each.sessions.add(session("new"), limit=9)},
    "session": {
        "a known one": lambda each: each.sessions.session("s"),
        "an unknown one": lambda each: each.sessions.session("unknown"),
    },
    "change": {
        "nothing": lambda each: each.sessions.change("s", each.writer.token),
        "a field": lambda each: each.sessions.change("s", each.writer.token, fields={"a": b"1"}),
        "an unknown session": lambda each: each.sessions.change("unknown", each.writer.token),
    },
    "end": {
        "an unknown session": lambda each: each.sessions.end("unknown"),
        "a known session": lambda each: each.sessions.end("s"),
    },
    "open": {
        "a stream": lambda each: each.sessions.open("s", each.writer.token, 2, ["1"]),
        "in an unknown session": lambda each: each.sessions.open("unknown", each.writer.token, 2, ["1"]),
    },
    "append": {
        "nothing": lambda each: each.sessions.append("s", []),
        "an event": lambda each: each.sessions.append("s", EVENT),
        "a member's": lambda each: each.sessions.append("s", EVENT, each.writer.token, ended=[1]),
        "to an unknown session": lambda each: each.sessions.append("unknown", EVENT, each.writer.token),
    },
    "after": {
        "some": lambda each: each.sessions.after("old 1", 1, 0),
        "none": lambda each: each.sessions.after("old 1", 1, 1),
    },
    "forget": {
        "an unknown session": lambda each: each.sessions.forget("unknown"),
        "a known session": lambda each: each.sessions.forget("s"),
    },
    "carry": {
        "an open stream": lambda each: each.sessions.carry("s", each.writer.token, 1),
        "another": lambda each: each.sessions.carry("s", each.writer.token, 9),
        "in an unknown session": lambda each: each.sessions.carry("unknown", each.writer.token, 1),
    },
    "drop": {
        "what another carries": lambda each: each.sessions.drop("s", each.writer.token, 1),
        "what it carries": lambda each: each.sessions.drop("s", each.carrier.token, 1),
    },
    "send": {
        "to a member": lambda each: each.sessions.send("s", b"", member=each.writer.number),
        "to no member": lambda each: each.sessions.send("s", b"", request="9"),
    },
}


async def members(scene: Scene) -> int:
    numbers = range(scene.lost[-1].number + 1, scene.lost[-1].number + MOST)
    return sum([await scene.sessions.send("s", b"", member=number) for number in numbers])


async def stale(scene: Scene) -> int:
    count = 0
    for member in scene.lost:
        try:
            await scene.sessions.letters(member.token, 0)
        except StaleWriter:
            count += 1
    return count


async def kept(scene: Scene, name: str) -> int:
    return sum([await scene.sessions.session(f"{name} {number}") is not None for number in range(1, MOST)])


async def version(scene: Scene) -> int:
    found = await scene.sessions.session("s")
    return 0 if found is None else found.version - 1


async def forgotten(scene: Scene) -> int:
    count = 0
    for number in range(1, MOST):
        try:
            await scene.sessions.after(f"old {number}", 1, 0)
        except EventsLost:
            count += 1
    return count


async def ended(scene: Scene) -> int:
    return MOST - 1 - await kept(scene, "old")


async def added(scene: Scene) -> int:
    return await kept(scene, "new")


async def opened(scene: Scene) -> int:
    return len(await scene.sessions.open_streams(scene.writer.token, 2 * MOST)) - 1


async def stored(scene: Scene) -> int:
    return len(await scene.sessions.after("s", 1, 1))


async def taken(scene: Scene) -> int:
    return len(await scene.letters(scene.carrier))


async def sent(scene: Scene) -> int:
    return sum(letter.kind == "message" for letter in await scene.letters(scene.writer))


Change = Callable[[Scene, int], Awaitable[object]]
State = Callable[[Scene], Awaitable[int]]

EFFECTS: dict[str, tuple[Change, State]] = {
    "join": (lambda each, _: each.sessions.join(lease=LONG), members),
    "take_over": (lambda each, _: each.sessions.take_over(lease=LONG, most=1), stale),
    "leave": (lambda each, number: each.sessions.leave(each.lost[number].token), stale),
    "add": (lambda each, number: each.sessions.add(session(f"new {number}"), limit=10 * MOST), added),
    "change": (lambda each, _: each.sessions.change("s", each.writer.token, fields={"a": b""}), version),
    "end": (lambda each, number: each.sessions.end(f"old {number}"), ended),
    "open": (lambda each, number: each.sessions.open("s", each.writer.token, 1000 + number, ["1"]), opened),
    "append": (lambda each, number: each.sessions.append("s", [StoredEvent(1, 1 + number, b"")]), stored),
    "forget": (lambda each, number: each.sessions.forget(f"old {number}"), forgotten),
    "carry": (lambda each, number: each.sessions.carry("s", each.writer.token, 100 + number), taken),
    "send": (lambda each, _: each.sessions.send("s", b"x", member=each.writer.number), sent),
}
"""The calls that count for what the second function shows, once each."""


def of_sessions(kind: Any, stores: Any) -> None:
    def calls(name: str) -> None:
        @call(getattr(kind, name), ", ".join(WAYS[name]))
        async def ways(check: Check) -> None:
            async with stores() as opened:
                scene = await Scene.made(opened.sessions)
                await scene.sessions.append("old 1", EVENT)
                for way in WAYS[name].values():
                    await check(way(scene))

    def effects(name: str) -> None:
        change, state = EFFECTS[name]

        @effect(getattr(kind, name), "done or cancelled")
        async def done() -> None:
            async with stores() as opened:
                scene = await Scene.made(opened.sessions)
                await scene.sessions.append("s", EVENT)
                await scene.prepare()
                await all_or_nothing(lambda number: change(scene, number), lambda: state(scene))

    for name in WAYS:
        calls(name)
    for name in EFFECTS:
        effects(name)

    @effect(kind.stay, "nothing is read")
    async def stayed() -> None:
        async with stores() as opened:
            scene = await Scene.made(opened.sessions)
            letters = await scene.letters(scene.writer)
            await cancelled_before(scene.sessions.stay(scene.writer.token, lease=LONG, read=9))
            assert letters == await scene.letters(scene.writer) != []

    @effect(kind.drop, "it is still carried")
    async def dropped() -> None:
        async with stores() as opened:
            scene = await Scene.made(opened.sessions)
            await cancelled_before(scene.sessions.drop("s", scene.carrier.token, 1))
            await scene.sessions.append("s", EVENT, scene.writer.token)
            assert [letter.kind for letter in await scene.letters(scene.carrier)] == ["events"]


of_sessions(MemorySessions, in_memory)
of_sessions(SqliteSessions, in_a_file)
of_sessions(ValkeySessions, in_an_engine)
