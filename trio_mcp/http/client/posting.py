"""Sends a client's messages over HTTP, reads the responses as JSON or events, and recovers from trouble."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp.eras.client_negotiation import supported_by
from trio_mcp.errors import (
    Disconnected,
    HttpError,
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
    TransportError,
    TrioMcpError,
)
from trio_mcp.http.client.heads import (
    MAX_ERROR_BODY,
    POSTED,
    Failed,
    RequestHeaders,
    Trouble,
    answer_kind,
    modern_revision_of,
    read_failure,
)
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.http.client.sending.sender import HttpResponse
from trio_mcp.http.client.wire import HttpWire
from trio_mcp.http.headers import PROTOCOL_VERSION, Headers
from trio_mcp.http.sse import EventDecoder, ServerSentEvent
from trio_mcp.jsonrpc.codec import decode, encode, encode_or_replace
from trio_mcp.jsonrpc.messages import (
    RELATED,
    Batch,
    ErrorResponse,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
)
from trio_mcp.link import not_sent
from trio_mcp.retrying import Backoff, may_repeat
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.methods import facts_of

__all__ = [
    "Answer",
    "Deliver",
    "PostedRequest",
    "Remote",
    "SessionKeeper",
    "SessionView",
    "TakeEvent",
    "message_of",
    "refusal_of",
]

ERROR_BODY_TIMEOUT: Final = 5.0
"""Seconds that an error's body may take to arrive (arbitrary); the part that has arrived by then is the excerpt."""
DRAIN_TIMEOUT: Final = 2.0
"""Seconds that a stream may take to end after its response (arbitrary); after that, its connection is closed."""
MAX_TELLS: Final = 6
"""How often one of our responses is sent while the server asks for it to be sent later (arbitrary)."""
MAX_PAUSE: Final = 5.0
"""The longest pause in seconds between two of these attempts (arbitrary)."""
MAX_TURNS: Final = 8
"""How many turns of the event loop a request waits for a connection that is about to become free (arbitrary); one is
usually enough."""
MAX_PAGES: Final = 1000
"""The maximum number of pages of tools that are read to learn which headers a tool wants (arbitrary): a server might
never stop returning cursors."""

_OF_THE_WAY: Final = frozenset({"busy", "forbidden", "gateway", "too_large", "unauthorized"})
"""The kinds of trouble in which the status concerns access to the server rather than the request."""

Answer: TypeAlias = Response | ErrorResponse | Malformed
TakeEvent: TypeAlias = Callable[[ServerSentEvent | Malformed], Awaitable[bool]]
"""A function that takes an event, and returns True when no more events of its stream are wanted."""


# --- what the legacy era adds (its entry point is `door`) --------------------------------------------------------


class SessionView(Protocol):
    """A session of the legacy era, as an exchange sees it."""

    @property
    def id(self) -> str | None:
        """The session id, if the server gave one."""

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each message in the session."""

    async def announced(self) -> None:
        """Start whatever has to wait until the server has accepted ``notifications/initialized``."""

    async def resume(self, decoder: EventDecoder, take: TakeEvent, own: Mapping[str, str] | None) -> None:
        """Resume a stream that ended too early; ``own`` are the header fields that its caller has given.

        Raises:
            HttpError: If the server refuses the stream.
            TransportError: If all attempts failed.
        """


class SessionKeeper(Protocol):
    """Keeps a link's session, in the legacy era.

    Besides providing these methods, a keeper registers functions in `Remote.mends` and `Remote.lessons`.
    """

    @property
    def session(self) -> SessionView | None:
        """The current session, if any."""

    async def before(self, request: Request) -> SessionView | None:
        """Wait until a request of the legacy era may be sent, and return the session to send it in.

        Raises:
            TrioMcpError: If the request can't be sent.
        """

    def announcing(self, done: trio.Event) -> None:
        """Record that ``notifications/initialized`` is about to be sent; ``done`` is set when the attempt has ended."""

    async def announce(self, notification: Notification) -> None:
        """Send ``notifications/initialized``.

        Raises:
            TrioMcpError: If the server did not accept the notification.
        """

    async def end(self) -> None:
        """End the session, because the link is closed."""


# --- the server -----------------------------------------------------------------------------------------------------


class Deliver(Protocol):
    """A function that passes a message to the session that uses the link, with metadata."""

    async def __call__(self, message: Incoming, metadata: Mapping[str, Any] | None = None) -> object: ...


class Remote:
    """The server at the other end of a link: the wire to the server, and the facts that the exchanges have revealed.

    Args:
        wire: Makes the exchanges.
        deliver: Passes a message to the session that uses the link.
        max_message_size: The longest JSON text or event accepted, in bytes.
        backoff: How long to wait before resuming a broken stream, and how often.

    Attributes:
        endpoint: The URL that messages are posted to.
        answers_here: Whether a request's response comes in the HTTP response to its POST (over HTTP+SSE it does not).
        modern: The modern revision of the last request, if it was of the modern era.
        not_modern: Whether the server has shown that it supports no modern revision.
        nursery: The nursery of the link's tasks.
        sessions: Keeps the link's session, in the legacy era.
        mends: Functions that recover from trouble, by its kind; each returns whether to send the request once more.
        lessons: Functions that learn from the response to a method, by that method; each returns the response for the
            session that uses the link.
        request_headers: The headers of requests of the modern era.
        ending: The exchanges that have delivered their response, but not released their connection; oldest first.
    """

    nursery: trio.Nursery
    sessions: SessionKeeper

    def __init__(
        self,
        wire: HttpWire,
        deliver: Deliver,
        max_message_size: int,
        backoff: Backoff,
    ) -> None:
        self.wire = wire
        self.deliver = deliver
        self.max_message_size = EventDecoder(max_message_size).max_message_size  # the decoder checks the value
        self.backoff = backoff
        self.endpoint = wire.url
        self.answers_here = True
        self.modern: str | None = None
        self.not_modern = False
        self.mends: dict[Trouble, Callable[[PostedRequest], Awaitable[bool]]] = {
            "disconnected": _may_be_repeated,
            "header_mismatch": self._list_tools,
        }
        self.lessons: dict[str, Callable[[PostedRequest, Answer], Answer]] = {
            "server/discover": self._discovered,
            "tools/list": self._listed,
        }
        self.request_headers = RequestHeaders()
        self.ending: dict[PostedRequest, None] = {}
        # This lock is held while the tools are listed to learn their headers, so that all calls that were refused wait
        # for the same listing.
        self._listing = trio.Lock()
        self._ids = itertools.count(1)

    async def free(self) -> None:
        """Wait a moment for the connection of an exchange that is ending, rather than open another one.

        An event stream continues after the response, if only with the chunk that terminates it, and the caller may make
        its next request before that chunk arrives.
        """
        oldest = next(iter(self.ending), None)
        for _ in range(MAX_TURNS):
            if oldest not in self.ending:
                break
            await trio.lowlevel.checkpoint()

    async def report(self, text: str) -> None:
        """Report a fault that no call is responsible for; the session that uses the link calls its ``on_error``."""
        await self.deliver(Malformed(INTERNAL_ERROR, text, expects_answer=False))

    def headers(self, session: SessionView | None) -> dict[str, str]:
        """Return the headers of a POST that is not a request of the modern era."""
        spoken = {} if self.modern is None else {PROTOCOL_VERSION: self.modern}
        return {**POSTED, **(session.headers if session is not None else {}), **spoken}

    def in_session(self, session: SessionView | None) -> bool:
        """Return whether a message sent in ``session`` names a session that the server may have lost."""
        # Over HTTP+SSE, the URL of the endpoint names the session, so every message is sent in a session.
        return not self.answers_here or (session is not None and session.id is not None)

    async def tell(self, message: Message, own: Mapping[str, str] | None = None) -> None:
        """Send a message that gets no response; send it again if the connection breaks and a duplicate does no harm.

        ``own`` are header fields for this message alone.

        One of our own responses may arrive twice: a server ignores the second. It is also sent again if the server asks
        for that, because a function of the server waits for it.

        Raises:
            TrioMcpError: If the server did not accept the message.
        """
        for last in (*[False] * (MAX_TELLS - 1), True):
            try:
                await self._tell_twice(message, own)
            except HttpError as exc:
                if last or isinstance(message, Notification) or exc.trouble != "busy" or exc.retry_after is None:
                    raise
                await trio.sleep(min(exc.retry_after, MAX_PAUSE))
            else:
                return

    async def _tell_twice(self, message: Message, own: Mapping[str, str] | None) -> None:
        try:
            await self._tell(message, own)
        except Disconnected as exc:
            # A message that was certainly not sent may be sent again, even if it is not repeatable.
            if exc.sent and isinstance(message, Notification) and not facts_of(message.method).repeatable:
                raise
            await self._tell(message, own)

    async def _tell(self, message: Message, own: Mapping[str, str] | None) -> None:
        session = self.sessions.session
        content, problem = encode_or_replace(message)
        if problem is not None:
            logger.error("%s was not sent: %s", type(message).__name__, problem)
        if content is None:
            return
        # The body of a successful response means nothing, but the body is read so that the connection can be used
        # again.
        async with self.wire.exchange("POST", self.headers(session), content, url=self.endpoint, own=own) as response:
            if answer_kind(response.status, response.headers, awaits_answer=False) == "failed":
                raise (await refusal_of(response, message, in_session=self.in_session(session))).error
            await response.beginning(MAX_ERROR_BODY, DRAIN_TIMEOUT)
        if isinstance(message, Notification) and message.method == "notifications/initialized" and session is not None:
            await session.announced()

    async def ask(
        self, method: str, params: dict[str, Any] | None, behind: PostedRequest | None = None
    ) -> dict[str, Any]:
        """Make a request for the link itself; the session that uses the link does not see it.

        Args:
            method: The method.
            params: The parameters.
            behind: The request that needs the answer; the header fields that its caller has given are sent, too.

        Raises:
            TrioMcpError: If the request gets no result.
        """
        # The id is a string, so that it differs from the ids of the session's requests, which are integers.
        request = Request(f"transport-{next(self._ids)}", method, params)
        exchange = PostedRequest(request, modern_revision_of(request), self, private=True)
        if behind is not None:
            exchange.own, exchange.own_tools = behind.own, behind.own_tools
        failed = await exchange.post(None)
        if failed is not None:
            raise failed.error
        answer = exchange.answer
        if isinstance(answer, Response):
            return answer.result
        if isinstance(answer, ErrorResponse):
            raise McpError(answer.error.code, answer.error.message, answer.error.data)
        raise RemoteProtocolError(f"the response to {method!r} is malformed")

    async def _list_tools(self, exchange: PostedRequest) -> bool:
        """Learn which headers the tools want; one listing serves all calls that were refused."""
        # The listing copies the protocol's own entries from the refused call (revision, client, capabilities), but not
        # the caller's, such as a progress token.
        given = (exchange.request.params or {}).get("_meta") or {}
        meta = {key: value for key, value in given.items() if key.startswith("io.modelcontextprotocol/")}
        # A server may list other tools to a caller with other header fields, so such a list serves one call alone.
        if exchange.own is not None:
            exchange.own_tools = RequestHeaders()
            return await self._learn_tools(exchange, meta)
        async with self._listing:
            # If pages of tools have been learned in the meantime, another call has listed the tools since this call was
            # sent.
            return self.request_headers.learned != exchange.tools_seen or await self._learn_tools(exchange, meta)

    async def _learn_tools(self, exchange: PostedRequest, meta: dict[str, Any]) -> bool:
        params: dict[str, Any] = {"_meta": meta}
        try:
            for _ in range(MAX_PAGES):
                cursor = (await self.ask("tools/list", params, exchange)).get("nextCursor")
                if not isinstance(cursor, str):
                    break
                params = {"_meta": meta, "cursor": cursor}
        except TrioMcpError as exc:
            logger.debug("the tools can't be listed: %s", exc)
            # The caller gets the error of its own call, rather than an error about a list that it never asked for.
            return False
        return True

    def _discovered(self, exchange: PostedRequest, answer: Answer) -> Answer:
        if isinstance(answer, ErrorResponse):
            # An error may still name modern revisions that the server supports.
            error = answer.error
            self.not_modern = supported_by(McpError(error.code, error.message, error.data)) is None
        elif exchange.modern is not None and isinstance(answer, Response):
            ORIGINS.note(self.wire.url, "modern")
        return answer

    def _listed(self, exchange: PostedRequest, answer: Answer) -> Answer:
        if exchange.modern is None or not isinstance(answer, Response):
            return answer
        tools = self.request_headers if exchange.own is None else exchange.own_tools or RequestHeaders()
        return attrs.evolve(answer, result=tools.learn(answer.result))


# --- a request ------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class PostedRequest:
    """Sends one request of this client, and delivers the response.

    Attributes:
        request: The request.
        modern: The revision that the request names, if it is of the modern era.
        remote: The server.
        private: Whether the request is the link's own; the session that uses the link then does not get the response.
        own: The header fields that the caller has given for this request, with names in lower case; None without any.
        own_tools: What tools want in headers, as listed for this request alone, because it has fields of its own.
        scope: Cancelling it closes the connection.
        session: The session in which the request was sent.
        sent: Whether the request may have reached the server.
        written: Whether all of the request has been handed to the connection. Always False in the modern era.
        response: The HTTP response; None until its head has arrived.
        tools_seen: `RequestHeaders.learned` when the request was sent.
        answer: The JSON-RPC response, or the batch that contains it, once it has arrived.
        given_up: Whether the server is being told that the request is cancelled, so that no response may come.
        accepted: Set when the exchange has ended; None unless a cancellation waits for that.
    """

    request: Request
    modern: str | None
    remote: Remote
    private: bool = False
    own: Mapping[str, str] | None = None
    own_tools: RequestHeaders | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    session: SessionView | None = None
    sent: bool = False
    written: bool = False
    response: HttpResponse | None = None
    tools_seen: int = 0
    answer: Incoming | None = None
    given_up: bool = False
    accepted: trio.Event | None = None

    async def run(self) -> None:
        """Send the request, send it once more if the link could recover from a failure, and deliver the response.

        Raises:
            TrioMcpError: If the call fails.
        """
        remote = self.remote
        if self.own is not None:
            self._check_own(self.own)
        if self.modern is not None:
            remote.modern = self.modern
        mends = remote.mends
        # This loops at most twice: `mends` is emptied before the second attempt.
        while True:
            # The modern era has no sessions: each request contains everything that the server needs to know.
            session = None if self.modern is not None else await remote.sessions.before(self.request)
            try:
                failed = await self.post(session)
            except Disconnected as exc:
                failed = Failed(exc, _trouble_of(exc))
            if failed is None:
                return
            mend = mends.get(failed.trouble)
            if mend is None or self.given_up or not await mend(self):
                break
            mends = {}  # so a server that keeps failing in the same way is not asked forever
        remote.not_modern = remote.not_modern or failed.trouble == "not_modern"
        # A status that concerns access to the server takes precedence over a JSON-RPC error in the body, because such
        # an error can't be about access.
        if failed.answer is None or failed.trouble in _OF_THE_WAY:
            raise failed.error
        await self._settle(failed.answer)

    def _check_own(self, own: Mapping[str, str]) -> None:
        """Check that the header fields of this one request can be sent.

        Raises:
            LocalProtocolError: If an ``Authorization`` among them can't.
        """
        if "authorization" not in own:
            return
        if self.remote.wire.authorizes:
            why = "the connection has an auth=, or credentials in its URL or http_client, which authorize each request"
        elif self.modern is None:
            # Otherwise the server would be asked to serve one user in the session of another.
            why = (
                "in the legacy era a session belongs to the user who has opened it; give each user a client, with"
                " HttpServerParameters(headers=…)"
            )
        else:
            return
        raise LocalProtocolError(f"{self.request.method!r} was not sent with an Authorization of its own: {why}")

    async def post(self, session: SessionView | None) -> Failed | None:
        """Send the request once, and deliver its response.

        Returns:
            The failure if the server refused the request; None if all is well.

        Raises:
            Disconnected: If the connection could not be made, or broke, or the stream on which the response was to come
                can't be resumed.
            TrioMcpError: If the request can't be sent, or what came back is not a response.
        """
        request, remote = self.request, self.remote
        try:
            if self.modern is None:
                headers = remote.headers(session)
            else:
                headers = (self.own_tools or remote.request_headers).of(request, self.modern)
        except ValueError as exc:
            raise not_sent(request.method, str(exc)) from None
        try:
            content = encode(request)
        except ValueError as exc:
            raise not_sent(request.method, f"it can't be written as JSON: {exc}") from None
        if remote.ending:
            await remote.free()
        # These attributes are set before the next await: from here on, a cancellation has to assume that the request
        # arrives.
        self.session, self.sent, self.response, self.tools_seen = session, True, None, remote.request_headers.learned
        self.written = False
        # A modern request is cancelled by closing its stream, even if it was not fully written, so only a legacy
        # request needs to know whether it was.
        written = self._all_written if self.modern is None else None
        async with remote.wire.exchange(
            "POST", headers, content, url=remote.endpoint, written=written, held=self._held, own=self.own
        ) as response:
            self.response = response
            kind = answer_kind(response.status, response.headers, awaits_answer=remote.answers_here)
            if kind == "failed":
                in_session = remote.in_session(session)
                return await refusal_of(response, request, modern=self.modern is not None, in_session=in_session)
            if kind == "accepted":  # over HTTP+SSE, the JSON-RPC response comes on the event stream
                await response.beginning(MAX_ERROR_BODY, DRAIN_TIMEOUT)
            elif kind == "json":
                await self._read_json(response)
            else:
                await self._read_events(response, session)
        return None

    def _all_written(self) -> None:
        self.written = True

    def _held(self, held: bool) -> None:
        # A request that waits for its authorization was refused or never sent, so the server has nothing to carry out.
        self.sent, self.written = not held, False

    async def _read_json(self, response: HttpResponse) -> None:
        message = decode(await response.body(self.remote.max_message_size))
        if not isinstance(message, Malformed):  # the exception below reports a malformed message
            await self._take(message, response)
        if self.answer is None:
            why = message.reason if isinstance(message, Malformed) else type(message).__name__
            text = f"{response.target}: the body is not a response to {self.request.method!r}"
            raise RemoteProtocolError(f"{text}: {why}")

    async def _read_events(self, response: HttpResponse, session: SessionView | None) -> None:
        decoder = EventDecoder(self.remote.max_message_size)
        broken: Disconnected | None = None

        async def take(event: ServerSentEvent | Malformed) -> bool:
            message = message_of(event)
            if message is not None:
                await self._take(message, response)
            if self.answer is not None:
                drain.deadline = min(drain.deadline, trio.current_time() + DRAIN_TIMEOUT)
            return self.answer is not None

        # The stream is read to its end, so that the connection can be used again. Because a server may never end it,
        # `drain` gets a deadline as soon as the response has arrived.
        with trio.CancelScope() as drain:
            try:
                while chunk := await response.receive():
                    for event in decoder.feed(chunk):
                        await take(event)
                        del event  # without this, a long event would stay in memory until the next one
            except Disconnected as exc:
                broken = exc
            # A stream is resumable only if an event had an id (L, Resumability and Redelivery).
            if self.answer is None and session is not None and decoder.last_event_id:
                try:
                    await session.resume(decoder, take, self.own)
                except TransportError as exc:
                    raise self._unresumed(response, exc) from exc
        if self.answer is None:
            text = f"the event stream of {response.target} ended without a response to {self.request.method!r}"
            raise broken or Disconnected(text)

    def _unresumed(self, response: HttpResponse, cause: TransportError) -> Disconnected:
        """Return the error of a request whose stream broke and can't be resumed."""
        # The cause of the failure is not raised: a refusal, or a missing login, does not tell whether the original
        # request, which has begun, was carried out.
        lost = isinstance(cause, HttpError) and cause.trouble == "session_lost"
        why = "the server has forgotten the session" if lost else str(cause)
        text = f"the event stream of {response.target} broke, and can't be resumed: {why}"
        return Disconnected(f"{text}; the server may have done what {self.request.method!r} asks for")

    async def _take(self, message: Incoming, response: HttpResponse) -> None:
        """Handle one message from the HTTP response."""
        request_id = self.request.id
        if isinstance(message, ErrorResponse) and message.id is None:
            # The server could not read our id, but the error came in the response to this very request.
            message = attrs.evolve(message, id=request_id)
        # A malformed response can only be meant for the one request of this exchange.
        elif isinstance(message, Malformed) and not message.expects_answer and message.id in (None, request_id):
            await self._settle(attrs.evolve(message, id=request_id, reason=f"{response.target}: {message.reason}"))
            return
        if isinstance(message, (Response, ErrorResponse)) and message.id == request_id:
            await self._settle(message)
        # In revision 2025-03-26 the response may come in a batch, together with other messages.
        elif isinstance(message, Batch) and any(
            isinstance(item, (Response, ErrorResponse)) and item.id == request_id for item in message.items
        ):
            self.answer = message
            self.remote.ending[self] = None
            await self.remote.deliver(message, {RELATED: request_id})
        # All other messages are the server's own. If the link itself has made the request, to list tools or open a
        # session, requests from the server are dropped.
        elif not self.private or isinstance(message, Notification):
            await self.remote.deliver(message, {RELATED: request_id})

    async def _settle(self, answer: Answer) -> None:
        if self.answer is not None:
            return  # a second response to the same request is ignored
        # The lesson comes before the delivery, so that whatever the session sends next already has the right headers.
        lesson = self.remote.lessons.get(self.request.method)
        self.answer = answer = answer if lesson is None else lesson(self, answer)
        if not self.private:
            self.remote.ending[self] = None
            await self.remote.deliver(answer)


def _trouble_of(lost: Disconnected) -> Trouble:
    # If the session was lost together with the stream, another session has to be opened first.
    if isinstance(lost.__cause__, HttpError) and lost.__cause__.trouble == "session_lost":
        return "session_lost"
    return "disconnected" if lost.sent else "unreachable"


async def _may_be_repeated(exchange: PostedRequest) -> bool:
    """Return whether a request may be sent again after its connection broke."""
    method = exchange.request.method
    # A subscription that was open is not repeated: it has lost the notifications sent in the meantime, and its owner
    # has to know.
    return may_repeat("gateway", method) and not (facts_of(method).lasting and exchange.response is not None)


async def refusal_of(
    response: HttpResponse, message: Message | None = None, *, modern: bool = False, in_session: bool = False
) -> Failed:
    """Read an HTTP response that carries no result.

    Args:
        response: The HTTP response.
        message: The message that was posted; None for a GET.
        modern: Whether the message was a request of the modern era.
        in_session: Whether the message was sent in a session that the server may have lost.
    """
    body = await response.beginning(MAX_ERROR_BODY, ERROR_BODY_TIMEOUT)
    fields = ((name, response.masked(text.encode("latin-1"))) for name, text in response.headers.as_dict().items())
    return read_failure(
        response.status,
        Headers(fields),
        response.masked(body),
        target=response.target,
        message=message,
        modern=modern,
        in_session=in_session,
        now=time.time(),
    )


def message_of(event: ServerSentEvent | Malformed) -> Incoming | None:
    """Return the message in an event; None if the event only has an id to resume from, or is of another type."""
    if isinstance(event, Malformed):
        return event
    return decode(event.data) if event.data and event.event == "message" else None
