"""A client's link over HTTP: how requests and answers are sent, and how trouble is mended."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
from collections.abc import AsyncIterator
from typing import Any, Final

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.errors import HttpError, McpError, RemoteProtocolError, TransportError, TrioMcpError
from trio_mcp.http.client.legacy.session import LegacySession, Renewals
from trio_mcp.http.client.legacy.sse import OldStream
from trio_mcp.http.client.link import Exchange
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.posting import DRAIN_TIMEOUT, HttpPosting, message_of
from trio_mcp.http.client.rules import MAX_ERROR_BODY, Failed, answer_kind, modern_revision_of, stream_headers
from trio_mcp.http.client.wire import Disconnected, HttpResponse, HttpWire
from trio_mcp.http.sse import ServerSentEvent
from trio_mcp.jsonrpc.codec import encode_or_replace
from trio_mcp.jsonrpc.messages import (
    ErrorResponse,
    Failure,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
)
from trio_mcp.retrying import Backoff, may_repeat
from trio_mcp.types.methods import facts_of

__all__ = ["HttpClientLink"]

logger = logging.getLogger("trio_mcp")

CLOSE_TIMEOUT: Final = 2.0
"""Seconds for what is on its way at a close, and again for the server to take note that the session is over."""
LISTENING_PATIENCE: Final = 0.5
"""Seconds that the first requests of a session wait for the stream of the server's own messages. Many servers drop what
has no stream to go on, and a question that is asked before the stream is there would never come. But some servers
answer the GET only with the first message."""
UNASKED_INTERVAL: Final = 60.0
"""Seconds between two sessions that are opened only to hear the server's own messages."""
MAX_PAGES: Final = 1000
"""Pages of tools that are read to learn which headers a tool wants."""

_OF_THE_WAY: Final = frozenset({"busy", "forbidden", "gateway", "too_large", "unauthorized"})
"""What a status says of the way to the server rather than of the request."""


class HttpClientLink(HttpPosting):
    """One link. The arguments are those of `HttpPosting`."""

    def __init__(self, wire: HttpWire, max_message_size: int, backoff: Backoff) -> None:
        super().__init__(wire, max_message_size, backoff)
        self._ready: trio.Event | None = None  # set when a server has been told that its client is initialized
        self._relisting = trio.Lock()
        self._ids = itertools.count(1)
        self._unasked_from = -math.inf
        self._renewals = Renewals(lambda function: self.nursery.start_soon(function), self._renew)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The block in which the link is open."""
        try:
            async with background_nursery(self._end) as nursery:
                self.start(nursery)
                yield
        finally:
            self.close_channels()

    async def _end(self) -> None:
        with trio.move_on_after(CLOSE_TIMEOUT):
            await self.flush()
        session = self._session
        if session is not None and session.id is not None:
            session.scope.cancel("the link is closed")
            headers = stream_headers(revision=session.revision, session=session.id)
            # It may refuse to (L, Session Management, 5), and if it is gone there is nothing to end.
            with trio.move_on_after(CLOSE_TIMEOUT), contextlib.suppress(TransportError):
                async with self._wire.exchange("DELETE", headers):
                    pass

    # --- requests ------------------------------------------------------------------------------------------------

    async def ask(self, exchange: Exchange) -> None:
        request = exchange.request
        if exchange.modern:
            self._modern = modern_revision_of(request)
        elif request.method == "initialize":
            if self._session is not None:
                self._session.scope.cancel("there is another session")
            self._session = self._modern = self._ready = None
            if self._old is None and ORIGINS.recall(self._wire.url) == "sse" and not await self._fell_back():
                ORIGINS.forget(self._wire.url)
        for last in (False, True):
            if self._ready is not None and not exchange.modern:
                await self._ready.wait()
            session, forgotten = self._session, None
            try:
                failed = await self._post_once(exchange, session)
            except Disconnected as exc:
                if last or not _repeatable(exchange, exc):
                    raise
                continue
            except HttpError as exc:  # the answer to a GET that would have gone on with the stream
                if last or exc.trouble != "session_lost" or session is None:
                    raise
                forgotten = exc
            if session is not None and forgotten is not None:
                await self._renewed(session)
                if not may_repeat("gateway", request.method):
                    raise forgotten
            elif failed is None:
                return
            elif last or not await self._mended(exchange, failed, session):
                await self._refused(exchange, failed)
                return

    async def _mended(self, exchange: Exchange, failed: Failed, session: LegacySession | None) -> bool:
        """Try to do away with the cause of a refusal; True if the request is worth being sent again."""
        trouble = failed.error.trouble
        if trouble == "session_lost" and session is not None:
            await self._renewed(session)  # L, Session Management, 4; whatever was asked, nothing has been done with it
            return True
        if trouble == "header_mismatch":
            return await self._relisted(exchange)
        return trouble == "not_streamable" and self._old is None and await self._fell_back()

    async def _refused(self, exchange: Exchange, failed: Failed) -> None:
        if failed.error.trouble == "not_modern":
            self._not_modern = True
        # What the status says of the way to the server is lost in a JSON-RPC error, so there the status goes first.
        if failed.answer is not None and failed.error.trouble not in _OF_THE_WAY:
            await self._answered(exchange, failed.answer)
        else:
            raise failed.error

    # --- what has no answer ----------------------------------------------------------------------------------------

    def before_post(self, message: Message, done: trio.Event) -> None:
        if isinstance(message, Notification) and message.method == "notifications/initialized":
            self._ready = done  # `basic/lifecycle`, Initialization: requests come after it

    def takes_cancellations(self) -> bool:
        return self._modern is None

    async def tell(self, message: Message) -> None:
        session = self._session
        content, problem = encode_or_replace(message)
        if problem is not None:
            logger.error("%s was not sent: %s", type(message).__name__, problem)
        if content is None:
            return
        headers = self._headers(message, session)
        async with self._wire.exchange("POST", headers, content, url=self._endpoint) as response:
            if answer_kind(response.status, response.headers, awaits_answer=False) == "failed":
                raise (await self._failure(response, message, session)).error
            await response.beginning(MAX_ERROR_BODY, DRAIN_TIMEOUT)
        if isinstance(message, Notification) and message.method == "notifications/initialized" and session is not None:
            answered = trio.Event()
            self.nursery.start_soon(self._listen, session, answered)
            with trio.move_on_after(LISTENING_PATIENCE):
                await answered.wait()

    # --- the session of the handshake era -----------------------------------------------------------------------------

    def _opened(self, request: Request, result: dict[str, Any], response: HttpResponse) -> None:
        self._session = LegacySession.opened(request.params, result, response)
        if self._not_modern:  # a client that does not ask for the modern era learns nothing of it
            ORIGINS.note(self._wire.url, "legacy")

    async def _listen(self, session: LegacySession, answered: trio.Event) -> None:
        """Hear what the server has to say besides answers (L, Listening for Messages from the Server).

        Args:
            session: The session.
            answered: Set when the server has said whether it has such a stream.
        """

        async def take(event: ServerSentEvent | Malformed) -> None:
            message = message_of(event)
            if message is not None:
                await self.deliver(message)

        stream = self._event_stream(session, take)
        stream.answered = answered
        with session.scope:
            try:
                await stream.follow(at_once=True)
            except HttpError as exc:
                if not stream.opened:
                    logger.debug("the server offers no event stream: %s", exc)
                elif exc.trouble == "session_lost":
                    self.nursery.start_soon(self._renew_unasked, session)
                else:
                    await self.report(f"the server's own messages are not heard any more: {exc}")
            except TransportError as exc:
                await self.report(f"the server's own messages are not heard any more: {exc}")

    async def _renew_unasked(self, session: LegacySession) -> None:
        # Not again and again, as long as nobody calls, for a server that always forgets.
        await trio.sleep_until(self._unasked_from)
        self._unasked_from = trio.current_time() + UNASKED_INTERVAL
        try:
            await self._renewed(session)
        except TrioMcpError as exc:
            await self.report(f"the server has forgotten the session, and there is no other: {exc}")

    async def _renewed(self, lost: LegacySession) -> None:
        if lost is self._session:
            await self._renewals.renew(lost)

    async def _renew(self, lost: LegacySession) -> None:
        self._ready = ready = trio.Event()
        try:
            await self._private("initialize", lost.params)
            session = self._session
            assert session is not None
            lost.scope.cancel("the session is lost")
            if session.revision != lost.revision:
                text = f"the server has forgotten the session, and now speaks {session.revision!r}"
                error = TransportError(f"{text} instead of {lost.revision!r}; make a new connection")
                await self.deliver(Failure(error))
                raise error
            await self.tell(Notification("notifications/initialized"))
        finally:
            ready.set()

    async def _private(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        """Make a request that the session above knows nothing of.

        Raises:
            TrioMcpError: It has no result.
        """
        exchange = Exchange(Request(f"transport-{next(self._ids)}", method, params), private=True)
        failed = await self._post_once(exchange, None)
        if failed is not None:
            raise failed.error
        answer = exchange.answer
        if isinstance(answer, Response):
            return answer.result
        if isinstance(answer, ErrorResponse):
            raise McpError(answer.error.code, answer.error.message, answer.error.data)
        raise RemoteProtocolError(f"the answer to {method!r} is malformed")

    # --- other trouble ------------------------------------------------------------------------------------------------

    async def _relisted(self, exchange: Exchange) -> bool:
        """Learn which headers the tools want, all of them, once for all calls that were refused."""
        given = (exchange.request.params or {}).get("_meta") or {}
        meta = {key: value for key, value in given.items() if key.startswith("io.modelcontextprotocol/")}
        async with self._relisting:
            if self._tools.learned != exchange.tools_seen:
                return True
            params: dict[str, Any] = {"_meta": meta}
            try:
                for _ in range(MAX_PAGES):
                    cursor = (await self._private("tools/list", params)).get("nextCursor")
                    if not isinstance(cursor, str):
                        break
                    params = {"_meta": meta, "cursor": cursor}
            except TrioMcpError as exc:
                logger.debug("the tools can't be listed: %s", exc)
                return False
        return True

    async def _fell_back(self) -> bool:
        """Go over to HTTP+SSE, if the server speaks that (S, HTTP+SSE Transport)."""
        try:
            await self.open_old_stream()
        except TrioMcpError as exc:
            logger.debug("the server does not speak HTTP+SSE either: %s", exc)
            return False
        ORIGINS.note(self._wire.url, "sse")
        return True

    async def open_old_stream(self) -> None:
        """Go over to HTTP+SSE.

        Raises:
            TransportError, RemoteProtocolError: The server does not speak it.
        """

        async def failure(response: HttpResponse) -> HttpError:
            return (await self._failure(response, None, None)).error

        old = OldStream(self._wire, self._max_message_size, self.deliver, failure)
        await self.nursery.start(old.run)
        self._old = old


def _repeatable(exchange: Exchange, exc: Disconnected) -> bool:
    """Whether a request may be sent again after its connection broke."""
    method = exchange.request.method
    # What a subscription would have told meanwhile is lost, and its owner has to know.
    return exc.sent and may_repeat("gateway", method) and not (facts_of(method).lasting and exchange.begun)
