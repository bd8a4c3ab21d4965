"""One request over HTTP: sending it once, and reading what comes back, JSON or events, up to the answer."""

from __future__ import annotations

import abc
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from trio_mcp.eras.client_negotiation import supported_by
from trio_mcp.errors import HttpError, McpError, MessageTooLarge, RemoteProtocolError, TransportError
from trio_mcp.http.client.legacy.events import EventStream
from trio_mcp.http.client.legacy.session import LegacySession
from trio_mcp.http.client.legacy.sse import OldStream
from trio_mcp.http.client.link import Exchange, HttpLink
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.rules import (
    MAX_ERROR_BODY,
    Failed,
    answer_kind,
    post_headers,
    read_failure,
    stream_headers,
)
from trio_mcp.http.client.tool_headers import ToolHeaders
from trio_mcp.http.client.wire import Disconnected, HttpResponse, HttpWire, TooLarge
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
)
from trio_mcp.retrying import Backoff

__all__ = ["HttpPosting", "message_of"]

ERROR_BODY_TIMEOUT: Final = 5.0
"""Seconds that the body of an error may take; what has come by then is the excerpt."""
DRAIN_TIMEOUT: Final = 2.0
"""Seconds that a stream may take to end after its answer; after that its connection is not used again."""


class HttpPosting(HttpLink):
    """The part of a link that makes single exchanges.

    Args:
        wire: Where they are made.
        max_message_size: The longest JSON text or event that is taken, in bytes.
        backoff: How long to wait before a broken stream is gone on with, and how often.
    """

    def __init__(self, wire: HttpWire, max_message_size: int, backoff: Backoff) -> None:
        super().__init__()
        self._wire = wire
        self._max_message_size = EventDecoder(max_message_size).max_message_size  # which checks it
        self._backoff = backoff
        self._session: LegacySession | None = None
        self._modern: str | None = None
        self._not_modern = False  # the server has shown that it speaks no modern revision
        self._old: OldStream | None = None
        self._tools = ToolHeaders()

    @abc.abstractmethod
    def _opened(self, request: Request, result: dict[str, Any], response: HttpResponse) -> None:
        """``initialize`` has been answered."""

    def _headers(self, message: Message, session: LegacySession | None) -> dict[str, str]:
        revision = self._modern or (None if session is None else session.revision or None)
        parameters = self._tools.of(message.params) if isinstance(message, Request) else ()
        session_id = None if session is None else session.id
        return post_headers(message, revision=revision, session=session_id, parameters=parameters)

    @property
    def _endpoint(self) -> str:
        return self._wire.url if self._old is None else self._old.endpoint

    async def _post_once(self, exchange: Exchange, session: LegacySession | None) -> Failed | None:
        """Send a request once and see to its answer.

        Returns:
            What a refusal says; None if all is well.
        """
        request = exchange.request
        try:
            headers = self._headers(request, session)
        except ValueError as exc:
            raise TransportError(f"{request.method!r} was not sent: {exc}") from None
        try:
            content = encode(request)
        except ValueError as exc:
            raise TransportError(f"{request.method!r} was not sent: it can't be written as JSON: {exc}") from None
        exchange.sent, exchange.begun, exchange.tools_seen = True, False, self._tools.learned
        async with self._wire.exchange("POST", headers, content, url=self._endpoint) as response:
            exchange.begun = True
            kind = answer_kind(response.status, response.headers, awaits_answer=self._old is None)
            if kind == "failed":
                return await self._failure(response, request, session)
            if kind == "accepted":
                await response.beginning(MAX_ERROR_BODY, DRAIN_TIMEOUT)
            elif kind == "json":
                await self._read_json(exchange, response)
            else:
                await self._read_stream(exchange, response, session)
        return None

    async def _read_json(self, exchange: Exchange, response: HttpResponse) -> None:
        try:
            message = decode(await response.body(self._max_message_size))
        except TooLarge:
            raise MessageTooLarge(self._max_message_size) from None
        if not isinstance(message, Malformed):  # its reason goes to the call, and to nobody else
            await self._take(exchange, message, response)
        if exchange.answer is None:
            why = message.reason if isinstance(message, Malformed) else type(message).__name__
            text = f"{response.target} was answered with something that is no answer to {exchange.request.method!r}"
            raise RemoteProtocolError(f"{text}: {why}")

    async def _read_stream(self, exchange: Exchange, response: HttpResponse, session: LegacySession | None) -> None:
        async def take(event: ServerSentEvent | Malformed) -> None:
            message = message_of(event)
            if message is not None:
                await self._take(exchange, message, response)
            if exchange.answer is not None and not stream.finished:
                stream.finished = True
                drain.deadline = trio.current_time() + DRAIN_TIMEOUT

        stream = self._event_stream(session, take)
        broken: Disconnected | None = None
        # To its end, so that the connection can be used again; but not for ever.
        with trio.CancelScope() as drain:
            try:
                await stream.read(response)
            except Disconnected as exc:
                broken = exc
            if exchange.answer is None and session is not None and stream.decoder.last_event_id:
                await stream.follow(at_once=False)
        if exchange.answer is None:
            text = f"the event stream of {response.target} ended without an answer to {exchange.request.method!r}"
            raise broken or Disconnected(text)

    async def _take(self, exchange: Exchange, message: Incoming, response: HttpResponse) -> None:
        """Take one message of the answer to a request."""
        request_id = exchange.request.id
        if isinstance(message, ErrorResponse) and message.id is None:
            message = attrs.evolve(message, id=request_id)  # it came as the answer to this very request
        elif isinstance(message, Malformed) and not message.expects_answer and message.id in (None, request_id):
            message = attrs.evolve(message, id=request_id, reason=f"{response.target}: {message.reason}")
            await self._answered(exchange, message)
            return
        if isinstance(message, (Response, ErrorResponse)) and message.id == request_id:
            if exchange.request.method == "initialize" and isinstance(message, Response):
                self._opened(exchange.request, message.result, response)
            await self._answered(exchange, message)
        elif isinstance(message, Batch) and any(
            isinstance(item, (Response, ErrorResponse)) and item.id == request_id for item in message.items
        ):
            exchange.answer = message
            await self.deliver(message)
        elif not exchange.private or isinstance(message, Notification):
            await self.deliver(message)

    async def _answered(self, exchange: Exchange, answer: Response | ErrorResponse | Malformed) -> None:
        if exchange.answer is not None:
            return  # one is enough
        if exchange.request.method == "server/discover" and isinstance(answer, ErrorResponse):
            error = answer.error
            self._not_modern = supported_by(McpError(error.code, error.message, error.data)) is None
        if exchange.modern and isinstance(answer, Response):
            if exchange.request.method == "server/discover":
                ORIGINS.note(self._wire.url, "modern")
            elif exchange.request.method == "tools/list":
                answer = attrs.evolve(answer, result=self._tools.learn(answer.result))
        exchange.answer = answer
        if not exchange.private:
            await self.deliver(answer)

    # --- shared with what else reads streams and refusals ------------------------------------------------------------

    def _event_stream(
        self, session: LegacySession | None, take: Callable[[ServerSentEvent | Malformed], Awaitable[None]]
    ) -> EventStream:
        revision, session_id = (None, None) if session is None else (session.revision or None, session.id)

        def headers(last_event_id: str) -> dict[str, str]:
            try:
                return stream_headers(revision=revision, session=session_id, last_event_id=last_event_id)
            except ValueError as exc:
                text = f"the event stream of {self._wire.shown} can't be gone on with: {exc}"
                raise TransportError(text) from None

        async def failure(response: HttpResponse) -> HttpError:
            return (await self._failure(response, None, session)).error

        decoder = EventDecoder(self._max_message_size)
        return EventStream(self._wire, decoder, take, headers, failure, self._backoff)

    async def _failure(self, response: HttpResponse, message: Message | None, session: LegacySession | None) -> Failed:
        body = await response.beginning(MAX_ERROR_BODY, ERROR_BODY_TIMEOUT)
        return read_failure(
            response.status,
            response.headers,
            body,
            target=response.target,
            message=message,
            session=None if session is None else session.id,
            now=time.time(),
        )


def message_of(event: ServerSentEvent | Malformed) -> Incoming | None:
    """What an event holds; None for one that only says where to go on, or of another type."""
    if isinstance(event, Malformed):
        return event
    return decode(event.data) if event.data and event.event == "message" else None
