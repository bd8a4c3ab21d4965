"""A session of the legacy era over Streamable HTTP (2025-03-26 to 2025-11-25, `basic/transports`)."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import closing
from trio_mcp.eras.rules import rules_of
from trio_mcp.http.rules.statuses import Accept, refuse
from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest, Owner
from trio_mcp.http.server.gate import end_of
from trio_mcp.http.server.host import HostedRun
from trio_mcp.http.server.legacy.numbered_stream import NumberedStream, Writer
from trio_mcp.http.server.legacy.sharing import Membership, SessionCopy
from trio_mcp.http.server.legacy.streams import STORE_FAILED, StreamRouter, newest_stored
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.sse import COMMENT, encode_event, encode_priming_event, encode_retry
from trio_mcp.jsonrpc.codec import encode
from trio_mcp.jsonrpc.events import Hold
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    Response,
)
from trio_mcp.session.session import LinkLostError
from trio_mcp.stores.event_store import EventsLost, EventStore, StoredEvent
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["HttpSession", "event_id", "event_store", "key_of", "read_event_id"]

MAX_JOINED: Final = 64 * 1024
"""The maximum size, in bytes, of a message that is joined to the priming event (arbitrary): joining copies it."""
PRIMING_DELAY: Final = 0.02
"""Seconds that a priming event may wait to be sent together with the first message (arbitrary): most calls are over by
then, and cost a quarter less; a client that is cut off within this time might not have received the event anyway."""

CHANGING: Final = ("logging/setLevel", "resources/subscribe", "resources/unsubscribe")
"""The requests that change what the server has to know of a session."""


def key_of(session_id: str, owner: Owner | None) -> str:
    """Return the name of a session in an event store.

    The name is a digest of the session's id, so that people who can read the store can't use the sessions. The name
    also depends on the owner, so that no other owner finds the events, not even in another run.
    """
    whole = session_id if owner is None else json.dumps([session_id, *owner])
    return hashlib.sha256(whole.encode()).hexdigest()


# The id does not name the session, because the header does; so an event id of one session can't lead into another.
def event_id(stream: int, number: int) -> str:
    """Return the id of an event: the number of its stream, and its number in the stream."""
    return f"{stream}-{number}"


def read_event_id(text: str) -> tuple[int, int] | None:
    """Return the stream and the number that an event id names, or None if it is not one of our ids."""
    stream, dash, number = text.partition("-")
    # Only numbers of fewer than 19 digits are sure to fit into the signed 64-bit integers that a store may use.
    if not (dash and text.isascii() and all(part.isdigit() and len(part) < 19 for part in (stream, number))):
        return None
    return int(stream), int(number)


def event_store(run: HostedRun, options: HttpOptions) -> EventStore | None:
    """Return what keeps the messages of an endpoint's sessions: its event store, or the server's own stores."""
    own, stores = options.settings["event_store"], run.served.stores
    return stores.sessions if own is None and stores is not None and not options.settings["stateless"] else own


class HttpSession:
    """A session: a connection to which POSTs feed messages, and a router for the messages that the connection sends.

    Args:
        run: The run of the server.
        options: The settings of the endpoint.
        live: The set that contains the session while it runs.
        stateless: Whether the session serves a single POST.
        one_stream: Whether everything goes on the stream for messages that belong to no request, as in HTTP+SSE.
        owner: The owner of the session; None if no tokens are checked.
        id: The id of a session that another process has begun; None for a new session.
        membership: The membership of this process, if other processes serve the session, too.

    Attributes:
        owner: The owner, as given.
        copy: The session in the store, if other processes serve it, too; otherwise None.
        id: The id by which the client names the session.
        connection: The connection of the client.
        router: The destination of the connection's messages.
        greeting: The first event of the stream, over HTTP+SSE; None if streams begin with a priming event or a comment.
        exchanges: How many HTTP requests of the session are being served.
        forgotten: Whether the client has no further use for the session, so that its stored events are deleted, too.
        over: Set when the session has ended completely.
    """

    def __init__(
        self,
        run: HostedRun,
        options: HttpOptions,
        live: set[HttpSession],
        *,
        stateless: bool = False,
        one_stream: bool = False,
        owner: Owner | None = None,
        id: str | None = None,
        membership: Membership | None = None,
    ) -> None:
        # The id must be globally unique and cryptographically secure, so it has 256 random bits (2025-11-25
        # `basic/transports`, Session Management, 1).
        self.id = "" if stateless else id or secrets.token_urlsafe(32)
        store = None if stateless or one_stream else event_store(run, options)
        key = key_of(self.id, owner)
        self.copy = None
        if membership is not None:
            store = self.copy = SessionCopy(membership, self, key, options.settings["session_timeout"])
        self.router = StreamRouter(
            self, store, key, retry=options.settings["retry"], one_stream=one_stream, copy=self.copy
        )
        # The connection reads no link, because POSTs feed it. Therefore an idle session has only one task, in whose
        # nursery the handlers run.
        self.connection = run.connect(self.router, lasting=not stateless)
        if self.copy is not None:
            self.connection.roam()
        self.owner = owner
        self.greeting: bytes | None = None
        self.exchanges = 0
        self.forgotten = False
        self.over = trio.Event()
        self._close_grace = run.served.options.close_grace
        self._options = options
        self._live = live
        self._stateless = stateless
        self._one_stream = one_stream
        self._nursery: trio.Nursery | None = None

    @property
    def revision(self) -> str | None:
        """The revision that the session uses; None before the handshake."""
        client = self.connection.client
        return None if client is None else client.revision

    async def host(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the session's tasks until `end` is called. A failure affects only this session."""
        self._live.add(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self.connection.begin(nursery)
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:
                    # The session must end at once: closing the nursery takes a turn of the event loop, in which a POST
                    # could still find the session open.
                    self.end("the server has ended")
        except Exception:
            logger.exception("an HTTP session failed")
        finally:
            self.connection.finish()
            self._live.discard(self)
            if self.copy is not None:
                self.copy.membership.remove(self.copy, self.connection.next_request_id)
            await self._last_words()

    async def _last_words(self) -> None:
        # Messages that were sent before the end can still be fetched if the store outlives this run, so they are stored
        # even if the server is cancelled, but for no longer than the close grace.
        try:
            with trio.move_on_after(self._close_grace, shield=True):
                if self.forgotten and self.router.store is not None:
                    await self.router.store.forget(self.router.key)
                else:
                    await self.router.store_rest()
        except Exception:
            logger.exception("the event store failed")
        finally:
            self.over.set()
            if self.copy is not None:
                self.copy.membership.gone(self.copy)

    def end(self, why: str) -> None:
        """End the session: cancel its handlers, and end its streams. Calling this again does nothing."""
        self.connection.end(why)
        # Cancelling the nursery makes `host` call this method again; by then the nursery is None.
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.cancel_scope.cancel(why)

    # --- what the client posts ------------------------------------------------------------------------------------

    async def post(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer, held: Hold) -> None:
        """Serve a POST, with which the client sends a message."""
        message, metadata = accepted.message, request.metadata
        if self.connection.closed:  # a stateless session that was closed at once, because the server is ending
            await answer.refuse(refuse(503, f"the request got no response: {self.connection.close_cause}"))
            return
        if not accepted.owes_answer:
            if self.copy is not None:
                if (rest := await self.copy.route(message)) is not None:
                    self.feed(rest, metadata, held)
                await self.copy.save()
            else:
                self.feed(message, metadata, held)
            await answer.whole(202)
            return
        # Two requests with the same id would make responses and cancellations ambiguous.
        ids = _requests_in(message)
        taken = [request_id for request_id in ids if self.router.of_request(request_id) is not None]
        if taken or len(set(ids)) < len(ids):
            await answer.refuse(refuse(400, "the id of the request is already in use", taken[0] if taken else None))
            return
        # The errors for a batch without a valid request can't be routed, because no stream has their ids.
        if not ids and type(message) is Batch:
            self.feed(message, metadata, held)
            errors = tuple(
                ErrorResponse(item.id, ErrorData(item.code, item.reason))
                for item in message.items
                if type(item) is Malformed and item.expects_answer
            )
            await answer.whole(400, encode(Batch(errors)))
            return
        if self.copy is not None:
            self.copy.changing = self.copy.changing or changes_session(message)
            message = await self.copy.route(message) or message
        # The stream is opened first: feeding may produce a response at once, which must find its stream.
        stream = self.router.open(ids, may_stream=accepted.may_stream)
        self.feed(message, metadata, held)
        await self._carry(stream, request, answer, 0, at_once=False)

    async def open_stream(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a GET for the stream of messages that belong to no request, from where the client left off."""
        stream = self.router.rest
        async with self._instead_of_others(0):
            start = stream.start if self.copy is None else max(stream.start, self.copy.taken)
            await self._carry(stream, request, answer, start, at_once=True, until=end_of(request))

    def extend(self, until: float) -> None:
        """Keep the stream open for as long as a newer token of the same owner is valid (HTTP+SSE)."""
        if (writer := self.router.rest.writer) is not None:
            writer.expires = max(writer.expires, until)

    async def resume(self, last_event_id: str, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a GET that resumes a stream after the event with this id."""
        found = read_event_id(last_event_id)
        store = self.router.store
        if found is None or store is None:
            text = "the Last-Event-ID is not from this session" if store else "this server can't resume streams"
            await answer.refuse(refuse(400, text))
            return
        async with self._instead_of_others(found[0]):
            await self._resume(store, *found, request, answer)

    async def _resume(
        self, store: EventStore, number: int, cursor: int, request: HttpRequest, answer: HttpAnswer
    ) -> None:
        stream = self.router.streams.get(number) or self.router.faulty.get(number)
        if stream is not None and cursor > stream.last and not stream.doubtful:
            await answer.refuse(refuse(400, "the Last-Event-ID names an event that was never sent"))
            return
        turn = 0
        # A client may ask for a stream twice if its first connection died unnoticed. Both requests may then wait for
        # the store: the turn shows which is newer.
        if stream is not None:
            turn = stream.turn = stream.turn + 1
        try:
            if stream is not None and stream.fault is not None:
                with _reading():
                    await self.router.look_again(stream)
            # The store may have the event of a cursor that it has refused; that of another cursor is lost.
            read = stream is None or stream.ready > cursor or cursor > stream.last
            events = await self._stored(number, cursor) if read else ()
            last = events[-1].number if events else cursor
            if stream is None and events:
                with _reading():  # the store may return only the first of the events
                    newest = await newest_stored(store, self.router.key, number, last)
                last = last if newest is None else newest.number
        except EventsLost as exc:
            await answer.refuse(refuse(410, f"{exc}; repeat the request"))
            return
        if stream is None:
            # The stream has ended, and everything sent on it is in the store: this stand-in only replays the stored
            # messages.
            stream = NumberedStream(number, set(), stored=True, ended=True)
            # If the store has no events after the cursor, the client has received everything.
            stream.last = stream.ready = last
        elif stream.turn != turn:  # the client has opened the stream again in the meantime: abandon this response
            await answer.start_events()
            await answer.finish()
            return
        await self._carry(stream, request, answer, cursor, at_once=True, until=end_of(request))

    @contextlib.asynccontextmanager
    async def _instead_of_others(self, number: int) -> AsyncIterator[None]:
        """Carry a stream in place of other processes, if there are any, until the end of the block."""
        if self.copy is None:
            yield
            return
        newest, is_open = await self.copy.carry(number)
        async with closing(partial(self._let_go, number)):
            stream = self.router.streams.get(number)
            if stream is None and is_open:
                stream = self.router.streams[number] = NumberedStream(number, set(), stored=True, remote=True)
            if stream is not None and stream.remote:
                stream.advance(newest, ended=not is_open)
            if stream is self.router.rest:
                await self.copy.hear()
            yield

    async def _let_go(self, number: int) -> None:
        stream = self.router.streams.get(number)
        # Another response may carry the stream by now, in this process.
        if self.copy is not None and (stream is None or stream.writer is None):
            await self.copy.drop(number, self.router.rest.taken)

    def feed(self, message: Incoming, metadata: Mapping[str, Any] | None = None, held: Hold | None = None) -> None:
        """Feed a message from the client to the connection."""
        items: Sequence[Any] = message.items if type(message) is Batch else (message,)
        # Responses are recorded first: the loss of a stream must not fail a request of the server that has its
        # response.
        for item in items:
            if type(item) is Response or type(item) is ErrorResponse or (type(item) is Malformed and item is message):
                self.router.answered(item.id)
        try:
            self.connection.feed(message, metadata, held)
        except LinkLostError as exc:
            self.end(str(exc))
        for item in items:
            if type(item) is Notification and item.method == "notifications/cancelled":
                request_id: Any = (item.params or {}).get("requestId")
                # A cancelled request gets no response, so its stream ends here. A request that is still being served
                # was not cancelled after all, and its response will end the stream.
                if type(request_id) in (int, str) and not self.connection.serves(request_id):
                    self.router.release(request_id)

    def start_soon(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a task in the session; do nothing if the session has ended."""
        if self._nursery is not None:
            self._nursery.start_soon(function)

    # --- what the client reads ------------------------------------------------------------------------------------

    @property
    def primes(self) -> bool:
        """Whether streams begin with an event that gives the client an id to reconnect with."""
        revision = self.revision
        return self.router.store is not None and revision is not None and rules_of(revision).primed_streams

    def _first_event(self, stream: NumberedStream, cursor: int) -> bytes:
        """Return the bytes to send first: the greeting, a priming event (Sending Messages, 6), or a comment."""
        if self.greeting is not None:
            return self.greeting
        # At least a comment is sent, because the client waits for the head, and the runner sends the head together with
        # the first piece of the body.
        return (
            encode_priming_event(event_id(stream.number, cursor), self._options.settings["retry"])
            if self.primes
            else COMMENT
        )

    async def _carry(
        self,
        stream: NumberedStream,
        request: HttpRequest,
        answer: HttpAnswer,
        cursor: int,
        *,
        at_once: bool,
        until: float = math.inf,
    ) -> None:
        """Write the messages after the cursor to one HTTP response, until the stream ends or either side closes it."""
        if stream is self.router.rest:
            answer.end_connection(request)
        writer = Writer(expires=until)
        extras = request.extras

        def left() -> None:
            if not answer.finished:  # the end of a complete response also calls this function
                writer.leave()
                stream.wake()

        stream.attach(writer)
        self.exchanges += 1
        try:
            if extras is None:
                async with _watching(request, left):
                    await self._write_all(stream, writer, answer, cursor, at_once)
            else:
                extras.call(left)
                try:
                    await self._write_all(stream, writer, answer, cursor, at_once)
                finally:
                    extras.call(None)
        finally:
            self.exchanges -= 1
            stream.detach(writer)
            self.router.tidy(stream)
            if writer.gone or not answer.started:
                self._left(stream)
        # The end is written outside the writer's scope, which is cancelled if a newer response has taken over the
        # stream: even then, this response gets its end.
        if not writer.gone and not answer.finished:
            await self._finish(stream, writer, answer)

    async def _write_all(
        self, stream: NumberedStream, writer: Writer, answer: HttpAnswer, cursor: int, at_once: bool
    ) -> None:
        if at_once:
            writer.first = self._first_event(stream, cursor)
        elif await self._write_alone(stream, writer, answer, cursor):
            return
        with writer.scope:
            await trio.lowlevel.checkpoint_if_cancelled()  # the scope may have been cancelled during the wait
            starts = stream.ready <= cursor and not stream.complete  # without a response, `_finish` says why
            if at_once or (writer.first and (starts or writer.until is not None)):
                await answer.start_events()
                await answer.send(writer.take_first() if at_once or self._can_resume(stream) else COMMENT)
            await self._write(stream, writer, answer, cursor)

    async def _write_alone(self, stream: NumberedStream, writer: Writer, answer: HttpAnswer, cursor: int) -> bool:
        """Wait for the first message, and write it if it is the response.

        Most responses come alone, and writing them as a stream would cost a third of their time.

        Returns:
            Whether the response was written; False if there is more than the response, or nothing.
        """
        # A POST waits for its first message, because a single response is sent as JSON. If there is a priming event,
        # from which the client can resume, the wait is short. Otherwise there is no deadline: no head has been sent, so
        # no comment is needed during silence.
        if self.primes and stream.may_stream and not stream.ended:
            writer.first = self._first_event(stream, cursor)
        brief = bool(writer.first) or self.copy is not None
        with trio.move_on_after(PRIMING_DELAY) if brief else contextlib.nullcontext():
            await self._begun(stream, writer)
        if self.copy is not None and not stream.complete:
            # Other processes have to know of a request that takes longer: the client may resume its stream elsewhere.
            await self.copy.open(stream)
            if not writer.first:
                await self._begun(stream, writer)
        if writer.until is not None or writer.scope.cancel_called or not stream.complete or stream.ready != 1:
            return False
        # No cancel scope is needed, because this is a single write, which ends with the connection at the latest.
        await self._write_ready(stream, writer, answer, cursor)
        return True

    async def _begun(self, stream: NumberedStream, writer: Writer) -> None:
        """Wait until there is something to write, or nothing may be written any more."""
        while not (stream.ready or stream.ended or writer.until is not None or writer.scope.cancel_called):
            await stream.change()

    async def _finish(self, stream: NumberedStream, writer: Writer, answer: HttpAnswer) -> None:
        fault = writer.fault or stream.fault
        if fault is not None and stream.asked and not self.connection.closed:
            error = ErrorData(INTERNAL_ERROR, f"the request got no response: {fault}")
            errors = tuple(ErrorResponse(request_id, error) for request_id in stream.asked)
            data = encode(errors[0] if len(errors) == 1 else Batch(errors))
            if not answer.started:
                await answer.whole(500, data)
                return
            await answer.send(encode_event(data, event="message"))
        if answer.started:
            await answer.finish()
        elif self.connection.closed:
            text = f"the request got no response, and its outcome is unknown: {self.connection.close_cause}"
            await answer.refuse(refuse(503, text))
        else:
            await answer.whole(202)  # the client has cancelled the request

    def _left(self, stream: NumberedStream) -> None:
        """React to the disconnection of a client.

        A disconnection is not a cancellation (2025-11-25 `basic/transports`, Sending Messages, 6).
        """
        if self._stateless:
            self.end("the client closed the stream, and without a session it can't come back for the response")
        # With a store the client can come back for the remaining messages, so nothing is lost.
        elif not stream.stored:
            self.router.lose(stream, "the client closed the stream that the request was sent on")

    async def _write(self, stream: NumberedStream, writer: Writer, answer: HttpAnswer, cursor: int | None) -> None:
        while cursor is not None:  # noqa: ASYNC913 - every iteration but the last has a checkpoint
            if writer.first and answer.started and self._can_resume(stream):
                await answer.send(writer.take_first())
            # The server closes the response early (2025-11-25, SEP-1699): the client polls by coming back for the
            # remaining messages.
            if writer.until is not None and cursor >= writer.until and not writer.first:
                if writer.retry is not None:
                    await answer.send(encode_retry(writer.retry))
                return
            if stream.ready > cursor:
                cursor = await self._write_ready(stream, writer, answer, cursor)
            elif stream.ended or self._is_over(writer):
                return
            elif answer.started:
                now = trio.current_time()
                silent = now + self._options.settings["keep_alive"]
                with trio.move_on_at(min(silent, writer.expires if writer.expires > now else silent)) as silence:
                    await stream.change()
                if silence.cancelled_caught and trio.current_time() >= silent:
                    await answer.send(COMMENT)
            else:
                await stream.change()

    async def _write_ready(self, stream: NumberedStream, writer: Writer, answer: HttpAnswer, cursor: int) -> int | None:
        """Write the messages after the cursor, and return the new cursor; None if nothing may follow."""
        # This code is a method of its own, because variables of `_write` would keep a long message in memory until the
        # next one.
        events = await self._next(stream, writer, cursor)
        if events is None:
            return None
        if writer.first and len(events[0].data) > MAX_JOINED:
            await answer.start_events()
            await answer.send(writer.take_first())
        # A response with nothing before it is sent in one piece: as an event after a priming event, otherwise as JSON.
        only = len(events) == 1 and stream.complete and events[0].number == stream.last
        if not answer.started and only:
            stream.taken = stream.last
            if writer.first:
                await answer.whole_events(writer.take_first() + _encoded(stream, events[0]))
            else:
                await answer.whole(200, events[0].data)
            return None
        if not answer.started:
            await answer.start_events()
        for event in events:
            if writer.until is not None and event.number > writer.until:
                break
            data = writer.take_first() + _encoded(stream, event)
            if stream.complete and event.number == stream.last and writer.until is None:
                await answer.finish(data)
            else:
                await answer.send(data)
            cursor = event.number
            stream.taken = max(cursor, stream.taken)
        stream.wake()
        if answer.finished:
            return None
        await trio.lowlevel.checkpoint()  # a long replay must let other tasks run
        return cursor

    def _can_resume(self, stream: NumberedStream) -> bool:
        """Return whether a client may be given an event id of a stream: any process must know what the id stands for.

        Otherwise a client that came back after the end of this process would wait forever for a stream of which no
        process knows.
        """
        return self.copy is None or stream.noted or stream.ready > 0

    def _is_over(self, writer: Writer) -> bool:
        """Return whether a stream must end because the token with which it was opened has expired."""
        # HTTP+SSE has only one stream, which must last until the requests under way have their responses.
        return writer.expires <= trio.current_time() and not (self._one_stream and self.connection.busy)

    async def _next(self, stream: NumberedStream, writer: Writer, cursor: int) -> Sequence[StoredEvent] | None:
        # With a store, the queue may begin after a gap, or with messages that a replay has already sent. Then the store
        # is read instead.
        events = stream.take()
        if self.router.store is None or (events and events[0].number == cursor + 1):
            return events
        try:
            found = await self._stored(stream.number, cursor)
        except EventsLost as exc:
            logger.warning("closing the stream of a session: %s", exc)
            writer.fault = str(exc)
            return None
        # The store may fail yet with what comes later, though it has that: an error would follow the response.
        return found if stream.remote else [each for each in found if each.number <= stream.ready]

    async def _stored(self, stream: int, cursor: int) -> Sequence[StoredEvent]:
        """Return the stored events of a stream that follow the one with a given number.

        Raises:
            EventsLost: If the store raises it, or has failed.
        """
        assert self.router.store is not None
        with _reading():
            return await self.router.store.after(self.router.key, stream, cursor)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """Read the event store in the block.

    Raises:
        EventsLost: If the store raises it, or has failed.
    """
    try:
        yield
    except EventsLost:
        raise
    except Exception as exc:
        logger.exception("the event store failed")
        raise EventsLost(STORE_FAILED) from exc


def _encoded(stream: NumberedStream, event: StoredEvent) -> bytes:
    given = event_id(stream.number, event.number) if stream.stored else None
    return encode_event(event.data, event="message", id=given)


@contextlib.asynccontextmanager
async def _watching(request: HttpRequest, left: Callable[[], object]) -> AsyncIterator[None]:
    """Call ``left`` if the client leaves during the block; for ASGI servers other than our own runners."""

    async def watch() -> None:
        await request.gone()
        left()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        yield
        nursery.cancel_scope.cancel("the exchange is over")


def changes_session(message: Incoming) -> bool:
    """Return whether a message may change the fields of a session; see `ServerSession.fields`."""
    items: Sequence[Any] = message.items if type(message) is Batch else (message,)
    return any(type(item) is Request and item.method in CHANGING for item in items)


def _requests_in(message: Incoming) -> list[RequestId]:
    items: Sequence[Message | Malformed] = message.items if type(message) is Batch else (message,)  # type: ignore[assignment]
    return [item.id for item in items if type(item) is Request]
