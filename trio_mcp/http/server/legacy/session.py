"""A session of the handshake era over Streamable HTTP (2025-03-26 to 2025-11-25 `basic/transports`)."""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.eras.rules import rules_of
from trio_mcp.eras.server_negotiation import ClientDeclaration, LegacyServerEra
from trio_mcp.errors import McpError
from trio_mcp.http.rules.verdicts import Accept, refuse
from trio_mcp.http.server.legacy.hosted import HostedConnection
from trio_mcp.http.server.legacy.router import Router
from trio_mcp.http.server.legacy.stores.events import EventsLost, EventStore, StoredEvent
from trio_mcp.http.server.legacy.streams import Stream, Writer, watching
from trio_mcp.http.sse import encode_comment, encode_event, encode_priming_event, encode_retry
from trio_mcp.jsonrpc.codec import encode
from trio_mcp.jsonrpc.events import RequestStarted
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

if TYPE_CHECKING:
    from trio_mcp.http.server.asgi import HttpAnswer, HttpRequest
    from trio_mcp.http.server.options import HttpOptions
    from trio_mcp.server.run import Run

__all__ = ["HttpSession", "event_id", "key_of", "read_event_id"]

logger = logging.getLogger("trio_mcp")

COMMENT = encode_comment()


def key_of(session_id: str) -> str:
    """What a session is called in an event store: whoever reads the store can't use it."""
    return hashlib.sha256(session_id.encode()).hexdigest()


def event_id(stream: int, number: int) -> str:
    """The id of an event: which stream, and where in it."""
    return f"{stream}-{number}"


def read_event_id(text: str) -> tuple[int, int] | None:
    """The stream and the number of an event; None for what is no id of ours."""
    stream, dash, number = text.partition("-")
    # A store may keep numbers of 64 bits, which have 19 digits at most.
    if not (dash and text.isascii() and all(part.isdigit() and len(part) < 19 for part in (stream, number))):
        return None
    return int(stream), int(number)


class HttpSession(HostedConnection):
    """A session.

    Args:
        serving: The run of the server.
        options: What the endpoint is like.
        stateless: It is for one POST alone.

    Attributes:
        id: What the client names it by.
        router: Where its messages go.
        exchanges: How many HTTP requests it is serving.
        forgotten: Its client is done with it: what is stored of it goes with it.
        over: Nothing is done for it any more.
    """

    def __init__(self, serving: Run, options: HttpOptions, *, stateless: bool = False) -> None:
        self.id = "" if stateless else secrets.token_urlsafe(32)
        self.router = self._make_router(None if stateless else options.event_store)
        super().__init__(serving, self.router)
        self.router.session = self
        self.exchanges = 0
        self.forgotten = False
        self.over = trio.Event()
        self._options = options
        self._stateless = stateless
        self._negotiation.lasting = not stateless

    def _make_router(self, store: EventStore | None) -> Router:
        return Router(store, key_of(self.id))

    @property
    def revision(self) -> str | None:
        """The revision that it speaks; None before the handshake."""
        return None if self.client is None else self.client.revision

    def presume(self, revision: str) -> None:
        """Take the handshake for done, by a client that has said nothing of itself."""
        self._negotiation.session = ClientDeclaration(LegacyServerEra(revision), None, {})
        self._negotiation.initialized = True
        self._peer.revision = revision

    async def _last_words(self) -> None:
        # What was answered before the end can still be fetched, if the store outlives this run.
        try:
            with trio.move_on_after(self.options.close_grace, shield=True):
                if self.forgotten and self.router.store is not None:
                    await self.router.store.forget(self.router.key)
                else:
                    await self.router.store_rest()
        except Exception:
            logger.exception("the event store failed")
        finally:
            self.over.set()

    def end(self, why: str) -> None:
        super().end(why)
        self.router.end()

    def open(self, message: Incoming, metadata: dict[str, Any]) -> Response | ErrorResponse:
        """Answer ``initialize``."""
        (event,) = self._peer.receive(message, metadata)
        assert isinstance(event, RequestStarted)
        incoming = event.incoming
        answer: dict[str, Any] | ErrorData | None
        try:
            answer = self.intercept(self.make_context(incoming))
        except McpError as exc:
            answer = ErrorData(exc.code, exc.message, exc.data)
        assert answer is not None
        given = self._peer.answer(incoming, answer)
        self._peer.finished(incoming)
        assert isinstance(given, (Response, ErrorResponse))
        return given

    # --- what the client posts ------------------------------------------------------------------------------------

    async def post(self, accepted: Accept, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a POST."""
        message, metadata = accepted.message, {"headers": request.headers}
        if self.closed:  # by the end of the server, as it was opened for this
            await _refuse(answer, 503, f"the request was not answered: {self.close_cause}")
            return
        if not accepted.owes_answer:
            self.feed(message, metadata)
            await answer.whole(202)
            return
        ids = _requests_in(message)
        taken = [request_id for request_id in ids if self.router.of_request(request_id) is not None]
        if taken or len(set(ids)) < len(ids):
            refusal = refuse(400, "the id of a request is in use already", taken[0] if taken else None)
            await answer.whole(refusal.status, refusal.body, refusal.headers)
            return
        if not ids and type(message) is Batch:  # only faults are to be answered, and no stream would be found by them
            self.feed(message, metadata)
            faults = [item for item in message.items if type(item) is Malformed and item.expects_answer]
            errors = tuple(ErrorResponse(item.id, ErrorData(item.code, item.reason)) for item in faults)
            await answer.whole(400, encode(Batch(errors)))
            return
        stream = self.router.open(ids, may_stream=accepted.may_stream)
        self.feed(message, metadata)
        await self._carry(stream, request, answer, 0, at_once=False)

    async def open_stream(self, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a GET for the stream of what belongs to no request, from where the client has got to."""
        stream = self.router.rest
        await self._carry(stream, request, answer, stream.start, at_once=True)

    async def resume(self, last_event_id: str, request: HttpRequest, answer: HttpAnswer) -> None:
        """Serve a GET for the rest of a stream."""
        found = read_event_id(last_event_id)
        store = self.router.store
        if found is None or store is None:
            text = "the Last-Event-ID is none of this session's" if store else "streams can't be resumed here"
            await _refuse(answer, 400, text)
            return
        number, cursor = found
        stream = self.router.streams.get(number)
        if stream is not None and cursor > stream.ready:
            await _refuse(answer, 400, "the Last-Event-ID is of an event that was never sent")
            return
        turn = 0 if stream is None else stream.next_turn()
        try:
            events = await self._stored(number, cursor) if stream is None or stream.ready > cursor else ()
        except EventsLost as exc:
            await _refuse(answer, 410, f"{exc}; call again")
            return
        if stream is None:  # all that was sent on it is in the store
            stream = Stream(number, set(), stored=True, ended=True)
            stream.last = stream.ready = events[-1].number if events else cursor
        elif stream.turn != turn:  # it has been opened anew while the store was asked: nobody waits here any more
            await answer.start_events()
            await answer.finish()
            return
        await self._carry(stream, request, answer, cursor, at_once=True)

    def feed(self, message: Incoming, metadata: Mapping[str, Any] | None = None) -> None:
        if type(message) is Response or type(message) is ErrorResponse or type(message) is Malformed:
            self.router.answered(message.id)
        elif type(message) is Batch:
            for item in message.items:
                if type(item) is Response or type(item) is ErrorResponse:
                    self.router.answered(item.id)
        super().feed(message, metadata)
        for notification in message.items if type(message) is Batch else (message,):
            if type(notification) is Notification and notification.method == "notifications/cancelled":
                self._after_cancellation((notification.params or {}).get("requestId"))

    def _after_cancellation(self, request_id: Any) -> None:
        # What is cancelled gets no answer, so its stream ends.
        if type(request_id) in (int, str) and not self._peer.serves(request_id):
            self.router.release(request_id)

    def start_soon(self, function: Callable[[], Awaitable[None]]) -> None:
        """Run something in a task of the session's, unless it has ended."""
        self._spawn(function)

    def give_up(self, request_id: RequestId, why: str) -> None:
        """Cancel a request of the client's, as if it had done so."""
        self.feed(Notification("notifications/cancelled", {"requestId": request_id, "reason": why}))

    # --- what the client reads ------------------------------------------------------------------------------------

    def close_stream(self, request_id: RequestId | None, retry: float | None) -> bool:
        """Close the HTTP answer that carries a stream, so that the client comes back for the rest."""
        stream = self.router.rest if request_id is None else self.router.of_request(request_id)
        if stream is None or not stream.stored or not stream.may_stream or stream.writer is None:
            return False
        if not self._primes and not stream.taken:
            return False  # the client could not say where to go on
        if stream.writer.until is None:
            stream.writer.retry = self._options.retry if retry is None else retry
            stream.writer.until = stream.last
            stream.wake()
        return True

    @property
    def _primes(self) -> bool:
        revision = self.revision
        return self.router.store is not None and revision is not None and rules_of(revision).primed_streams

    def _first_event(self, stream: Stream, cursor: int) -> bytes:
        """What a client gets at once: the id to come back with (Sending Messages, 6), or nothing of meaning."""
        # Something, since the head of an answer leaves with the first piece of its body.
        return encode_priming_event(event_id(stream.number, cursor), self._options.retry) if self._primes else COMMENT

    async def _carry(
        self, stream: Stream, request: HttpRequest, answer: HttpAnswer, cursor: int, *, at_once: bool
    ) -> None:
        """Write a stream, from a number on, to one HTTP answer: until it ends or either side closes it."""
        writer = Writer()

        def left() -> None:
            if not answer.finished:  # the end of a whole answer is reported in the same way
                writer.leave()

        stream.attach(writer)
        self.exchanges += 1
        try:
            with writer.scope:
                async with watching(request, left):
                    if at_once or (self._primes and stream.may_stream and not stream.ended):
                        await answer.start_events()
                        await answer.send(self._first_event(stream, cursor))
                    await self._write(stream, writer, answer, cursor)
        finally:
            self.exchanges -= 1
            stream.detach(writer)
            self.router.detached(stream)
            if writer.gone or not answer.started:
                self._left(stream)
        if not writer.gone:
            await self._finish(stream, writer, answer)

    async def _finish(self, stream: Stream, writer: Writer, answer: HttpAnswer) -> None:
        if answer.started:
            await answer.finish()
        elif stream.ended and not self.closed:
            await answer.whole(202)  # its client has cancelled it
        else:
            why = self.close_cause or "the event store keeps too little"
            await _refuse(answer, 503 if self.closed else 500, f"the request was not answered: {why}")

    def _left(self, stream: Stream) -> None:
        """The client has left. That is no cancellation (2025-11-25 `basic/transports`, Sending Messages, 6)."""
        if self._stateless:
            self.end("the client closed the stream, and nobody could ever ask for the answer")
        elif not stream.stored:
            self.router.lose(stream, "the client closed the stream that the request was sent on")

    async def _write(self, stream: Stream, writer: Writer, answer: HttpAnswer, cursor: int) -> None:
        while True:  # noqa: ASYNC913 - every turn that is not the last has one
            if writer.until is not None and cursor >= writer.until:
                if writer.retry is not None:
                    await answer.send(encode_retry(writer.retry))
                return
            if stream.ready > cursor:
                events = await self._next(stream, cursor)
                if events is None:
                    return
                only = len(events) == 1 and stream.ended and events[0].number == stream.last
                if not answer.started and only:
                    stream.taken = stream.last
                    await answer.whole(200, events[0].data)
                    return
                if not answer.started:
                    await answer.start_events()
                for event in events:
                    if writer.until is not None and event.number > writer.until:
                        break
                    given = event_id(stream.number, event.number) if stream.stored else None
                    await answer.send(encode_event(event.data, event="message", id=given))
                    cursor = event.number
                    stream.taken = max(cursor, stream.taken)
                stream.wake()
                await trio.lowlevel.checkpoint()  # a long replay takes turns with everyone else
            elif stream.ended:
                return
            else:
                timed_out = True
                with trio.move_on_after(self._options.keep_alive):
                    await stream.change()
                    timed_out = False
                if timed_out and answer.started:
                    await answer.send(COMMENT)

    async def _next(self, stream: Stream, cursor: int) -> Sequence[StoredEvent] | None:
        if self.router.store is None:
            return stream.take()
        try:
            return await self._stored(stream.number, cursor)
        except EventsLost as exc:
            logger.warning("a stream is closed: %s", exc)
            return None

    async def _stored(self, stream: int, cursor: int) -> Sequence[StoredEvent]:
        """What the store has of a stream after a number; if it fails, so does the session.

        Raises:
            EventsLost: There is nothing to be had.
        """
        assert self.router.store is not None
        try:
            return await self.router.store.after(self.router.key, stream, cursor)
        except EventsLost:
            raise
        except Exception as exc:
            logger.exception("the event store failed; the session that it failed for is ended")
            self.end("the event store failed")
            raise EventsLost("the event store failed") from exc


def _requests_in(message: Incoming) -> list[RequestId]:
    items: Sequence[Message | Malformed] = message.items if type(message) is Batch else (message,)  # type: ignore[assignment]
    return [item.id for item in items if type(item) is Request]


async def _refuse(answer: HttpAnswer, status: int, text: str) -> None:
    refusal = refuse(status, text)
    await answer.whole(refusal.status, refusal.body, refusal.headers)
