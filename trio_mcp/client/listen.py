"""Implement `Client.listen` with streams of 2026-07-28 (`basic/patterns/subscriptions`) or `resources/subscribe`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_flag
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.client.connection import ClientConnection
from trio_mcp.client.subscriptions import Feed, Subscription, Subscriptions
from trio_mcp.convert import as_result
from trio_mcp.eras.capabilities import declares
from trio_mcp.errors import (
    AuthorizationError,
    CapabilityError,
    LocalProtocolError,
    McpError,
    RemoteProtocolError,
    RequestTimeout,
    TransportError,
)
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.session.calls import CallLimits, Limits
from trio_mcp.session.middleware import OutgoingCall
from trio_mcp.types import meta
from trio_mcp.types.subscriptions import SubscriptionFilter, SubscriptionsListenResult

__all__ = ["Listening", "ResourceWatches", "wanted_filter"]

LISTEN = "subscriptions/listen"

# The keys are the wire names of the filter's fields, so that the names in the result of `to_wire` can be looked up
# directly.
LEGACY_CAPABILITIES = {
    "toolsListChanged": "tools.listChanged",
    "promptsListChanged": "prompts.listChanged",
    "resourcesListChanged": "resources.listChanged",
    "resourceSubscriptions": "resources.subscribe",
}
"""The capability with which a server of the legacy era declares each notification, keyed by its name in the filter."""

# The limit is an arbitrary choice, far above the number of resources that a program watches.
MAX_URIS = 1000
UNSUBSCRIBE_TIMEOUT = 10.0
"""Seconds that the server has to respond to ``resources/unsubscribe``. Only a new subscription to the same resource
waits for that response."""

SHORTEST = 1.0
"""How many seconds a subscription must have lasted to be opened again. A server that ends every subscription at once
does so on purpose."""

UNLIMITED = CallLimits(timeout=None, total_timeout=None)


class Listening:
    """Makes the ``async with`` blocks of `Client.listen`.

    Args:
        connection: The client's connection.
        subscriptions: Where the server's notifications go.
    """

    def __init__(self, connection: ClientConnection, subscriptions: Subscriptions) -> None:
        self._connection = connection
        self._subscriptions = subscriptions
        self.watches = ResourceWatches(connection)

    def block(self, asked: SubscriptionFilter, limits: CallLimits) -> AbstractAsyncContextManager[Subscription]:
        """Return the async context manager for one call of `Client.listen`.

        Raises:
            TypeError, ValueError: If the time limit is invalid.
            CapabilityError: If a server of the legacy era has declared none of the requested changes.
            LocalProtocolError: If the client is not connected, or a server of the legacy era is asked for what only an
                extension defines.
        """
        session = self._connection.session
        whole = Limits.of(session.options.calls, limits)
        limit, headers = whole.timeout, whole.headers
        if session.modern:
            return self._listening(asked, None, limit, headers)
        if headers is not None:
            raise LocalProtocolError(
                f"Client.listen can't have headers in revision {session.server.revision}: its subscriptions belong to"
                " the session"
            )
        # A legacy server is not asked which changes it will announce: its capabilities already say that.
        declared = session.server.capabilities
        wanted = asked.to_wire()
        if asked.model_extra:
            raise LocalProtocolError(
                f"revision {session.server.revision} has no filter for {next(iter(asked.model_extra))!r}"
            )
        honored = {name: value for name, value in wanted.items() if declares(declared, LEGACY_CAPABILITIES[name])}
        if not honored:
            raise CapabilityError("Client.listen", LEGACY_CAPABILITIES[next(iter(wanted))], "server")
        return self._listening(asked, SubscriptionFilter.from_wire(honored), limit)

    @contextlib.asynccontextmanager
    async def _listening(
        self,
        asked: SubscriptionFilter,
        legacy: SubscriptionFilter | None,
        limit: float | None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Subscription]:
        # The default reason for cancelling the request; a timeout replaces it with another one.
        reason = "the client is no longer listening"
        # The feed is registered in both eras, because statistics count it, and because legacy notifications are
        # delivered to all registered feeds.
        with self._subscriptions.holding(asked) as feed:
            # The block has its own nursery, so that leaving the block cancels the request, which tells the server.
            async with background_nursery() as nursery:
                nursery.start_soon(self._hear, feed, legacy, headers)
                try:
                    # Only opening the subscription has a time limit: it may then stay open as long as the block.
                    with self._connection.stopwatch.limit(math.inf if limit is None else limit) as waiting:
                        await feed.wait_opened()
                    if waiting.cancelled_caught and limit is not None:
                        reason = "the request timed out"
                        raise RequestTimeout(LISTEN if legacy is None else "resources/subscribe", limit)
                    yield Subscription(feed)
                finally:
                    nursery.cancel_scope.cancel(reason)  # the server gets this reason, too

    async def _hear(self, feed: Feed, legacy: SubscriptionFilter | None, headers: Mapping[str, str] | None) -> None:
        """Keep the subscription open, in a separate task; the loop over the events raises the task's exceptions."""
        try:
            await (self._hear_modern(feed, headers) if legacy is None else self._hear_legacy(feed, legacy))
        except Exception as exc:
            feed.end(exc)
        else:
            feed.end(None)  # the server ended the subscription itself

    async def _hear_modern(self, feed: Feed, headers: Mapping[str, str] | None) -> None:
        if not self._connection.stopwatch.stoppable:
            await self._subscribed(feed, headers)
            return
        # A server ends a stream when the access token expires, either with a response or by closing the stream. So
        # another stream is opened, with another token. If the server can't be reached then, the subscription ends as
        # the last stream did.
        ended: TransportError | None = None
        while True:
            began, end = trio.current_time(), None
            try:
                await self._subscribed(feed, headers)
            except TransportError as exc:
                end = exc
            if not feed.acknowledged:
                end = ended if feed.resumed and not isinstance(end, AuthorizationError) else end
                break
            if trio.current_time() - began < SHORTEST or self._connection.session.closed:
                break
            ended, feed.resumed = end, True
        if end is not None:
            raise end

    async def _subscribed(self, feed: Feed, headers: Mapping[str, str] | None) -> None:
        session, limits = self._connection.session, Limits(None, None, False, None, headers=headers)
        call = OutgoingCall(LISTEN, {"notifications": feed.asked.to_wire()}, session.server.revision)

        # The session calls `opened` before it sends the request, because the acknowledgement may arrive before this
        # task runs again.
        def opened(outgoing: OutgoingRequest) -> None:
            call.request_id = outgoing.request.id
            self._subscriptions.opened(feed, outgoing)

        async def send() -> dict[str, Any]:
            return await session.ask(call.method, call.params, opened, limits)

        result = await self._connection.through(call, send)
        if result.get("resultType", "complete") != "complete":
            raise RemoteProtocolError(
                f"the resultType of the response to {LISTEN!r} must be 'complete', not {result['resultType']!r}"
            )
        # The test is `type(...) is int` because a boolean, which Python counts as an integer, must not match.
        named = as_result(result, SubscriptionsListenResult, LISTEN).meta.get(meta.SUBSCRIPTION_ID)
        if feed.outgoing is None or type(named) is not int or named != feed.outgoing.request.id:
            raise RemoteProtocolError(f"the response to {LISTEN!r} does not name the subscription that it ends")

    async def _hear_legacy(self, feed: Feed, honored: SubscriptionFilter) -> None:
        session = self._connection.session
        feed.honor(honored)
        async with self.watches.watching(honored.resource_subscriptions or ()):
            # If the link was lost while subscribing, the subscription is not acknowledged, and `raise_loss` raises the
            # error.
            if not session.closed:
                feed.acknowledge()
            # A legacy subscription has no request to wait for: it lasts until the link is lost.
            await session.raise_loss()


@attrs.define(eq=False)
class _Watch:
    """A legacy subscription to one URI.

    Attributes:
        holders: How many blocks want the subscription.
        asked: Whether the subscription may exist at the server: the request was sent, and may have taken effect even if
            the call failed.
        sure: Whether the server has confirmed the subscription, and no request to end it has been sent since.
        turn: A lock that a task holds while it asks the server.
    """

    holders: int = 0
    asked: bool = False
    sure: bool = False
    turn: trio.Lock = attrs.Factory(trio.Lock)


class ResourceWatches:
    """The resources to which a client of the legacy era is subscribed (`server/resources`, section Subscriptions).

    The legacy era has one subscription per URI and session, however many blocks want it. So the blocks are counted: the
    first one subscribes, the last one unsubscribes, and requests about the same URI are sent one at a time.

    Args:
        connection: The client's connection.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @contextlib.asynccontextmanager
    async def watching(self, uris: Iterable[str]) -> AsyncIterator[None]:
        """Keep resources subscribed while the block runs.

        Leaving never waits: a task of the session unsubscribes, even after a cancellation while subscribing.

        Raises:
            LocalProtocolError: If the client has too many subscriptions.
            McpError: If the server refuses one.
        """
        held: list[str] = []
        try:
            for uri in uris:
                watch = self._hold(uri)
                held.append(uri)
                async with watch.turn:
                    if not watch.sure:  # otherwise another block has subscribed already
                        await self._subscribe(uri, watch)
            yield
        finally:
            for uri in held:
                self._release(uri)

    def _hold(self, uri: str) -> _Watch:
        watch = self._watches.get(uri)
        if watch is None:
            if len(self._watches) >= MAX_URIS:
                raise LocalProtocolError(
                    f"a client may subscribe to at most {MAX_URIS} resources at once; can't add {uri!r}"
                )
            watch = self._watches[uri] = _Watch()
        # The holder is counted before the server is asked, so that a block that leaves meanwhile does not unsubscribe.
        watch.holders += 1
        return watch

    async def _subscribe(self, uri: str, watch: _Watch) -> None:
        asked_before, watch.asked = watch.asked, True
        try:
            await self._connection.request("resources/subscribe", {"uri": uri}, UNLIMITED)
        except McpError:
            # After a refusal, the server's state is certainly unchanged. After any other failure, the subscription may
            # or may not exist.
            watch.asked = asked_before
            raise
        watch.sure = True

    def _release(self, uri: str) -> None:
        watch = self._watches[uri]
        watch.holders -= 1
        if watch.holders:
            return
        # The entry stays until the server has been asked to unsubscribe, so that a block that subscribes again waits
        # for its turn.
        if not (watch.asked and self._connection.session.start_soon(self._unsubscribe, uri, watch)):
            del self._watches[uri]

    async def _unsubscribe(self, uri: str, watch: _Watch) -> None:
        async with watch.turn:
            if watch.asked and not watch.holders:  # otherwise another block wants the subscription again
                watch.sure = False
                # The session may have no time limits, and there is no caller who could give up, so this request gets
                # limits of its own.
                limits = CallLimits(timeout=UNSUBSCRIBE_TIMEOUT, total_timeout=UNSUBSCRIBE_TIMEOUT)
                try:
                    await self._connection.request("resources/unsubscribe", {"uri": uri}, limits)
                except Exception as exc:
                    # Nothing more can be done. Notifications that still come are ignored, because no subscription of
                    # the client covers them.
                    logger.info("ending the subscription to %r failed: %s", uri, exc)
                # `asked` is reset even if the request failed: it is not retried, and the next holder subscribes in any
                # case, as the watch is not `sure`.
                watch.asked = False
        # The entry is checked only after the wait: by now, a block may use this watch, or another watch may have
        # replaced it.
        if not watch.holders and self._watches.get(uri) is watch:
            del self._watches[uri]


def wanted_filter(tools: bool, prompts: bool, resources_list: bool, resources: Iterable[str]) -> SubscriptionFilter:
    """Check the arguments of `Client.listen`, and return the filter for them.

    Raises:
        TypeError, ValueError: If an argument is invalid, or nothing is asked for.
    """
    # The keys are the names of the fields of `SubscriptionFilter`.
    flags = {
        "tools_list_changed": tools,
        "prompts_list_changed": prompts,
        "resources_list_changed": resources_list,
    }
    for name, flag in flags.items():
        check_flag(name, flag)
    if isinstance(resources, (str, bytes, Mapping)) or not isinstance(resources, Iterable):
        raise TypeError(f"resources must be a list of URIs, got {resources!r}")
    # The argument is copied, because it may be an iterator, and its items are used twice.
    given = list(resources)
    for uri in given:
        if not isinstance(uri, str):
            raise TypeError(f"a URI must be a string, got {uri!r}")
        if not uri:
            raise ValueError("a URI must not be empty")
    # Each URI is kept once, in the given order.
    uris = list(dict.fromkeys(given))
    if len(uris) > MAX_URIS:
        raise ValueError(f"a client may listen for at most {MAX_URIS} resources at once, got {len(uris)}")
    if not uris and not any(flags.values()):
        raise ValueError("nothing to listen for: pass tools_list_changed=True, resources=[uri] or another filter")
    wanted = {name: True for name, flag in flags.items() if flag}
    return SubscriptionFilter(**wanted, resource_subscriptions=uris or None)
