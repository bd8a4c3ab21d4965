"""What every HTTP link of a client has: a task for each message that goes out, and the way in that they share.

The dispatcher takes what the session hands over and starts tasks. It waits for none of them, so a cancellation is
never behind a call.
"""

from __future__ import annotations

import abc
import logging
from typing import Final

import attrs
import trio

from trio_mcp.errors import TransportError, TrioMcpError
from trio_mcp.http.client.rules import modern_revision_of
from trio_mcp.jsonrpc.messages import (
    Failure,
    Incoming,
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    SessionMessage,
    is_request_id,
)
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.types.error_codes import INTERNAL_ERROR
from trio_mcp.types.methods import facts_of

__all__ = ["Exchange", "HttpLink"]

logger = logging.getLogger("trio_mcp")

MAX_CONNECTIONS: Final = 100
"""Requests that are on their way at once; further ones wait. Those that are meant to last don't count."""
MAX_EXCHANGES: Final = 10_000
"""Requests that are on their way or wait."""
MAX_POSTS: Final = 100
"""Notifications and answers that are on their way at once; then the link takes nothing more, for a moment."""
POST_TIMEOUT: Final = 30.0
"""Seconds for a server to take a notification or an answer."""


@attrs.define(eq=False)
class Exchange:
    """One request of ours on its way.

    Attributes:
        request: The request.
        scope: Cancelling it closes the connection.
        private: The link's own: the session is not told of its answer.
        sent: It may have reached the server.
        begun: The head of an answer has come.
        tools_seen: `ToolHeaders.learned` when it was sent.
        answer: The answer, or the batch that holds it, once it is there.
    """

    request: Request
    private: bool = False
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    sent: bool = False
    begun: bool = False
    tools_seen: int = 0
    answer: Incoming | None = None

    @property
    def modern(self) -> bool:
        """Whether it is a request of the modern era."""
        return modern_revision_of(self.request) is not None


class HttpLink(abc.ABC):
    """The tasks and the channels of a link.

    Attributes:
        link: What the transport yields.
    """

    def __init__(self) -> None:
        self._inbound, read = trio.open_memory_channel[SessionMessage](BUFFER)
        write, self._outbound = trio.open_memory_channel[SessionMessage](BUFFER)
        self.link = Link(read, write)
        self._read, self._write = read, write
        self._nursery: trio.Nursery | None = None
        self._exchanges: dict[RequestId, Exchange] = {}
        self._places = trio.CapacityLimiter(MAX_CONNECTIONS)
        self._posts = trio.Semaphore(MAX_POSTS)
        self._under_way = 0
        self._all_posted = trio.lowlevel.ParkingLot()
        self._in_order: dict[RequestId | None, trio.Event] = {}

    @property
    def nursery(self) -> trio.Nursery:
        """Where the tasks run."""
        assert self._nursery is not None
        return self._nursery

    def start(self, nursery: trio.Nursery) -> None:
        """Take what the session hands over from now on."""
        self._nursery = nursery
        self._under_way += 1
        nursery.start_soon(self._dispatch)

    def close_channels(self) -> None:
        """Let go of everything that the channels hold."""
        for channel in (self._read, self._write, self._inbound, self._outbound):
            channel.close()

    async def flush(self) -> None:
        """Close the sending side, and wait until notifications and answers have been taken; requests are given up."""
        self._read.close()
        self._write.close()
        for exchange in self._exchanges.values():
            exchange.scope.cancel("the link is closed")
        while self._under_way:
            await self._all_posted.park()

    async def deliver(self, message: Incoming) -> None:
        """Hand something to the session."""
        await hand_on(self._inbound, message)

    async def report(self, text: str) -> None:
        """Tell the session of something that belongs to no call of its own, for ``on_error``."""
        await self.deliver(Malformed(INTERNAL_ERROR, text, expects_answer=False))

    # --- what goes out -------------------------------------------------------------------------------------------

    @abc.abstractmethod
    async def ask(self, exchange: Exchange) -> None:
        """Send a request and see to its answer.

        Raises:
            TrioMcpError: What fails the call.
        """

    @abc.abstractmethod
    async def tell(self, message: Message) -> None:
        """Send what has no answer.

        Raises:
            TrioMcpError: It was not taken.
        """

    @abc.abstractmethod
    def takes_cancellations(self) -> bool:
        """Whether the server wants to be told of a cancellation whose request is not on its way any more."""

    async def _dispatch(self) -> None:
        async for item in self._outbound:
            message = item.message
            if isinstance(message, Request):
                if len(self._exchanges) >= MAX_EXCHANGES:
                    text = f"{message.method!r} was not sent: {MAX_EXCHANGES} requests are on their way or wait"
                    await self.deliver(Failure(TransportError(text), message.id))
                    continue
                exchange = self._exchanges[message.id] = Exchange(message)
                self.nursery.start_soon(self._exchange, exchange)
            elif isinstance(message, Notification) and message.method == "notifications/cancelled":
                self._cancel(message)
            elif not isinstance(message, (Malformed, Failure)):
                await self._posts.acquire()
                self._post_in_order(message, item.related_request_id)
        self._posted()

    def _cancel(self, notice: Notification) -> None:
        params = notice.params or {}
        request_id = params.get("requestId")
        exchange = self._exchanges.get(request_id) if is_request_id(request_id) else None
        if exchange is None:
            if self.takes_cancellations():
                self._spawn_post(notice, None)
        elif exchange.modern or not exchange.sent:
            # S, Cancellation: the end of the response stream is the notice.
            exchange.scope.cancel(params.get("reason"))
        else:
            self._spawn_post(notice, exchange)

    def _spawn_post(self, notice: Notification, exchange: Exchange | None) -> None:
        self._under_way += 1
        self.nursery.start_soon(self._post_cancellation, notice, exchange)

    async def _post_cancellation(self, notice: Notification, exchange: Exchange | None) -> None:
        try:
            await self._send(notice)
        finally:
            if exchange is not None:
                exchange.scope.cancel("the server has been told of the cancellation")
            self._posted()

    def _post_in_order(self, message: Message, related: RequestId | None) -> None:
        """Send what belongs to one request of the peer's, or to none, in the order in which it was handed over."""
        previous, done = self._in_order.get(related), trio.Event()
        self._in_order[related] = done
        self._under_way += 1
        self.before_post(message, done)

        async def post() -> None:
            try:
                if previous is not None:
                    await previous.wait()
                await self._send(message)
            finally:
                done.set()
                if self._in_order.get(related) is done:
                    del self._in_order[related]
                self._posts.release()
                self._posted()

        self.nursery.start_soon(post)

    @abc.abstractmethod
    def before_post(self, message: Message, done: trio.Event) -> None:
        """A hook: a message is about to be sent; ``done`` is set when it has been."""

    async def _send(self, message: Message) -> None:
        what = repr(message.method) if isinstance(message, Notification) else "an answer"
        try:
            with trio.CancelScope(deadline=trio.current_time() + POST_TIMEOUT) as scope:
                await self.tell(message)
            if scope.cancelled_caught:
                await self.report(f"{what} was not taken by the server within {POST_TIMEOUT:g} seconds")
        except Exception as exc:
            await self.report(f"{what} was not taken by the server: {_as_ours(exc)}")

    def _posted(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._all_posted.unpark_all()

    # --- requests ------------------------------------------------------------------------------------------------

    async def _exchange(self, exchange: Exchange) -> None:
        try:
            with exchange.scope:
                try:
                    if facts_of(exchange.request.method).lasting:
                        await self.ask(exchange)
                    else:
                        async with self._places:
                            await self.ask(exchange)
                except Exception as exc:
                    if exchange.answer is None:
                        await self.deliver(Failure(_as_ours(exc), exchange.request.id))
        finally:
            if self._exchanges.get(exchange.request.id) is exchange:
                del self._exchanges[exchange.request.id]


def _as_ours(exc: Exception) -> Exception:
    """What a call raises for what was raised on its behalf, perhaps by a hook of the caller's HTTP client."""
    if isinstance(exc, TrioMcpError):
        return exc
    logger.error("an HTTP exchange failed", exc_info=exc)
    error = TransportError(f"the HTTP exchange failed: {type(exc).__name__}: {exc}")
    error.__cause__ = exc
    return error
