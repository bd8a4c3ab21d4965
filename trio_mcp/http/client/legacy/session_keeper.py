"""Keeps the sessions of the legacy era: opens, listens to and ends them, and replaces those that the server has lost.

In references, L is 2025-11-25 `basic/transports`, and S is 2026-07-28 `basic/transports/streamable-http`.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
import re
from collections.abc import Mapping
from typing import Any, Final

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.errors import (
    AuthorizationError,
    Disconnected,
    HttpError,
    RemoteProtocolError,
    TransportError,
    TrioMcpError,
)
from trio_mcp.http.client.legacy.sse_client import open_old_stream
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.posting import Answer, PostedRequest, Remote, SessionView, TakeEvent, message_of, refusal_of
from trio_mcp.http.headers import EVENTS, LAST_EVENT_ID, PROTOCOL_VERSION, SESSION_ID, shown
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.messages import Malformed, Notification, Request, Response, TransportFailure
from trio_mcp.retrying import may_repeat
from trio_mcp.stopwatch import current_stopwatch

__all__ = ["LegacySession", "LegacySessions"]

MIN_WAIT: Final = 0.1
"""The minimum number of seconds between two attempts to resume a stream, whatever the server asks for (arbitrary):
``retry: 0`` must not make the client reconnect in a tight loop."""
MAX_MIN_WAIT: Final = 3.0
"""The maximum of the minimum wait, in seconds (arbitrary). The minimum wait is `MIN_WAIT` at first, and doubles with
each connection that brings no message, even if the connection ends normally. So a server that makes its client
reconnect endlessly costs little, and its messages still arrive soon enough."""
STEADY: Final = 3.0
"""Seconds after which a connection counts as a success even if it has brought no event (arbitrary): a proxy may end
streams on which nothing happens, again and again."""
RENEWAL_TIMEOUT: Final = 30.0
"""Seconds that a server may take to open a new session (arbitrary)."""
LISTENING_PATIENCE: Final = 0.5
"""Seconds that the first requests of a session wait for the stream of the server's own messages (arbitrary).

Many servers drop messages for which no stream is open, so a question asked too early would never arrive; but some
servers respond to the GET only when they have a first message."""
UNASKED_INTERVAL: Final = 60.0
"""The minimum number of seconds between two sessions that are opened only to receive the server's own messages
(arbitrary)."""

# The kinds of trouble that may pass, so that resuming a stream is worth another attempt.
_HOPEFUL: Final = frozenset({"busy", "gateway"})
# An event id must fit into a header unchanged: a field value loses the spaces around it (RFC 9110, section 5.5). A
# session id has only visible ASCII characters (L, Session Management). The maximum lengths are arbitrary.
_EVENT_ID = re.compile(r"(?=.{1,4096}\Z)[\x21-\x7e]+(?: +[\x21-\x7e]+)*")
_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")


@attrs.define(eq=False)
class EventStream:
    """Follows one stream of events, over as many connections as are needed.

    Attributes:
        session: The session that the stream belongs to.
        decoder: The decoder of the current or last connection.
        take: Takes each event; returns True when no more events are wanted.
        own: The header fields that the caller of the request has given, if this is the stream of one.
        opened: Whether the stream has been open at least once.
        answered: Set when `follow` has received a first HTTP response, of any status.
    """

    session: LegacySession
    decoder: EventDecoder
    take: TakeEvent
    own: Mapping[str, str] | None = None
    opened: bool = False
    answered: trio.Event = attrs.field(factory=trio.Event)
    _finished: bool = False
    _lively: bool = False
    _useful: bool = False
    _steady_from: float = math.inf

    async def follow(self, *, at_once: bool) -> None:
        """Connect, read, and reconnect until no more events are wanted.

        Args:
            at_once: Whether to make the first connection without waiting.

        Raises:
            HttpError: If the server refuses the stream, and not only for the moment.
            TransportError: If all attempts failed.
        """
        remote, attempt, asked = self.session.keeper.remote, 0, self.decoder.retry
        least = MIN_WAIT
        last: Exception | None = None
        while not self._finished:
            if not at_once:
                wait = remote.backoff.wait(attempt, random.random, asked)
                if wait is None:
                    why = f"; the last error was: {last}" if last is not None else ""
                    tries = f"{attempt} attempt{'s' * (attempt != 1)}"
                    raise TransportError(
                        f"gave up reconnecting to the event stream of {remote.wire.shown} after {tries}{why}"
                    )
                # The wait also applies after a connection that ended normally: a server may close its streams in order
                # to be polled (`retry`, SEP-1699).
                await trio.sleep(max(wait, least))
                attempt += 1
            at_once, self._lively, self._useful, self._steady_from = False, False, False, math.inf
            try:
                await self._connect()
                last = None
            except Disconnected as exc:
                last = exc
            # A permanent refusal ends the stream; a server that is overloaded or being restarted is asked again.
            except HttpError as exc:
                if exc.trouble not in _HOPEFUL and exc.status < 500:
                    raise
                last, asked = exc, exc.retry_after
                continue
            # A connection that brought events or lasted counts as success, so the attempts are counted from 0 again.
            if self._lively or trio.current_time() >= self._steady_from:
                attempt = 0
            least = MIN_WAIT if self._useful else min(2 * least, MAX_MIN_WAIT)
            asked = self.decoder.retry

    async def _connect(self) -> None:
        """Make one connection and read it to its end."""
        wire = self.session.keeper.remote.wire
        try:
            headers = self.session.stream_headers(self.decoder.last_event_id)
        except ValueError as exc:
            raise TransportError(f"the event stream of {wire.shown} can't be resumed: {exc}") from None
        async with wire.exchange("GET", headers, own=self.own) as response:
            self.answered.set()
            if response.status != 200 or response.headers.media_type != EVENTS:
                raise (await refusal_of(response, in_session=self.session.id is not None)).error
            # The new decoder keeps the last event id and the `retry`, and forgets an event that was cut off.
            self.decoder = self.decoder.resumed()
            self.opened = True
            self._steady_from = trio.current_time() + STEADY
            while chunk := await response.receive():
                for event in self.decoder.feed(chunk):
                    self._lively = True
                    self._useful |= isinstance(event, Malformed) or bool(event.data)
                    self._finished = await self.take(event)
                    del event  # without this, a long event would stay in memory until the next one


@attrs.frozen(eq=False)
class LegacySession:
    """A session that a handshake has opened, with the headers and streams that belong to the session.

    Attributes:
        keeper: The object that has opened this session.
        params: The client's parameters of ``initialize``, with which another session can be opened.
        revision: The revision that the server chose.
        id: The session id, if the server gave one.
        scope: The scope of the task that listens to the server; cancelled when another session replaces this session.
    """

    keeper: LegacySessions
    params: dict[str, Any] | None
    revision: str
    id: str | None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each message in the session."""
        # L, Protocol Version Header and Session Management: every request after the handshake has both headers.
        fields = {PROTOCOL_VERSION: self.revision or None, SESSION_ID: self.id}
        return {name: value for name, value in fields.items() if value is not None}

    def stream_headers(self, last_event_id: str = "") -> dict[str, str]:
        """Return the headers of a GET or a DELETE; ``Accept``, which only a GET needs, is harmless in a DELETE.

        Args:
            last_event_id: The id of the event after which to resume a stream; empty for a new stream.

        Raises:
            ValueError: If the event id can't be sent in a header.
        """
        if not last_event_id:
            return {"Accept": EVENTS, **self.headers}
        if not _EVENT_ID.fullmatch(last_event_id):
            raise ValueError(
                f"the event id {shown(last_event_id)} can't be sent back: it is too long or not plain ASCII"
            )
        return {"Accept": EVENTS, **self.headers, LAST_EVENT_ID: last_event_id}

    async def resume(self, decoder: EventDecoder, take: TakeEvent, own: Mapping[str, str] | None) -> None:
        """Resume a stream that ended too early (L, Resumability and Redelivery)."""
        await EventStream(self, decoder, take, own).follow(at_once=False)

    async def announced(self) -> None:
        """Start listening for the server's own messages, and wait a moment for the server to respond."""
        answered = trio.Event()
        self.keeper.remote.nursery.start_soon(self._listen, answered)
        with trio.move_on_after(LISTENING_PATIENCE):
            await answered.wait()

    async def _listen(self, answered: trio.Event) -> None:
        """Read the server's own requests and notifications (L, Listening for Messages from the Server).

        Args:
            answered: Set when the server has responded, whether it offers such a stream or not.
        """
        remote = self.keeper.remote

        async def take(event: ServerSentEvent | Malformed) -> bool:
            message = message_of(event)
            if message is not None:
                await remote.deliver(message)
            return False

        stream = EventStream(self, EventDecoder(remote.max_message_size), take, answered=answered)
        # The link never fails because of this stream: without it, only the server's own messages are missing.
        with self.scope:
            try:
                await stream.follow(at_once=True)
            except TransportError as exc:
                trouble = exc.trouble if isinstance(exc, HttpError) else None
                if trouble is not None and not stream.opened:
                    # Offering a stream is optional: L lets a server respond with 405, and some use other statuses.
                    logger.debug("the server offers no event stream: %s", exc)
                elif trouble == "session_lost":
                    remote.nursery.start_soon(self.keeper.renew_unasked, self)
                else:
                    await remote.report(f"the server's own messages are no longer received: {exc}")


@attrs.define(eq=False)
class _Renewal:
    """A new session that is being opened, and the error if opening it has failed."""

    done: trio.Event = attrs.field(factory=trio.Event)
    error: TrioMcpError | None = None


class LegacySessions:
    """Keeps a link's session, and switches the link to HTTP+SSE if the server supports nothing newer.

    Attributes:
        remote: The server.
        session: The current session, if any.
    """

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.session: LegacySession | None = None
        self._ready: trio.Event | None = None  # set when `notifications/initialized` has been sent
        self._renewal: _Renewal | None = None
        # The earliest time at which another session may be opened without a call that needs a session.
        self._unasked_from = -math.inf
        # The rest of the client knows nothing of sessions, so this class registers the functions that handle sessions.
        remote.lessons["initialize"] = self._opened
        remote.mends["session_lost"] = self._lost
        remote.mends["not_streamable"] = self._go_over

    async def before(self, request: Request) -> LegacySession | None:
        """Start over before ``initialize``; delay other requests until ``notifications/initialized`` has been sent."""
        url = self.remote.wire.url
        if request.method == "initialize":
            if self.session is not None:
                self.session.scope.cancel("a new session replaces this one")
            self.session = self.remote.modern = self._ready = None
            # HTTP+SSE is tried first if `ORIGINS` has noted it for the server. If that attempt fails, the note was
            # wrong.
            if self.remote.answers_here and ORIGINS.recall(url) == "sse" and not await self._go_over():
                ORIGINS.forget(url)
        if self._ready is not None:
            await self._ready.wait()  # no request may precede that notification (`basic/lifecycle`, Initialization)
        return self.session

    def announcing(self, done: trio.Event) -> None:
        """Make requests wait for ``done``, because ``notifications/initialized`` is about to be sent."""
        self._ready = done

    async def announce(self, notification: Notification) -> None:
        """Send ``notifications/initialized``; open another session if the server has already forgotten this one.

        Raises:
            TrioMcpError: If the server did not accept the notification.
        """
        session = self.session
        try:
            await self.remote.tell(notification)
        except HttpError as exc:
            # Over HTTP+SSE a lost session can't be replaced: it lasts as long as the stream, and the link ends with the
            # stream.
            if exc.trouble != "session_lost" or not self.remote.answers_here:
                raise
            # A new session is opened now, rather than by the next call: without a call, the server's own messages would
            # never be received.
            await self._renew(session)

    async def end(self) -> None:
        """End the session with a DELETE, which is sent once more if the connection breaks."""
        session = self.session
        if session is not None and session.id is not None:
            session.scope.cancel("the link is closed")
            # Errors are ignored: the server may refuse the DELETE (L, Session Management, 5), and a server that is down
            # has no session to end.
            for _ in range(2):
                with contextlib.suppress(TransportError):
                    async with self.remote.wire.exchange("DELETE", session.stream_headers()):
                        return

    def _opened(self, exchange: PostedRequest, answer: Answer) -> Answer:
        """Begin a session if the response to ``initialize`` is a result.

        Raises:
            RemoteProtocolError: If the session id is invalid.
        """
        if not isinstance(answer, Response):
            return answer
        assert exchange.response is not None
        given = exchange.response.headers.get(SESSION_ID)
        if given is not None and not _SESSION_ID.fullmatch(given):
            raise RemoteProtocolError("the server sent a session id that is too long or not visible ASCII")
        spoken = answer.result.get("protocolVersion")
        # An unknown revision is refused by the `ClientSession` that uses the link; here it only has to fit into a
        # header.
        revision = spoken if isinstance(spoken, str) and spoken.isascii() else ""
        self.session = LegacySession(self, exchange.request.params, revision, given)
        if self.remote.not_modern:  # if the client has not tried the modern era, the server may still support it
            ORIGINS.note(self.remote.wire.url, "legacy")
        return answer

    # --- lost sessions -----------------------------------------------------------------------------------------------

    async def _lost(self, exchange: PostedRequest) -> bool:
        if not self.remote.answers_here:
            return False  # over HTTP+SSE, both the session and the link end with the stream
        # L, Session Management, 4: a request refused with 404 was not carried out. A request whose response had begun
        # may have been carried out, so it is sent again only if it is repeatable.
        refused = exchange.response is not None and exchange.response.status == 404
        try:
            await self._renew(exchange.session)
        except TrioMcpError as exc:
            if refused:
                raise
            # The error is not raised: the message would suggest that the server has refused a request, but the server
            # has begun to carry the request out.
            logger.debug("can't open a new session to replace the lost one: %s", exc)
            return False
        # A cursor must not be used in another session (`server/utilities/pagination`, Implementation Guidelines).
        if exchange.request.params is not None and "cursor" in exchange.request.params:
            return False
        return refused or may_repeat("gateway", exchange.request.method)

    async def renew_unasked(self, lost: LegacySession) -> None:
        """Open a new session only to receive the server's own messages, without a call that needs it."""
        # Two sessions without a call are opened at an interval: a server that loses every session must not make an idle
        # client open one session after another.
        await trio.sleep_until(self._unasked_from)
        self._unasked_from = trio.current_time() + UNASKED_INTERVAL
        try:
            await self._renew(lost)
        except TrioMcpError as exc:
            await self.remote.report(f"the server has forgotten the session, and a new one can't be opened: {exc}")

    async def _renew(self, lost: SessionView | None) -> None:
        """Wait for a new session, which is opened only once even if several calls have lost theirs.

        If this wait is cancelled, the session is still opened, for the other calls.

        Raises:
            TrioMcpError: If the new session can't be opened.
        """
        session, renewal = self.session, self._renewal
        # Several calls may notice the same loss at different times, and only the first may act on it.
        if session is None or session is not lost:
            return  # the lost session has been replaced already
        if renewal is None:
            # A task of the link opens the session, because the call that notices the loss first may be cancelled.
            renewal = self._renewal = _Renewal()
            self.remote.nursery.start_soon(self._open_another, session, renewal)
        await renewal.done.wait()
        if renewal.error is not None:
            raise copy.copy(renewal.error)  # each call raises a copy: one exception would mix up their tracebacks

    async def _open_another(self, lost: LegacySession, renewal: _Renewal) -> None:
        self._ready = ready = trio.Event()
        try:
            # `initialize` repeats the old parameters, so that the new session has the same client, revision and
            # capabilities. Its response makes `_opened` replace `self.session`.
            with current_stopwatch().limit(RENEWAL_TIMEOUT) as scope:
                try:
                    await self._open_one_like(lost)
                except HttpError as exc:
                    # The server may restart in the middle of the handshake, too, so the handshake is tried again; but
                    # only once, because a server that loses every session must not be asked forever.
                    if exc.trouble != "session_lost":
                        raise
                    await self._open_one_like(lost)
            if scope.cancelled_caught:
                renewal.error = TransportError(
                    f"the server has forgotten the session, and opened no new one within {RENEWAL_TIMEOUT:g} seconds"
                )
        except TrioMcpError as exc:
            renewal.error = exc
        finally:
            ready.set()
            self._renewal = None
            renewal.done.set()

    async def _open_one_like(self, lost: LegacySession) -> None:
        await self.remote.ask("initialize", lost.params)
        lost.scope.cancel("the session is lost")
        spoken = self.session.revision if self.session is not None else ""
        if spoken != lost.revision:
            # The `ClientSession` that uses the link has negotiated the old revision, and can't change to a different
            # revision.
            error = TransportError(
                f"the server has forgotten the session, and now speaks revision {spoken!r} instead of {lost.revision!r}"
                "; make a new connection"
            )
            await self.remote.deliver(TransportFailure(error))
            raise error
        await self.remote.tell(Notification("notifications/initialized"))

    # --- HTTP+SSE ----------------------------------------------------------------------------------------------------

    async def _go_over(self, exchange: PostedRequest | None = None) -> bool:
        """Switch to HTTP+SSE, and return whether the server supports it (S, HTTP+SSE Transport)."""
        if not self.remote.answers_here:
            return False
        try:
            await open_old_stream(self.remote)
        except AuthorizationError:
            raise  # a missing authorization says nothing about what the server supports
        except TrioMcpError as exc:
            logger.debug("the server does not speak HTTP+SSE: %s", exc)
            return False
        ORIGINS.note(self.remote.wire.url, "sse")
        return True
