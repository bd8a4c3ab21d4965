"""The sessions that a process shares with others: any of them serves any request of any session.

A session lies in the server's stores; a process that serves one of its requests has a copy of it (`SessionCopy`), which
the store confirms for each request. Every process that has copies is a member of the store (`Membership`): it has a
mailbox for what concerns the requests that it runs and the streams that it carries.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp.http.server.legacy.numbered_stream import NumberedStream
from trio_mcp.http.server.legacy.streams import StreamRouter, is_end, newest_stored
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Notification,
    RequestId,
    Response,
)
from trio_mcp.session.server import INITIALIZED, WATCHED, ServerSession
from trio_mcp.stores.contract import LEASE, LOOK, StaleWriter, StoreError, Stores
from trio_mcp.stores.event_store import EventStore, StoredEvent
from trio_mcp.stores.session_store import LETTERS, Letter, Member, SessionStore, StoredSession
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["Membership", "SessionCopy", "SessionGone"]

NUMBERS: Final = 1_000_000_000
"""How many streams, and requests to clients, a member numbers: those of member 7 begin with 7,000,000,001.

So a response tells which process waits for it. JSON numbers are exact up to nine million members."""

MAX_NUMBER: Final = 2**53
"""The first number that no member gives; a client may send any number."""

BURIED: Final = 100
"""How many streams of dead processes are ended at a time (arbitrary)."""

MAX_UNENDED: Final = 1000
"""How many streams a process ends once the store is back; beyond that, the oldest are left open (arbitrary)."""

AGAIN: Final = 0.05
"""Seconds after which a cancellation is sent again whose request no process seemed to run (arbitrary).

A process notes a request in the store only if it takes longer than most do (`PRIMING_DELAY`)."""

PATIENCE: Final = 2.0
"""Seconds that the last words of a process to its store may take (arbitrary): a supervisor kills it after five."""

LOST: Final = "the process that ran the request has ended, or its session there; the outcome is unknown"

TAKEN: Final = "taken"
SEEN: Final = "seen"
"""The fields for the stream of messages that belong to no request: the last event that was written when a process
stopped carrying the stream, and the last change of which that process had notified the client."""


class SessionGone(Exception):
    """The session has ended."""


class SharedSession(Protocol):
    """A session in this process, as its copy sees it; see `HttpSession`."""

    connection: ServerSession
    router: StreamRouter
    exchanges: int
    over: trio.Event

    def end(self, why: str) -> None: ...

    def feed(self, message: Incoming) -> None: ...

    def start_soon(self, function: Callable[[], Awaitable[None]]) -> None: ...


class Membership:
    """This process as a member of those that serve the sessions of a store.

    Args:
        stores: The server's stores.
        nursery: The nursery for its task.
        seen: Returns the number of the last change of which the listeners in this process have been notified.

    Attributes:
        store: The sessions in the store.
        copies: The copies of sessions in this process, by the key of the session.
        streams: The numbers of new streams.
    """

    def __init__(self, stores: Stores, nursery: trio.Nursery, seen: Callable[[], int]) -> None:
        self.store: SessionStore = stores.sessions
        self.stores = stores
        self.seen = seen
        self.copies: dict[str, SessionCopy] = {}
        self.streams = itertools.count(1)
        self._nursery = nursery
        self._member: Member | None = None
        self._epoch = ""  # of the store, when this process joined
        self._stayed = 0.0  # when the lease was renewed last
        self._joining = trio.Lock()
        self._ending = trio.Lock()
        # A letter that says that another process carries a stream must not be read after this one carries it again.
        self.reading = trio.Lock()
        self._next_id = 1
        self._read = 0
        self._unended: dict[tuple[str, int], tuple[int, Sequence[StoredEvent]]] = {}
        # The open streams that the store does not know yet: it was away when they were to be noted.
        self.unnoted: dict[tuple[str, int], tuple[SessionCopy, NumberedStream]] = {}
        self._parting: set[SessionCopy] = set()  # whose sessions have ended, and may have something to store yet

    @property
    def number(self) -> int:
        """The number of this member; 0 without membership."""
        return 0 if self._member is None else self._member.number

    def member_of(self, number: object) -> int | None:
        """Return the number of the member to which an id of a request, or of a stream, belongs; None if none."""
        return number // NUMBERS if type(number) is int and NUMBERS <= number < MAX_NUMBER else None

    @property
    def token(self) -> str:
        """The token of this member; empty without membership."""
        return "" if self._member is None else self._member.token

    def _is_member(self) -> bool:
        """Return whether this process is a member, as far as it can know without asking the store."""
        if self._member is not None and self.stores.epoch != self._epoch:
            self.lost(self._member.token)
        return self._member is not None

    async def join(self) -> None:
        """Become a member, unless this process is one.

        Raises:
            StoreError: If the store can't be used.
        """
        if self._is_member():
            return
        async with self._joining:
            if self._is_member():
                return
            self._epoch, self._stayed = self.stores.epoch, trio.current_time()
            member = await self.store.join(lease=LEASE)
            self._member, self._read = member, 0
            self.streams = itertools.count(member.number * NUMBERS + 1)
            self._next_id = member.number * NUMBERS + 1
            self._nursery.start_soon(self._serve, member)

    def add(self, copy: SessionCopy) -> int:
        """Keep a copy, and return the id of its first request to the client.

        Raises:
            StaleWriter: If this process is no longer the member for which the copy was made.
        """
        if not self._is_member() or copy.token != self.token:
            raise StaleWriter("this process has lost its lease while it began to serve a session")
        self.copies[copy.key] = copy
        return self._next_id

    def remove(self, copy: SessionCopy, next_id: int) -> None:
        """Forget a copy whose next request to the client would have this id; `gone` must follow."""
        self._parting.add(copy)
        # A later copy of the same session must not use an id again. In a store that has lost all, numbers begin again.
        if copy.token == self.token:
            self._next_id = max(self._next_id, next_id)
        if self.copies.get(copy.key) is copy:
            del self.copies[copy.key]

    def gone(self, copy: SessionCopy) -> None:
        """Learn that the session of a copy that was removed has nothing more to store.

        Its streams that are still open get an error each: if this process goes on, no other one ends them.
        """
        self._parting.discard(copy)
        if copy.token != self.token:
            return
        for stream in copy.session.router.streams.values():
            if stream.noted and stream.owed:
                errors = [StoredEvent(stream.number, 0, error_for(each)) for each in stream.owed]
                self.end_later(copy.key, stream.number, stream.last, errors)

    def lost(self, token: str) -> None:
        """Give up everything if the lease with this token was ours: another member ends the streams that are open."""
        if self._member is None or self._member.token != token:
            return
        if self.stores.epoch != self._epoch:
            logger.warning(
                "the stores have lost all that was kept there: the sessions have ended, and what this process ran for"
                " them has failed; clients open new sessions"
            )
            why = "the stores have lost the session"
        elif (age := trio.current_time() - self._stayed) < LEASE:
            logger.warning(
                "the lease of this process was lost %.1f seconds after it had been renewed, because the stores have"
                " lost data, or this machine was suspended: it starts again, and what it ran for sessions has failed",
                age,
            )
            why = "the lease of the process that ran the request was lost"
        else:
            logger.warning(
                "this process was silent for so long that another one has ended the requests of its sessions: it starts"
                " again; if it was not stopped or suspended, look for a function that blocks the event loop"
            )
            why = "the process was silent for too long, and another one has ended the request"
        self._member = None
        self._unended.clear()
        self.unnoted.clear()
        for copy in tuple(self.copies.values()):
            copy.session.end(why)

    # --- the task ------------------------------------------------------------------------------------------------

    async def _serve(self, member: Member) -> None:
        """Read letters, keep the lease, and end the streams of dead members, until cancelled or the lease is lost."""
        async with closing(partial(self._leave, member)):
            with self.stores.listen(LETTERS) as listener:
                kept = well = trio.current_time()
                looked = patient = -math.inf
                while self._is_member() and self._member is member:
                    try:
                        await self._read_letters(member)
                        await self._renew(member)
                        await self._end_streams(member)
                        await self._note_streams(member)
                        now = trio.current_time()
                        if now >= kept + LEASE / 3:
                            kept = now
                            self._keep_alive()
                        # `LOOK` seconds are not counted from the last look: it may have been late, and this one not.
                        # If the store was away for so long, leases may have expired whose owners are well: they renew
                        # them first. (If it is away for a moment now and then, dead processes must not wait for that.)
                        if now - well > LEASE / 2:
                            patient = now + LEASE / 3
                        well = now
                        if (period := now // LOOK) > looked and now >= patient:
                            looked = period
                            await self._look_after_others()
                    except StaleWriter:
                        self.lost(member.token)
                        return
                    except StoreError as exc:
                        logger.debug("the sessions of other processes can't be read: %s", exc)
                    await listener.woken()

    async def _stay(self, member: Member) -> None:
        now = trio.current_time()
        await self.store.stay(member.token, lease=LEASE, read=self._read)
        self._stayed = now

    async def _renew(self, member: Member) -> None:
        """Renew the lease if a third of it is over.

        This comes before whatever may take long, and between its steps: the store may be there only for a moment.
        """
        if trio.current_time() >= self._stayed + LEASE / 3:
            await self._stay(member)

    async def _leave(self, member: Member) -> None:
        """End what is under way, unless the lease is lost: clients learn at once that they get no response."""
        if self._member is not member:
            return
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE):
            for copy in (*self.copies.values(), *self._parting):  # what their requests have sent last is stored first
                await copy.session.over.wait()
            with contextlib.suppress(StoreError):
                await self._bury(member)
        self._member = None

    async def _read_letters(self, member: Member) -> None:
        while True:
            async with self.reading:
                found = await self.store.letters(member.token, self._read)
                for letter in found:
                    self._read = letter.number
                    self._take(letter)
            if not found:
                return
            await self._stay(member)

    def _take(self, letter: Letter) -> None:
        copy = self.copies.get(letter.session)
        if copy is None:
            return
        try:
            copy.take(letter)
        except Exception:  # the message of one client must not end the server
            logger.exception("a message that another process has passed on could not be handled")

    async def end_stream(self, token: str, key: str, stream: int, last: int, errors: Sequence[StoredEvent]) -> None:
        """End a stream in the store.

        Args:
            token: The token of the member that has the stream open.
            key: The session's name in the store.
            stream: The number of the stream.
            last: The number of the last event that the store is known to have.
            errors: The events to end it with, unless the store has the responses.
        """
        if not errors:
            await self.store.append(key, (), token, ended=[stream])
            return
        async with self._ending:  # no two tasks see that there is no response, and store one each
            newest = await newest_stored(self.store, key, stream, last)
            has_responses = newest is not None and is_end(newest)
            await self.store.append(key, () if has_responses else errors, token, ended=[stream])

    def end_later(self, key: str, stream: int, last: int, errors: Sequence[StoredEvent]) -> None:
        """End a stream once the store can be used again; see `end_stream`.

        Until then, a client that resumes it in another process waits.
        """
        self._unended[key, stream] = last, errors
        if len(self._unended) > MAX_UNENDED:
            del self._unended[next(iter(self._unended))]

    async def _end_streams(self, member: Member) -> None:
        while self._unended:  # noqa: ASYNC913 - the caller has checkpoints
            (key, stream), (last, errors) = next(iter(self._unended.items()))
            await self._renew(member)
            await self.end_stream(member.token, key, stream, last, errors)
            self._unended.pop((key, stream), None)

    async def _note_streams(self, member: Member) -> None:
        while self.unnoted:  # noqa: ASYNC913 - the caller has checkpoints
            copy, stream = next(iter(self.unnoted.values()))
            await self._renew(member)  # meanwhile the stream may be noted, or have ended
            await copy.note(stream, stream.owed)

    async def _look_after_others(self) -> None:
        for dead in await self.store.take_over(lease=LEASE, most=BURIED):
            with contextlib.suppress(StaleWriter):  # this took so long that another one goes on with it
                await self._bury(dead)

    async def _bury(self, member: Member) -> None:
        """End all streams of a member, each with an error, and remove the member."""
        while found := await self.store.open_streams(member.token, BURIED):
            for each in found:
                errors = [error_for(json.loads(text)) for text in each.requests]
                events = [StoredEvent(each.stream, 0, data) for data in errors]
                await self.store.append(each.session, events, member.token, ended=[each.stream])
                if self._member is not None and self._member is not member:
                    await self._renew(self._member)
        await self.store.leave(member.token)

    def _keep_alive(self) -> None:
        """Let sessions live on whose streams this process carries."""
        for copy in tuple(self.copies.values()):
            if copy.session.exchanges:
                copy.session.start_soon(copy.keep_alive)


def error_for(request_id: RequestId, why: str = LOST) -> bytes:
    """Return the error response to a request that gets no other response."""
    return encode(ErrorResponse(request_id, ErrorData(INTERNAL_ERROR, why)))


def _pack(item: Incoming) -> bytes:
    """Return a message of the client as another process gets it; of a malformed response, that is what was wrong."""
    if type(item) is Malformed:
        return json.dumps([item.code, item.reason, item.id]).encode()
    return encode(item)


def _unpack(data: bytes) -> Incoming:
    """Return a message that `_pack` has packed."""
    if data.startswith(b"["):
        code, reason, request_id = json.loads(data)
        return Malformed(code, reason, request_id, expects_answer=False)
    return decode(data)


class SessionCopy(EventStore):
    """A session of the store, as this process serves it. For the session's router it is the event store.

    Args:
        membership: The membership of this process.
        session: The session that this process serves.
        key: The key of the session in the store.
        timeout: Seconds after which an unused session expires.
    """

    def __init__(self, membership: Membership, session: SharedSession, key: str, timeout: float) -> None:
        self.membership = membership
        self.session = session
        self.key = key
        self._timeout = timeout
        self._store = membership.store
        self._noting = trio.Lock()
        self.token = membership.token  # the session belongs to the member that this process is now
        self._version = 0
        self._expires = 0.0
        self._fields: Mapping[str, bytes] = {}
        # This is true while a request may have changed the fields: they are stored before its response is.
        self.changing = False

    def _later(self) -> float:
        return self.membership.stores.now() + self._timeout

    # --- the session ---------------------------------------------------------------------------------------------

    async def add(self, limit: int) -> None:
        """Put a new session into the store; the errors are those of `SessionStore.add`.

        If there are too many, one that has not finished the handshake gives way, because a scanner can open many such
        sessions at no cost.
        """
        connection = self.session.connection
        connection.first_request_id(self.membership.add(self))
        declaration = json.dumps(connection.declaration()).encode()
        self._fields = {**connection.fields(), SEEN: self._seen_now()}
        self._expires = self._later()
        self._version = 1
        await self._store.add(
            StoredSession(self.key, declaration, self._fields, self._expires), limit=limit, unless=INITIALIZED
        )

    def begin(self, found: StoredSession) -> None:
        """Begin with a session that the store has."""
        self.session.connection.resume(json.loads(found.declaration), self.membership.add(self))
        self._take(found)

    def lost(self) -> None:
        """Give up all copies, as another member has taken the lease."""
        self.membership.lost(self.token)

    async def end(self) -> None:
        """End the session in all processes."""
        await self._store.end(self.key)

    def _take(self, found: StoredSession) -> Collection[str]:
        self._version, self._expires, self._fields = found.version, found.expires, found.fields
        return self.session.connection.take_fields(found.fields)

    def _seen_now(self) -> bytes:
        return b"%d" % self.membership.seen()

    async def confirm(self) -> None:
        """Learn what has changed; each request of the session is served only after this.

        Raises:
            SessionGone: If the session has ended.
            StoreError: If the store can't be used.
        """
        known = self._version
        found = await self._store.session(self.key, known=known)
        if found is None:
            raise SessionGone
        # Another request may have learned of a newer version meanwhile; what was read has no fields if it was known.
        is_news = found.version != known and (self._version == known or found.version > self._version)
        if is_news and (new := self._take(found)):
            await self._catch_up(new)
        if self.membership.stores.now() > found.expires - self._timeout / 2:
            await self.touch()

    async def _learn(self) -> None:
        with self._unheard(), contextlib.suppress(SessionGone):  # the next request tells its client
            await self.confirm()

    async def give_up_questions(self) -> None:
        """Fail the server's questions if the client has used the session in no process for too long."""
        with self._unheard():
            found = await self._store.session(self.key, known=self._version)
            if found is None or found.expires <= self.membership.stores.now():
                self.session.router.give_up_questions("the client has sent no HTTP request for too long")

    async def touch(self) -> None:
        """Let the session live for longer."""
        await self._change(expires=self._later())

    @contextlib.contextmanager
    def _unheard(self) -> Iterator[None]:
        """Log that the store can't be used, where no request waits for it."""
        try:
            yield
        except StaleWriter:
            self.membership.lost(self.token)
        except StoreError as exc:
            logger.debug("a session could not be kept in the store: %s", exc)

    async def keep_alive(self) -> None:
        """Let the session live for longer, if the store can be used."""
        with self._unheard():
            await self.touch()

    async def save(self) -> None:
        """Store the fields, as far as they have changed."""
        self.changing = False
        now, before = self.session.connection.fields(), self._fields
        changed: dict[str, bytes | None] = {
            # The value for a resource is the number of the newest change: the client is told of later ones.
            name: self._seen_now() if name.startswith(WATCHED) else value
            for name, value in now.items()
            if name not in before or (before[name] != value and not name.startswith(WATCHED))
        }
        changed |= {name: None for name in before if name not in now and name not in (TAKEN, SEEN)}
        if changed:
            await self._change(fields=changed)

    async def _change(self, *, expires: float | None = None, fields: Mapping[str, bytes | None] | None = None) -> None:
        version = await self._store.change(self.key, self.token, expires=expires, fields=fields)
        if version is None or fields is None:
            return
        # Another process may have changed other fields: then the version is higher by more than one, and the next
        # request reads them all.
        if version == self._version + 1:
            self._version = version
        merged = {**self._fields, **fields}
        self._fields = {name: value for name, value in merged.items() if value is not None}

    # --- messages of the client ----------------------------------------------------------------------------------

    async def route(self, message: Incoming) -> Incoming | None:
        """Send what other processes wait for to them, and return the rest of the message, if there is one.

        Raises:
            StoreFull: If the mailbox of a process is full.
            StoreError: If the store can't be used.
        """
        if type(message) is not Batch:
            return None if await self._sent(message) else message
        rest = [item for item in message.items if not await self._sent(item)]
        return attrs.evolve(message, items=tuple(rest)) if rest else None

    async def _sent(self, item: Incoming) -> bool:
        connection, member = self.session.connection, None
        if isinstance(item, (Response, ErrorResponse)) or (type(item) is Malformed and not item.expects_answer):
            member = self.membership.member_of(item.id)
        elif isinstance(item, Notification):
            params = item.params or {}
            if item.method == "notifications/progress":
                member = self.membership.member_of(params.get("progressToken"))
            elif item.method == "notifications/cancelled":
                request_id = params.get("requestId")
                if not isinstance(request_id, (int, str)) or connection.serves(request_id):
                    return False
                return await self._cancel(encode(item), json.dumps(request_id))
        if member is None or member == self.membership.number:
            return False
        await self._store.send(self.key, _pack(item), member=member)
        return True

    async def _cancel(self, data: bytes, request: str) -> bool:
        if await self._store.send(self.key, data, request=request):
            return True
        await trio.sleep(AGAIN)
        return await self._store.send(self.key, data, request=request)

    # --- letters -------------------------------------------------------------------------------------------------

    def take(self, letter: Letter) -> None:
        """Act on a letter of another process."""
        session, router = self.session, self.session.router
        stream = router.streams.get(letter.stream)
        match letter.kind:
            case "message":
                session.feed(_unpack(letter.data))
            case "events" if stream is not None:
                stream.advance(letter.event, ended=letter.ended)
            case "taken" if stream is not None and stream.writer is not None:
                stream.give_away()
            case "changed":
                session.start_soon(self._learn)
            case "ended":
                session.end("the client has ended the session")

    # --- streams -------------------------------------------------------------------------------------------------

    async def open(self, stream: NumberedStream) -> None:
        """Note in the store that this process runs the requests of a stream; others must know that for resumption."""
        if stream.noted or stream.ended or not stream.owed:
            return
        # If the store can't be used, the request goes on: its stream can't be resumed elsewhere before it is noted.
        with self._unheard():
            await self.note(stream, stream.owed)

    async def note(self, stream: NumberedStream, requests: Collection[RequestId]) -> None:
        """Note a stream in the store, unless it is noted, or has ended and owes nothing.

        Args:
            stream: The stream.
            requests: The requests that have no response in the store.

        Raises:
            StoreError: If the store can't be used; the stream is noted later then.
        """
        async with self._noting:
            if requests and not stream.noted and (stream.owed or not stream.ended):
                self.membership.unnoted[self.key, stream.number] = self, stream
                as_json = [json.dumps(each) for each in requests]
                if not await self._store.open(self.key, self.token, stream.number, as_json):
                    self.session.end("the session has ended")
                stream.noted = True
                stream.wake()  # the client may have an event id now
            self.membership.unnoted.pop((self.key, stream.number), None)
        if stream.noted and not stream.owed and stream.ready == stream.last:  # the response has come in the meantime
            stream.noted = False
            await self.close(stream)

    async def close(self, stream: NumberedStream) -> None:
        """End a stream in the store, now or once the store can be used again.

        Requests whose responses could not be stored get an error each.
        """
        number, last = stream.number, stream.last
        why = f"the request got no response: {stream.fault}"
        errors = [StoredEvent(number, 0, error_for(each, why)) for each in stream.asked if stream.fault is not None]
        with self._unheard():
            try:
                await self.membership.end_stream(self.token, self.key, number, last, errors)
            except StaleWriter:
                raise
            except StoreError:
                self.membership.end_later(self.key, number, last, errors)

    async def carry(self, number: int) -> tuple[int, bool]:
        """Carry a stream from now on; return the number of its newest event, and whether it is open.

        Raises:
            SessionGone: If the session has ended.
            StoreError: If the store can't be used.
        """
        async with self.membership.reading:
            found = await self._store.carry(self.key, self.token, number)
        if found is None:
            raise SessionGone
        return found

    async def hear(self) -> None:
        """Notify the client of changes until `drop`: also of those during the time in which no process has done so.

        The errors are those of `carry`.
        """
        known = self._version
        session = await self._store.session(self.key)
        if session is None:
            raise SessionGone
        if self._version == known or session.version > self._version:
            self._take(session)
        # The listener hears before the store is asked, so that no change is missed in between.
        await self._catch_up(self.session.connection.hear())

    async def _catch_up(self, topics: Collection[str]) -> None:
        """Notify the client of the changes that it has missed.

        Args:
            topics: Those of which it is notified only from now on.
        """
        seen = int(self._fields.get(SEEN, b"0"))
        known = {topic: max(seen, int(self._fields.get(WATCHED + topic, b"0"))) for topic in topics}
        found = await self.membership.stores.changed(min(known.values(), default=seen))
        self.session.connection.tell(
            [topic for topic in known if not found.complete or found.topics.get(topic, 0) > known[topic]]
        )

    @property
    def taken(self) -> int:
        """The number of the last event of the stream 0 that the client has got from a process that carried it."""
        return int(self._fields.get(TAKEN, b"0"))

    async def drop(self, number: int, taken: int) -> None:
        """Carry a stream no longer, of which the client has got everything up to an event.

        The store is told even if the caller is cancelled.
        """
        with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE), self._unheard():
            if not number and self.session.connection.stop_hearing() and not self.session.connection.closed:
                await self._change(fields={TAKEN: b"%d" % taken, SEEN: self._seen_now()})
            await self._store.drop(self.key, self.token, number)

    # --- the event store of the router ---------------------------------------------------------------------------

    async def append(
        self, session: str, events: Sequence[StoredEvent], *, ended: Collection[int] = ()
    ) -> Sequence[int]:
        try:
            if self.changing:
                await self.save()
            # The store has an index of these times, so a new one costs it time.
            later = self._later() if ended else 0.0
            expires = later if later > self._expires + self._timeout / 20 else None
            numbers = await self._store.append(session, events, self.token, ended=ended, expires=expires)
            if expires is not None:
                self._expires = expires
            return numbers
        except StaleWriter:
            self.membership.lost(self.token)
            raise

    async def after(self, session: str, stream: int, number: int) -> Sequence[StoredEvent]:
        return await self._store.after(session, stream, number)

    async def forget(self, session: str) -> None:
        """Do nothing: the session lives on in the store."""
        await trio.lowlevel.checkpoint()
