"""The client side of Streamable HTTP, for every revision, and of HTTP+SSE if a server supports nothing newer."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.direct_channel import open_direct_channel
from trio_mcp.errors import TransportError, TrioMcpError
from trio_mcp.http.client.auth import Auth
from trio_mcp.http.client.door import session_keeper
from trio_mcp.http.client.heads import modern_revision_of
from trio_mcp.http.client.posting import PostedRequest, Remote
from trio_mcp.http.client.sending.sender import AsyncHttpClient
from trio_mcp.http.client.wire import HttpWire, http_wire
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE
from trio_mcp.jsonrpc.messages import (
    Malformed,
    Message,
    Notification,
    Request,
    RequestId,
    SessionMessage,
    TransportFailure,
    is_request_id,
)
from trio_mcp.link import BUFFER, HeaderLink, Link, hand_on, not_sent
from trio_mcp.retrying import Backoff
from trio_mcp.stopwatch import current_stopwatch
from trio_mcp.types.methods import facts_of

__all__ = ["HttpLink", "streamable_http_client"]

# All limits in this module are arbitrary choices. Each limits either something that a slow server could make grow, or a
# wait that such a server could prolong.
MAX_CONNECTIONS: Final = 100
"""How many requests may be under way at once; further ones wait. Subscriptions, which are long-lived, don't count."""
MAX_URGENT: Final = 16
"""How many urgent requests may be under way at once; they are counted separately from other requests."""
MAX_EXCHANGES: Final = 10_000
"""How many requests may be under way or waiting; further ones fail."""
MAX_POSTS: Final = 100
"""How many notifications and responses may be under way at once; at the limit, the link takes no more messages."""
POST_TIMEOUT: Final = 30.0
"""How many seconds a server may take to accept a notification or a response."""
CLOSE_TIMEOUT: Final = 2.0
"""The time limit, in seconds, for the messages under way when the link is closed, and again for ending the session."""
CANCELLED_TIMEOUT: Final = 0.2
"""The time limit, in seconds, for the DELETE when the link is cancelled: without it, the server keeps the session."""


@contextlib.asynccontextmanager
async def streamable_http_client(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    auth: Auth | None = None,
    http_client: AsyncHttpClient | None = None,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    reconnect: Backoff | None = None,
) -> AsyncIterator[Link]:
    """Connect to a server over Streamable HTTP. Nothing is sent until the session sends something.

    Each request is a POST of its own, and if a POST fails, only its call fails. A server of 2024-11-05 refuses the
    handshake with 400, 404 or 405; the link then continues over HTTP+SSE.

    When the block ends, messages under way have a moment to arrive, and a session of the legacy era is ended with a
    DELETE. If the block is cancelled, connections are closed without waiting; only the DELETE gets a fraction of a
    second.

    Args:
        url: The server's MCP endpoint.
        headers: Sent with each request.
        auth: Signs in, and authorizes each request: see `trio_mcp.auth`.
        http_client: An ``AsyncClient`` of httpx or httpx2, for TLS, proxies, authentication and more; it is not
            closed. Its read timeout is not used, since the session has its own.
        max_message_size: The longest JSON text, or event of a stream, accepted from the server, in bytes.
        reconnect: When and how often to resume a broken stream of the legacy era.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If an argument is invalid.
    """
    check_on_trio()
    await trio.lowlevel.checkpoint()
    async with http_wire(url, headers, http_client, auth) as wire:
        link = HttpLink(wire, max_message_size, reconnect or Backoff())
        async with link.running():
            yield link.link


class HttpLink:
    """A link with a task for each outgoing message, and one inbound channel that the tasks share.

    The dispatcher takes the messages that the session hands over, and starts tasks. It waits for no call, so a
    cancellation never queues behind a call.

    Args:
        wire: Makes the HTTP exchanges.
        max_message_size: The longest JSON text or event accepted, in bytes.
        backoff: How long to wait before resuming a broken stream, and how often.

    Attributes:
        link: The link that the session uses.
        remote: The server.
    """

    def __init__(self, wire: HttpWire, max_message_size: int, backoff: Backoff) -> None:
        # Through a direct channel, messages that an exchange has read reach the caller without waiting for the
        # session's task to run.
        inbound, read = open_direct_channel(BUFFER)
        write, self._outbound = trio.open_memory_channel[SessionMessage](BUFFER)
        self.link = HeaderLink(read, write)
        self._channels = (read, write, inbound, self._outbound)
        self.remote = Remote(wire, functools.partial(hand_on, inbound), max_message_size, backoff)
        self.remote.sessions = session_keeper(self.remote)
        self._exchanges: dict[RequestId, PostedRequest] = {}
        self._places = trio.CapacityLimiter(MAX_CONNECTIONS)
        self._urgent_places = trio.CapacityLimiter(MAX_URGENT)
        self._posts = trio.Semaphore(MAX_POSTS)
        self._in_order: dict[RequestId | None, trio.Event] = {}
        self._all_posted = trio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open the link for the duration of the block."""
        try:
            async with background_nursery(self._end) as nursery:
                self.remote.nursery = nursery
                nursery.start_soon(self._dispatch)
                yield
        finally:
            # The channels are closed last, because the tasks may still deliver messages until they have ended, even if
            # the session has stopped reading.
            for channel in self._channels:
                channel.close()

    async def _end(self) -> None:
        """Give up all requests, wait for the other messages under way, and end the session."""
        try:
            # There are two limits, so that messages that are stuck don't use up the time for the DELETE.
            with trio.move_on_after(CLOSE_TIMEOUT):
                for channel in self._channels[:2]:
                    channel.close()
                for exchange in self._exchanges.values():
                    exchange.scope.cancel("the link is closed")
                await self._all_posted.wait()
            with trio.move_on_after(CLOSE_TIMEOUT):
                await self.remote.sessions.end()
        except trio.Cancelled:
            with trio.move_on_after(CANCELLED_TIMEOUT, shield=True):
                await self.remote.sessions.end()
            raise

    async def _dispatch(self) -> None:
        # This nursery is for all messages except requests: leaving the nursery waits for these messages, while requests
        # are cancelled when the link is closed.
        async with trio.open_nursery() as posts:
            async for item in self._outbound:
                message = item.message
                if isinstance(message, Request):
                    # The dispatcher never waits until a request can be sent: it must stay free to take cancellations,
                    # which make room for other requests.
                    if len(self._exchanges) < MAX_EXCHANGES:
                        places = self._urgent_places if item.urgent else self._places
                        # The exchange is put into the table before its task starts, so that an immediate cancellation
                        # finds it.
                        self._exchanges[message.id] = PostedRequest(
                            message, modern_revision_of(message), self.remote, own=item.headers
                        )
                        self.remote.nursery.start_soon(self._ask, self._exchanges[message.id], places)
                    else:
                        error = not_sent(message.method, f"{MAX_EXCHANGES} requests are under way or waiting")
                        await self.remote.deliver(TransportFailure(error, message.id))
                elif isinstance(message, Notification) and message.method == "notifications/cancelled":
                    self._cancel(message, posts)
                elif not isinstance(message, (Malformed, TransportFailure)):
                    # While the dispatcher waits, the session's sends wait, too, so that tasks don't pile up. The wait
                    # ends, because each POST has a time limit.
                    await self._posts.acquire()
                    self._post_in_order(message, item.related_request_id, posts)
                del item, message  # otherwise, a long message would stay in memory until the next one arrives
        self._all_posted.set()

    async def _ask(self, exchange: PostedRequest, places: trio.CapacityLimiter) -> None:
        request = exchange.request
        lasting = facts_of(request.method).lasting
        try:
            with exchange.scope:
                try:
                    # A request waits for a free place inside its own scope, so that it can be cancelled while it waits.
                    if not lasting:
                        # Unlike `acquire` alone, this code takes no iteration of the event loop if a place is free.
                        await trio.lowlevel.checkpoint_if_cancelled()
                        try:
                            places.acquire_nowait()
                        except trio.WouldBlock:
                            await places.acquire()
                    try:
                        await exchange.run()
                    finally:
                        if not lasting:
                            places.release()
                except Exception as exc:
                    # Once the response has arrived, or the call has been given up, no call is left to fail.
                    if exchange.answer is None and not exchange.given_up:
                        await self.remote.deliver(TransportFailure(_as_ours(exc), request.id))
        finally:
            self.remote.ending.pop(exchange, None)
            if exchange.accepted is not None:
                exchange.accepted.set()
            # The id may by now belong to a later request.
            if self._exchanges.get(request.id) is exchange:
                del self._exchanges[request.id]

    # --- messages without a response -------------------------------------------------------------------------------

    def _cancel(self, notice: Notification, posts: trio.Nursery) -> None:
        params = notice.params or {}
        request_id = params.get("requestId")
        exchange = self._exchanges.get(request_id) if is_request_id(request_id) else None
        # A request without an exchange has ended for the client, but a server of the legacy era may still be working on
        # it, so it gets the notification.
        if exchange is None:
            if self.remote.modern is None:
                posts.start_soon(self._post, notice, self.remote.tell, lambda: None)
        elif exchange.modern is not None or not exchange.sent:
            # In the modern era, closing the response stream is the cancellation (2026-07-28
            # `basic/transports/streamable-http`, Cancellation). A request that was not sent needs none.
            exchange.scope.cancel(params.get("reason"))
        else:
            # In the legacy era, a disconnection cancels nothing (2025-11-25 `basic/transports`, Sending Messages to the
            # Server), so a notification is sent, and the stream is closed only after that. The server may end the
            # stream in the meantime, which must not count as an error.
            exchange.given_up = True
            told = functools.partial(exchange.scope.cancel, "the server has been told of the cancellation")
            # A server ignores the cancellation of a request that has not arrived yet, and one POST may overtake
            # another. Over HTTP+SSE a request is accepted at once; otherwise it must at least have been written.
            if not self.remote.answers_here:
                exchange.accepted = trio.Event()
                exchange.scope.deadline = trio.current_time() + POST_TIMEOUT
            elif not exchange.written:
                exchange.accepted = trio.Event()
                told()  # the rest of the request isn't needed; the notice is for a server that has all of it
            # A gateway may route by the header fields of the request, so the notice has them, too.
            tell = functools.partial(self.remote.tell, own=exchange.own)
            posts.start_soon(self._post, notice, tell, told, exchange.accepted)

    def _post_in_order(self, message: Message, related: RequestId | None, posts: trio.Nursery) -> None:
        """Send a message after all earlier ones that belong to the same request from the peer.

        Messages that belong to no request are ordered among themselves.
        """
        # Each message waits for the one before. Otherwise, one POST could overtake another, and progress would go
        # backwards.
        previous, done = self._in_order.get(related), trio.Event()
        self._in_order[related] = done
        tell: Callable[[Any], Awaitable[None]] = self.remote.tell
        if isinstance(message, Notification) and message.method == "notifications/initialized":
            self.remote.sessions.announcing(done)
            tell = self.remote.sessions.announce

        def settled() -> None:
            done.set()
            if self._in_order.get(related) is done:
                del self._in_order[related]
            self._posts.release()

        posts.start_soon(self._post, message, tell, settled, previous)

    async def _post(
        self,
        message: Message,
        tell: Callable[[Any], Awaitable[None]],
        settled: Callable[[], None],
        previous: trio.Event | None = None,
    ) -> None:
        what = repr(message.method) if isinstance(message, Notification) else "a response"
        try:
            if previous is not None:
                await previous.wait()
            with current_stopwatch().limit(POST_TIMEOUT) as scope:
                await tell(message)
            if scope.cancelled_caught:
                await self.remote.report(f"{what} was not accepted by the server within {POST_TIMEOUT:g} seconds")
        except Exception as exc:
            await self.remote.report(f"{what} was not accepted by the server: {_as_ours(exc)}")
        finally:
            settled()


def _as_ours(exc: Exception) -> Exception:
    """Return an exception of this library in place of one that a hook of the caller's HTTP client may have raised."""
    if isinstance(exc, TrioMcpError):
        return exc
    logger.error("an HTTP exchange failed", exc_info=exc)
    error = TransportError(f"the HTTP exchange failed: {type(exc).__name__}: {exc}")
    error.__cause__ = exc
    return error
