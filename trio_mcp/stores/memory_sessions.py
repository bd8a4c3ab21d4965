"""The sessions of `MemoryStores`, and the members that serve them."""

from __future__ import annotations

import heapq
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import attrs
import trio

from trio_mcp.stores.event_store import StoredEvent
from trio_mcp.stores.event_stores import MemoryEventStore
from trio_mcp.stores.listeners import MOMENT, TopicListeners
from trio_mcp.stores.refusals import mailbox_full, session_exists, sessions_full, stale_member
from trio_mcp.stores.session_store import (
    LETTERS,
    MAILBOX,
    Letter,
    Member,
    OpenStream,
    SessionStore,
    StoredSession,
)

__all__ = ["MemorySessions"]


@attrs.define(eq=False)
class _Member:
    """A member in memory.

    Attributes:
        until: When its lease expires, on the clock of leases.
        newest: The number of its newest letter.
        bytes: The size of the messages that wait.
        letters: The letters that wait, by number.
        waiting: The numbers of those that newer ones replace, by kind, session and stream.
        streams: The streams that it has open or carries, each with the key of its session.
    """

    number: int
    token: str
    until: float
    newest: int = 0
    bytes: int = 0
    letters: dict[int, Letter] = attrs.Factory(dict)
    waiting: dict[tuple[str, str, int], int] = attrs.Factory(dict)
    streams: set[tuple[str, int]] = attrs.Factory(set)

    def put(self, letter: Letter) -> None:
        """Put a letter into the mailbox; its number is ignored."""
        self.newest += 1
        letter = attrs.evolve(letter, number=self.newest)
        if letter.kind == "message":
            self.bytes += len(letter.data)
        else:
            self.remove(letter.kind, letter.session, letter.stream)
            self.waiting[letter.kind, letter.session, letter.stream] = letter.number
        self.letters[letter.number] = letter

    def remove(self, *about: *tuple[str, str, int]) -> None:
        """Delete the letter about something that waits."""
        number = self.waiting.pop(about, None)
        if number is not None:
            del self.letters[number]

    def read(self, number: int) -> None:
        """Delete the letters up to a number."""
        for letter in [*self.letters.values()]:
            if letter.number > number:
                break
            if letter.kind == "message":
                self.bytes -= len(letter.data)
            else:
                del self.waiting[letter.kind, letter.session, letter.stream]
            del self.letters[letter.number]


@attrs.define(eq=False)
class _Stream:
    """A stream that is open, or stream 0.

    Attributes:
        member: The number of the member that has it open; 0 for stream 0.
        carrier: The number of the member that carries it; 0 for none.
        requests: The ids of the requests that have no response yet.
        newest: The number of its newest event, even if that is no longer stored.
    """

    member: int = 0
    carrier: int = 0
    requests: tuple[str, ...] = ()
    newest: int = 0


@attrs.define(eq=False)
class _Session:
    """A session in memory.

    Attributes:
        streams: The streams that are open, and stream 0 once it is used, by number.
        queued: Whether it is in the queue of those that expire.
    """

    stored: StoredSession
    streams: dict[int, _Stream] = attrs.Factory(dict)
    queued: bool = False

    def open(self) -> bool:
        """Return whether a stream is open, other than stream 0."""
        return any(self.streams)


class MemorySessions(SessionStore):
    """The sessions of `MemoryStores`.

    Args:
        events: What keeps the events.
        listeners: The listeners to wake.
        clock: Returns the time by which leases expire.
        now: Returns the seconds since the epoch, by which sessions expire.
    """

    def __init__(
        self,
        events: MemoryEventStore,
        listeners: TopicListeners,
        clock: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._events = events
        self._listeners = listeners
        self._clock = clock
        self._now = now
        self._joined = 0
        self._members: dict[int, _Member] = {}
        self._tokens: dict[str, _Member] = {}
        self._sessions: dict[str, _Session] = {}
        # A heap of the times at which sessions expire, with an entry for each session that has no open stream. The time
        # may be too early, as the session may have been prolonged since.
        self._expiring: list[tuple[float, str]] = []

    def leases(self) -> Iterator[float]:
        """Return when the leases of members expire, on the clock of leases."""
        return (member.until for member in self._members.values())

    # --- members -------------------------------------------------------------------------------------------------

    async def join(self, *, lease: float) -> Member:
        await trio.lowlevel.checkpoint()
        self._joined += 1
        member = self._members[self._joined] = _Member(self._joined, "", 0.0)
        return self._fence(member, lease)

    async def stay(self, token: str, *, lease: float, read: int = 0) -> None:
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        member = self._member(token)
        member.until = self._clock() + lease
        self._listeners.hurry(lease + MOMENT)
        member.read(read)

    async def letters(self, token: str, after: int) -> Sequence[Letter]:
        await trio.lowlevel.checkpoint()
        return [letter for letter in self._member(token).letters.values() if letter.number > after]

    async def take_over(self, *, lease: float, most: int) -> Sequence[Member]:
        await trio.lowlevel.checkpoint()
        clock = self._clock()
        lost = [member for member in self._members.values() if member.until <= clock]
        return [self._fence(member, lease) for member in lost[:most]]

    async def open_streams(self, token: str, most: int) -> Sequence[OpenStream]:
        await trio.lowlevel.checkpoint()
        member = self._member(token)
        found: list[OpenStream] = []
        for key, number in member.streams:
            stream = self._sessions[key].streams[number]
            if stream.member == member.number and len(found) < most:
                found.append(OpenStream(key, number, stream.requests))
        return found

    async def leave(self, token: str) -> None:
        await trio.lowlevel.checkpoint()
        member = self._tokens.pop(token, None)
        if member is None:
            return
        del self._members[member.number]
        for key, number in sorted(member.streams):
            stream = self._sessions[key].streams[number]
            if stream.carrier == member.number:
                stream.carrier = 0
            if stream.member == member.number:
                self._close(self._sessions[key], number, member.number)

    # --- sessions ------------------------------------------------------------------------------------------------

    async def add(self, session: StoredSession, *, limit: int, unless: str = "") -> None:
        await trio.lowlevel.checkpoint()
        self._drop_expired()
        if session.key in self._sessions:
            raise session_exists(session.key)
        if len(self._sessions) >= limit:
            spare = [
                (each.stored.expires, key)
                for key, each in self._sessions.items()
                if unless and unless not in each.stored.fields and not each.open()
            ]
            if not spare:
                raise sessions_full(limit)
            self._delete(min(spare)[1], letters=True)
        added = _Session(attrs.evolve(session, fields=dict(session.fields), version=1))
        self._sessions[session.key] = added
        self._queue(added)

    async def session(self, key: str, *, known: int = 0) -> StoredSession | None:
        await trio.lowlevel.checkpoint()
        found = self._session(key)
        if found is None:
            return None
        if found.stored.version == known:
            return attrs.evolve(found.stored, declaration=b"", fields={})
        return found.stored

    async def change(
        self, key: str, token: str, *, expires: float | None = None, fields: Mapping[str, bytes | None] | None = None
    ) -> int | None:
        await trio.lowlevel.checkpoint()
        member, found = self._member(token), self._session(key)
        if found is None:
            return None
        self._prolong(found, expires)
        if fields:
            changed = {name: value for name, value in {**found.stored.fields, **fields}.items() if value is not None}
            found.stored = attrs.evolve(found.stored, fields=changed, version=found.stored.version + 1)
            stream = found.streams.get(0)
            if stream is not None and stream.carrier != member.number:
                self._put(stream.carrier, Letter(0, "changed", key))
        return found.stored.version

    async def end(self, key: str) -> None:
        await trio.lowlevel.checkpoint()
        if self._session(key) is not None:
            self._delete(key, letters=True)

    # --- streams -------------------------------------------------------------------------------------------------

    async def open(self, key: str, token: str, stream: int, requests: Collection[str]) -> bool:
        await trio.lowlevel.checkpoint()
        member, found = self._member(token), self._session(key)
        if found is None:
            return False
        noted = found.streams.get(stream)
        if noted is None:
            noted = found.streams[stream] = _Stream(carrier=member.number)
        self._hold(found, stream, member=member.number, carrier=noted.carrier)
        noted.requests = tuple(requests)
        return True

    async def append(
        self,
        session: str,
        events: Sequence[StoredEvent],
        token: str | None = None,
        *,
        ended: Collection[int] = (),
        expires: float | None = None,
    ) -> Sequence[int]:
        await trio.lowlevel.checkpoint()
        number = 0 if token is None else self._member(token).number
        found = self._session(session)
        if found is None:
            return self._events.insert(session, events) if token is None else [event.number for event in events]
        events = self._numbered(found, events)
        self._events.insert(session, events)
        if token is not None:
            self._tell(found, events, number, ended)
            self._prolong(found, expires)
        return [event.number for event in events]

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        return await self._events.after(session, stream, number)

    async def forget(self, session: str) -> None:
        await self._events.forget(session)

    async def carry(self, key: str, token: str, stream: int) -> tuple[int, bool] | None:
        await trio.lowlevel.checkpoint()
        member, found = self._member(token), self._session(key)
        if found is None:
            return None
        for kind in ("events", "taken"):
            member.remove(kind, key, stream)
        noted = found.streams.get(stream) if stream else found.streams.setdefault(0, _Stream())
        if noted is None:
            return self._events.newest(key, stream), False
        if noted.carrier != member.number:
            self._put(noted.carrier, Letter(0, "taken", key, stream))
        self._hold(found, stream, member=noted.member, carrier=member.number)
        return self._newest(found, stream), True

    async def drop(self, key: str, token: str, stream: int) -> None:
        await trio.lowlevel.checkpoint()
        member, found = self._tokens.get(token), self._session(key)
        noted = None if found is None else found.streams.get(stream)
        if found is not None and noted is not None and member is not None and noted.carrier == member.number:
            self._hold(found, stream, member=noted.member, carrier=0)

    async def send(
        self, key: str, data: bytes, *, member: int | None = None, request: str | None = None, limit: int = MAILBOX
    ) -> bool:
        await trio.lowlevel.checkpoint()
        found = self._session(key)
        if found is None:
            return False
        numbers = [each.member for each in found.streams.values() if request in each.requests]
        targets = {number for number in (numbers if member is None else [member]) if number in self._members}
        for number in targets:
            waiting = self._members[number].bytes
            if waiting and waiting + len(data) > limit:
                raise mailbox_full(number, limit)
        for number in targets:
            self._put(number, Letter(0, "message", key, data=data))
        return bool(targets)

    # --- inside --------------------------------------------------------------------------------------------------

    def _member(self, token: str) -> _Member:
        member = self._tokens.get(token)
        if member is None:
            raise stale_member()
        return member

    def _fence(self, member: _Member, lease: float) -> Member:
        """Give a member a new token and an empty mailbox."""
        self._tokens.pop(member.token, None)
        member.token = secrets.token_urlsafe(16)
        self._tokens[member.token] = member
        member.until = self._clock() + lease
        member.read(member.newest)
        self._listeners.hurry(lease + MOMENT)
        return Member(member.number, member.token)

    def _put(self, number: int, letter: Letter) -> None:
        member = self._members.get(number)
        if member is not None:
            member.put(letter)
            self._listeners.wake(LETTERS)

    def _session(self, key: str) -> _Session | None:
        found = self._sessions.get(key)
        return None if found is None or (found.stored.expires <= self._now() and not found.open()) else found

    def _prolong(self, found: _Session, expires: float | None) -> None:
        if expires is not None and expires > found.stored.expires:
            found.stored = attrs.evolve(found.stored, expires=expires)

    def _hold(self, found: _Session, number: int, *, member: int, carrier: int) -> None:
        """Note the members that have a stream open, and carry it."""
        stream, place = found.streams[number], (found.stored.key, number)
        for each in {stream.member, stream.carrier} & self._members.keys():
            self._members[each].streams.discard(place)
        stream.member, stream.carrier = member, carrier
        for each in {member, carrier} & self._members.keys():
            self._members[each].streams.add(place)

    def _close(self, found: _Session, number: int, by: int) -> None:
        """Close a stream, and tell the member that carries it."""
        newest = self._newest(found, number)
        carrier = found.streams[number].carrier
        self._hold(found, number, member=0, carrier=0)
        del found.streams[number]
        if carrier != by:
            self._put(carrier, Letter(0, "events", found.stored.key, number, newest, ended=True))
        if not found.open():
            self._queue(found)

    def _newest(self, found: _Session, number: int) -> int:
        stream, stored = found.streams.get(number), self._events.newest(found.stored.key, number)
        return stored if stream is None else max(stream.newest, stored)

    def _numbered(self, found: _Session, events: Iterable[StoredEvent]) -> list[StoredEvent]:
        """Return the events with their numbers, of which the newest are noted."""
        numbered: list[StoredEvent] = []
        for event in events:
            if not event.stream:
                found.streams.setdefault(0, _Stream())
            newest = self._newest(found, event.stream)
            if not event.number:
                later = (each.number for each in numbered if each.stream == event.stream)
                event = attrs.evolve(event, number=max(newest, *later, 0) + 1)
            numbered.append(event)
        for event in numbered:
            if (stream := found.streams.get(event.stream)) is not None:
                stream.newest = max(stream.newest, event.number)
        return numbered

    def _tell(self, found: _Session, events: Iterable[StoredEvent], by: int, ended: Collection[int]) -> None:
        """Tell those who carry streams about their events and their ends."""
        for number in dict.fromkeys([*(event.stream for event in events), *ended]):
            stream = found.streams.get(number)
            if stream is None:
                continue
            if number in ended:
                self._close(found, number, by)
            elif stream.carrier != by:
                self._put(stream.carrier, Letter(0, "events", found.stored.key, number, self._newest(found, number)))

    def _delete(self, key: str, *, letters: bool) -> None:
        found = self._sessions[key]
        members = {each for stream in found.streams.values() for each in (stream.member, stream.carrier)}
        for number in [*found.streams]:
            self._hold(found, number, member=0, carrier=0)
        del self._sessions[key]
        self._events.delete(key)
        if letters:
            for each in members:
                self._put(each, Letter(0, "ended", key))

    def _drop_expired(self) -> None:
        now = self._now()
        while self._expiring and self._expiring[0][0] <= now:
            _, key = heapq.heappop(self._expiring)
            found = self._sessions.get(key)
            if found is None:
                continue
            found.queued = False
            if found.open():  # `_close` queues it again
                continue
            if found.stored.expires > now:
                self._queue(found)
            else:
                self._delete(key, letters=False)

    def _queue(self, found: _Session) -> None:
        if not found.queued:
            found.queued = True
            heapq.heappush(self._expiring, (found.stored.expires, found.stored.key))
