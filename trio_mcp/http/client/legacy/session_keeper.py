"""Sessions of the handshake era: opened, listened to, ended, and opened again where the server forgets them.

2025-11-25 `basic/transports`, section Session Management.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import re
from typing import Any, Final

import attrs
import trio

from trio_mcp.errors import HttpError, RemoteProtocolError, TransportError, TrioMcpError
from trio_mcp.http.client.legacy.event_streams import EventStream, open_old_stream, stream_headers
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.posting import Answer, Exchange, Remote, Session, TakeEvent, message_of
from trio_mcp.http.headers import PROTOCOL_VERSION, SESSION_ID
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.messages import Failure, Malformed, Notification, Request, Response
from trio_mcp.retrying import may_repeat

__all__ = ["LegacySession", "LegacySessions"]

logger = logging.getLogger("trio_mcp")

RENEWAL_TIMEOUT: Final = 30.0
"""Seconds for a server to open another session."""
LISTENING_PATIENCE: Final = 0.5
"""Seconds that the first requests of a session wait for the stream of the server's own messages. Many servers drop what
has no stream to go on, and a question that is asked before the stream is there would never come. But some servers
answer the GET only with the first message."""
UNASKED_INTERVAL: Final = 60.0
"""Seconds between two sessions that are opened only to hear the server's own messages."""

_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")


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

    async def resume(self, decoder: EventDecoder, take: TakeEvent) -> None:
        """Go on with a stream that ended too early (L, Resumability and Redelivery)."""
        await EventStream(self.keeper.remote, self, decoder, take).follow(at_once=False)

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

        stream = EventStream(remote, self, EventDecoder(remote.max_message_size), take, answered=answered)
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
        remote.mends["stream_lost"] = self._lost_midway
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
        """End the session with a DELETE."""
        session = self.session
        if session is not None and session.id is not None:
            session.scope.cancel("the link is closed")
            # It may refuse to (L, Session Management, 5), and if it is gone there is nothing to end.
            with contextlib.suppress(TransportError):
                async with self.remote.wire.exchange("DELETE", stream_headers(session)):
                    pass

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
        await self._renew(
            exchange.session
        )  # L, Session Management, 4; whatever was asked, nothing has been done with it
        return True

    async def _lost_midway(self, exchange: Exchange) -> bool:
        await self._renew(exchange.session)
        return may_repeat("gateway", exchange.request.method)

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
                await self._replace(lost)
            if scope.cancelled_caught:
                text = f"the server has forgotten the session, and opened no other within {RENEWAL_TIMEOUT:g} seconds"
                renewal.error = TransportError(text)
        except TrioMcpError as exc:
            renewal.error = exc
        finally:
            ready.set()
            self._renewal = None
            renewal.done.set()

    async def _replace(self, lost: LegacySession) -> None:
        await self.remote.ask("initialize", lost.params)
        session = self.session
        assert session is not None
        lost.scope.cancel("the session is lost")
        if session.revision != lost.revision:
            text = f"the server has forgotten the session, and now speaks {session.revision!r}"
            error = TransportError(f"{text} instead of {lost.revision!r}; make a new connection")
            await self.remote.deliver(Failure(error))
            raise error
        await self.remote.tell(Notification("notifications/initialized"))

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
