"""Sessions in memory that break a rule of `check_stores`, one for each rule."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import attrs
import trio

from trio_mcp import EventsLost, MemoryEventStore, StoredEvent
from trio_mcp.stores import Letter, Member, MemoryStores, StaleWriter, StoredSession
from trio_mcp.stores.memory_sessions import MemorySessions


class FaultySessions(MemorySessions):
    """The base of sessions that break the rule with the name in ``breaks``."""

    breaks = ""


class OfFaultySessions(MemoryStores):
    """Stores whose sessions break a rule."""

    def __init__(self, kind: type[FaultySessions]) -> None:
        super().__init__()
        events = MemoryEventStore(clock=self._clock)
        self._sessions = kind(events, self._listeners, self._clock, self._now)


# --- events -----------------------------------------------------------------------------------------------------------


class Mixed(FaultySessions):
    breaks = "events_follow_each_other"

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        return await super().after("a", stream, number)


class Changing(FaultySessions):
    breaks = "stored_events_stay"

    async def append(
        self, session: str, events: Sequence[StoredEvent], token: str | None = None, **more: Any
    ) -> Sequence[int]:
        if events and events[0].data == b"changed":
            await super().forget(session)
            await super().append(session, [StoredEvent(1, 1, b"1/1")])
        return await super().append(session, events, token, **more)


class Silent(FaultySessions):
    breaks = "gaps_are_reported"

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        return [] if stream == 3 else await super().after(session, stream, number)


class Unnumbered(FaultySessions):
    breaks = "numbers_are_given"

    async def append(
        self, session: str, events: Sequence[StoredEvent], token: str | None = None, **more: Any
    ) -> Sequence[int]:
        await super().append(session, events, token, **more)
        return [event.number for event in events]


class Everything(FaultySessions):
    breaks = "sessions_are_forgotten"

    async def forget(self, session: str) -> None:
        for each in "ab":
            await super().forget(each)


# --- members, sessions and streams ------------------------------------------------------------------------------------


class Renumbered(FaultySessions):
    breaks = "members_are_numbered"

    async def join(self, *, lease: float) -> Member:
        self._joined = max(self._members, default=0)
        return await super().join(lease=lease)


class Careless(FaultySessions):
    breaks = "members_hold_tokens"

    async def append(
        self, session: str, events: Sequence[StoredEvent], token: str | None = None, **more: Any
    ) -> Sequence[int]:
        if all(event.number for event in events) and await self.stored(session, events):  # as if it were a repetition
            return [event.number for event in events]
        return await super().append(session, events, token, **more)

    async def stored(self, session: str, events: Sequence[StoredEvent]) -> bool:
        try:
            return all([[*await self.after(session, each.stream, each.number - 1)] == [each] for each in events])
        except EventsLost:
            return False


class Impatient(FaultySessions):
    breaks = "members_stay"

    async def stay(self, token: str, *, lease: float, read: int = 0) -> None:
        await super().stay(token, lease=lease, read=10**9)


class Punctual(FaultySessions):
    """A lease that has expired is stale, even if no other member has taken it over."""

    breaks = "lost_members_are_taken_over"

    def _member(self, token: str) -> Any:
        member = super()._member(token)
        if member.until <= self._clock():
            raise StaleWriter
        return member


class Unfenced(FaultySessions):
    breaks = "one_takes_over"

    async def take_over(self, *, lease: float, most: int) -> Sequence[Member]:
        lost = [each for each in self._members.values() if each.until <= self._clock()][:most]
        await trio.lowlevel.checkpoint()
        return [self._fence(each, lease) for each in lost]


class Speechless(FaultySessions):
    breaks = "members_leave"

    async def leave(self, token: str) -> None:
        streams = await self.open_streams(token, 99) if token in self._tokens else ()
        for each in streams:
            await self.append(each.session, [], token, ended=[each.stream])
            for member in self._members.values():
                member.remove("events", each.session, each.stream)
        await super().leave(token)


class Restarting(FaultySessions):
    """The numbers of letters begin again in an empty mailbox."""

    breaks = "letters_are_in_order"

    async def stay(self, token: str, *, lease: float, read: int = 0) -> None:
        await super().stay(token, lease=lease, read=read)
        member = self._member(token)
        member.newest = max(member.letters, default=0)


class InPlace(FaultySessions):
    """A letter that replaces another keeps its number, which may have been read already."""

    breaks = "letters_are_replaced"

    def _put(self, number: int, letter: Letter) -> None:
        member = self._members.get(number)
        if member is not None and (old := member.waiting.get((letter.kind, letter.session, letter.stream))):
            member.letters[old] = attrs.evolve(letter, number=old)
        else:
            super()._put(number, letter)


class HalfSent(FaultySessions):
    breaks = "mailboxes_are_bounded"

    async def send(self, key: str, data: bytes, **more: Any) -> bool:
        request = more.pop("request", None)
        if request is None:
            return await super().send(key, data, **more)
        members = {each.member for each in self._sessions[key].streams.values() if request in each.requests}
        return all([await super(HalfSent, self).send(key, data, member=each, **more) for each in sorted(members)[::-1]])


class Repeating(FaultySessions):
    breaks = "messages_reach_requests"

    async def send(self, key: str, data: bytes, *, request: str | None = None, **more: Any) -> bool:
        found = self._session(key)
        sent = await super().send(key, data, request=request, **more)
        for stream in [*found.streams.values()][1:] if found else ():
            if request in stream.requests:
                self._put(stream.member, Letter(0, "message", key, data=data))
        return sent


class Unannounced(FaultySessions):
    breaks = "letters_are_announced"

    def _put(self, number: int, letter: Letter) -> None:
        if number in self._members:
            self._members[number].put(letter)


class Overwritten(FaultySessions):
    breaks = "sessions_are_kept"

    async def add(self, session: StoredSession, **more: Any) -> None:
        self._sessions.pop(session.key, None)
        await super().add(session, **more)


class Shortening(FaultySessions):
    breaks = "sessions_change"

    def _prolong(self, found: Any, expires: float | None) -> None:
        if expires is not None:
            found.stored = attrs.evolve(found.stored, expires=expires)


class Evicting(FaultySessions):
    """A session with an open stream may be deleted to make room."""

    breaks = "sessions_have_a_limit"

    async def add(self, session: StoredSession, *, limit: int, unless: str = "") -> None:
        if unless and len(self._sessions) >= limit and "open" in self._sessions:
            await self.end("open")
        await super().add(session, limit=limit, unless=unless)


class Remaining(FaultySessions):
    """The events of a session that was ended remain."""

    breaks = "sessions_end"

    async def end(self, key: str) -> None:
        events = [*await self.after(key, 1, 0)] if key in self._sessions else []
        await super().end(key)
        await self.append(key, events)


class Abrupt(FaultySessions):
    """A session with an open stream expires."""

    breaks = "sessions_expire"

    def _session(self, key: str) -> Any:
        found = self._sessions.get(key)
        return None if found is None or found.stored.expires <= self._now() else found


class Growing(FaultySessions):
    breaks = "streams_are_open"

    async def open(self, key: str, token: str, stream: int, requests: Collection[str]) -> bool:
        found = self._session(key)
        before = found.streams[stream].requests if found is not None and stream in found.streams else ()
        return await super().open(key, token, stream, [*before, *requests])


class Stubborn(FaultySessions):
    """The first member to carry a stream carries it to its end."""

    breaks = "streams_are_carried"

    async def carry(self, key: str, token: str, stream: int) -> tuple[int, bool] | None:
        found = self._session(key)
        carrier = found.streams[stream].carrier if found is not None and stream in found.streams else 0
        carried = await super().carry(key, token, stream)
        if found is not None and carrier in self._members:
            self._hold(found, stream, member=found.streams[stream].member, carrier=carrier)
        return carried


class Nagging(FaultySessions):
    breaks = "streams_are_carried_again"

    async def carry(self, key: str, token: str, stream: int) -> tuple[int, bool] | None:
        member = self._member(token)
        letters, waiting = {**member.letters}, {**member.waiting}
        carried = await super().carry(key, token, stream)
        member.letters, member.waiting = letters, waiting
        return carried


class FromStored(FaultySessions):
    """The next number follows from the events that are still stored."""

    breaks = "numbers_are_given_once"

    def _newest(self, found: Any, number: int) -> int:
        return self._events.newest(found.stored.key, number)


class Counting(FaultySessions):
    breaks = "numbers_are_unique"

    async def append(
        self, session: str, events: Sequence[StoredEvent], token: str | None = None, **more: Any
    ) -> Sequence[int]:
        newest = self._events.newest(session, 0)
        await trio.lowlevel.checkpoint()
        events = [attrs.evolve(each, number=each.number or newest + 1) for each in events]
        return await super().append(session, events, token, **more)


class Quick(FaultySessions):
    breaks = "cancelled_session_calls_have_no_effect"

    async def drop(self, key: str, token: str, stream: int) -> None:
        pass
