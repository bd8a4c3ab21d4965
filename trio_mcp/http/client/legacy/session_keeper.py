"""Sessions of the legacy era: opened, listened to, ended, and opened again where the server forgets them.

L: 2025-11-25 `basic/transports`; S: 2026-07-28 `basic/transports/streamable-http`.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import re
from typing import Any, Final

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.errors import HttpError, RemoteProtocolError, TransportError, TrioMcpError
from trio_mcp.http.client.legacy.sse_client import open_old_stream
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.posting import Answer, Exchange, Remote, Session, TakeEvent, message_of, refusal_of
from trio_mcp.http.client.wire import Disconnected
from trio_mcp.http.headers import EVENTS, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, shown
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.messages import Failure, Malformed, Notification, Request, Response
from trio_mcp.retrying import may_repeat

__all__ = ["LegacySession", "LegacySessions"]

MIN_WAIT: Final = 0.1
"""Seconds between two attempts to go on with a stream, whatever the server says."""
RENEWAL_TIMEOUT: Final = 30.0
"""Seconds for a server to open another session."""
LISTENING_PATIENCE: Final = 0.5
"""Seconds that the first requests of a session wait for the stream of the server's own messages. Many servers drop what
has no stream to go on, and a question that is asked before the stream is there would never come. But some servers
answer the GET only with the first message."""
UNASKED_INTERVAL: Final = 60.0
"""Seconds between two sessions that are opened only to hear the server's own messages."""

_HOPEFUL: Final = frozenset({"busy", "gateway"})
_EVENT_ID = re.compile(r"(?=.{1,4096}\Z)[\x21-\x7e]+(?: +[\x21-\x7e]+)*")
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")


@attrs.define(eq=False)
class EventStream:
    """One stream of events, over as many connections as it takes.

    Attributes:
        session: What it belongs to.
        decoder: Of the connection that is, or was, read.
        take: Takes each event.
        opened: It has been open at least once.
        answered: Set when `follow` has had a first answer, of whatever kind.
    """

    session: LegacySession
    decoder: EventDecoder
    take: TakeEvent
    opened: bool = False
    answered: trio.Event = attrs.field(factory=trio.Event)
    _finished: bool = False
    _lively: bool = False

    async def follow(self, *, at_once: bool) -> None:
        """Connect, read, and connect again until nothing more is wanted.

        Args:
            at_once: The first connection is made without waiting.

        Raises:
            HttpError: The server refuses to go on.
            TransportError: It was tried as often as is worth it.
        """
        remote, attempt, asked = self.session.keeper.remote, 0, self.decoder.retry
        last: Exception | None = None
        while not self._finished:
            if not at_once:
                wait = remote.backoff.wait(attempt, random.random, asked)
                if wait is None:
                    why = f"; last: {last}" if last is not None else ""
                    what = f"the event stream of {remote.wire.shown}"
                    raise TransportError(f"{what} was given up after {attempt} further attempts{why}")
                await trio.sleep(max(wait, MIN_WAIT))
                attempt += 1
            at_once, self._lively = False, False
            try:
                await self._connect()
                last = None
            except Disconnected as exc:
                last = exc
            except HttpError as exc:
                if exc.trouble not in _HOPEFUL and exc.status < 500:
                    raise
                last, asked = exc, exc.retry_after
                continue
            if self._lively:
                attempt = 0
            asked = self.decoder.retry

    async def _connect(self) -> None:
        """Read one connection to its end."""
        wire = self.session.keeper.remote.wire
        try:
            headers = self.session.stream_headers(self.decoder.last_event_id)
        except ValueError as exc:
            raise TransportError(f"the event stream of {wire.shown} can't be gone on with: {exc}") from None
        async with wire.exchange("GET", headers) as response:
            self.answered.set()
            if response.status != 200 or response.headers.media_type != EVENTS:
                raise (await refusal_of(response, session=self.session)).error
            self.decoder = self.decoder.resumed()
            self.opened = True
            while chunk := await response.receive():
                for event in self.decoder.feed(chunk):
                    self._lively = True
                    self._finished = await self.take(event)


@attrs.frozen(eq=False)
class LegacySession:
    """What a handshake has settled, and what a message that belongs to it does about it.

    Attributes:
        keeper: Whose it is.
        params: What the client said in ``initialize``.
        revision: What the server answered.
        id: The session id, if the server gave one.
        scope: Around what listens to the server; cancelled when there is another session.
    """

    keeper: LegacySessions
    params: dict[str, Any] | None
    revision: str
    id: str | None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def headers(self) -> dict[str, str]:
        """What each message of it has in its headers."""
        fields = {PROTOCOL_VERSION: self.revision or None, SESSION_ID: self.id}
        return {name: value for name, value in fields.items() if value is not None}

    def stream_headers(self, last_event_id: str = "") -> dict[str, str]:
        """The headers of a GET, or, but for ``Accept``, of a DELETE.

        Raises:
            ValueError: The event id, after which a stream is to go on, can't be sent in a header.
        """
        if not last_event_id:
            return {"Accept": EVENTS, **self.headers}
        if not _EVENT_ID.fullmatch(last_event_id):
            what = f"the event id {shown(last_event_id)}"
            raise ValueError(f"{what} can't be sent back: it is too long or not plain ASCII")
        return {"Accept": EVENTS, **self.headers, LAST_EVENT_ID: last_event_id}

    async def resume(self, decoder: EventDecoder, take: TakeEvent) -> None:
        """Go on with a stream that ended too early (L, Resumability and Redelivery)."""
        await EventStream(self, decoder, take).follow(at_once=False)

    async def announced(self) -> None:
        """Listen to the server from now on, and wait for a moment until it is ready for that."""
        answered = trio.Event()
        self.keeper.remote.nursery.start_soon(self._listen, answered)
        with trio.move_on_after(LISTENING_PATIENCE):
            await answered.wait()

    async def _listen(self, answered: trio.Event) -> None:
        """Hear what the server has to say besides answers (L, Listening for Messages from the Server).

        Args:
            answered: Set when the server has said whether it has such a stream.
        """
        remote = self.keeper.remote

        async def take(event: ServerSentEvent | Malformed) -> bool:
            message = message_of(event)
            if message is not None:
                await remote.deliver(message)
            return False

        stream = EventStream(self, EventDecoder(remote.max_message_size), take, answered=answered)
        with self.scope:
            try:
                await stream.follow(at_once=True)
            except TransportError as exc:
                trouble = exc.trouble if isinstance(exc, HttpError) else None
                if trouble is not None and not stream.opened:
                    logger.debug("the server offers no event stream: %s", exc)
                elif trouble == "session_lost":
                    remote.nursery.start_soon(self.keeper.renew_unasked, self)
                else:
                    await remote.report(f"the server's own messages are not heard any more: {exc}")


@attrs.define(eq=False)
class _Renewal:
    """Another session that is being opened, and why there is none to be had."""

    done: trio.Event = attrs.field(factory=trio.Event)
    error: TrioMcpError | None = None


class LegacySessions:
    """Keeps the session of a link, and goes over to HTTP+SSE where a server speaks nothing newer.

    Attributes:
        remote: The server.
        session: The session that there is.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.session: LegacySession | None = None
        self._ready: trio.Event | None = None  # set when a server has been told that its client is initialized
        self._renewal: _Renewal | None = None
        self._unasked_from = -math.inf
        remote.lessons["initialize"] = self._opened
        remote.mends["session_lost"] = self._lost
        remote.mends["not_streamable"] = self._go_over

    async def before(self, request: Request) -> LegacySession | None:
        """Begin anew with ``initialize``; everything else waits until the server has been told that it may come."""
        url = self.remote.wire.url
        if request.method == "initialize":
            if self.session is not None:
                self.session.scope.cancel("there is another session")
            self.session = self.remote.modern = self._ready = None
            if self.remote.answers_here and ORIGINS.recall(url) == "sse" and not await self._go_over():
                ORIGINS.forget(url)
        if self._ready is not None:
            await self._ready.wait()  # `basic/lifecycle`, Initialization: requests come after it
        return self.session

    def announcing(self, done: trio.Event) -> None:
        """The server is about to be told that the client is initialized."""
        self._ready = done

    async def end(self) -> None:
        """End the session with a DELETE; where the connection breaks, with another."""
        session = self.session
        if session is not None and session.id is not None:
            session.scope.cancel("the link is closed")
            # It may refuse to (L, Session Management, 5), and if it is gone there is nothing to end.
            for _ in range(2):
                with contextlib.suppress(TransportError):
                    async with self.remote.wire.exchange("DELETE", session.stream_headers()):
                        return

    def _opened(self, exchange: Exchange, answer: Answer) -> Answer:
        """``initialize`` has been answered.

        Raises:
            RemoteProtocolError: The session id can't be one.
        """
        if not isinstance(answer, Response):
            return answer
        assert exchange.response is not None
        given = exchange.response.headers.get(SESSION_ID)
        if given is not None and not _SESSION_ID.fullmatch(given):
            raise RemoteProtocolError("the server gave a session id that is too long or not visible ASCII")
        spoken = answer.result.get("protocolVersion")
        # What is no revision is for the session above to complain about.
        revision = spoken if isinstance(spoken, str) and spoken.isascii() else ""
        self.session = LegacySession(self, exchange.request.params, revision, given)
        if self.remote.not_modern:  # a client that does not ask for the modern era learns nothing of it
            ORIGINS.note(self.remote.wire.url, "legacy")
        return answer

    # --- a session that is lost --------------------------------------------------------------------------------------

    async def _lost(self, exchange: Exchange) -> bool:
        await self._renew(exchange.session)
        # L, Session Management, 4: what is refused with 404 has not been done; unlike what was being answered.
        refused = exchange.response is not None and exchange.response.status == 404
        return refused or may_repeat("gateway", exchange.request.method)

    async def renew_unasked(self, lost: LegacySession) -> None:
        """Have another session, only to hear the server's own messages."""
        # Not again and again, as long as nobody calls, for a server that always forgets.
        await trio.sleep_until(self._unasked_from)
        self._unasked_from = trio.current_time() + UNASKED_INTERVAL
        try:
            await self._renew(lost)
        except TrioMcpError as exc:
            await self.remote.report(f"the server has forgotten the session, and there is no other: {exc}")

    async def _renew(self, lost: Session | None) -> None:
        """Wait for another session, which is opened once, however many calls find out.

        When cancelled, it is opened all the same, for those who wait with us.

        Raises:
            TrioMcpError: There is none to be had.
        """
        session, renewal = self.session, self._renewal
        if session is None or session is not lost:
            return  # there is another by now
        if renewal is None:
            renewal = self._renewal = _Renewal()
            self.remote.nursery.start_soon(self._open_another, session, renewal)
        await renewal.done.wait()
        if renewal.error is not None:
            raise copy.copy(renewal.error)  # one for each call: they would share a traceback

    async def _open_another(self, lost: LegacySession, renewal: _Renewal) -> None:
        self._ready = ready = trio.Event()
        try:
            with trio.CancelScope(deadline=trio.current_time() + RENEWAL_TIMEOUT) as scope:
                await self.remote.ask("initialize", lost.params)
                lost.scope.cancel("the session is lost")
                spoken = self.session.revision if self.session is not None else ""
                if spoken != lost.revision:
                    text = f"the server has forgotten the session, and now speaks {spoken!r}"
                    error = TransportError(f"{text} instead of {lost.revision!r}; make a new connection")
                    await self.remote.deliver(Failure(error))
                    raise error
                await self.remote.tell(Notification("notifications/initialized"))
            if scope.cancelled_caught:
                text = f"the server has forgotten the session, and opened no other within {RENEWAL_TIMEOUT:g} seconds"
                renewal.error = TransportError(text)
        except TrioMcpError as exc:
            renewal.error = exc
        finally:
            ready.set()
            self._renewal = None
            renewal.done.set()

    # --- HTTP+SSE ----------------------------------------------------------------------------------------------------

    async def _go_over(self, exchange: Exchange | None = None) -> bool:
        """Go over to HTTP+SSE, if the server speaks that (S, HTTP+SSE Transport)."""
        if not self.remote.answers_here:
            return False
        try:
            await open_old_stream(self.remote)
        except TrioMcpError as exc:
            logger.debug("the server does not speak HTTP+SSE either: %s", exc)
            return False
        ORIGINS.note(self.remote.wire.url, "sse")
        return True
