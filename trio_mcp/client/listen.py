"""Hearing of changes, in both eras: 2026-07-28 `basic/patterns/subscriptions`; before, `resources/subscribe`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.client.connection import ClientConnection
from trio_mcp.client.listing import validated
from trio_mcp.client.middleware import OutgoingCall, through
from trio_mcp.client.resource_watches import MAX_URIS, ResourceWatches
from trio_mcp.client.subscriptions import Subscription
from trio_mcp.eras.capabilities import declares
from trio_mcp.errors import CapabilityError, RemoteProtocolError, RequestTimeout
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.session.requests import USE_SESSION, Limit, Limits
from trio_mcp.types import meta
from trio_mcp.types.subscriptions import SubscriptionFilter, SubscriptionsListenResult

__all__ = ["ListenMethods"]

LISTEN = "subscriptions/listen"

LEGACY_CAPABILITIES = {
    "toolsListChanged": "tools.listChanged",
    "promptsListChanged": "prompts.listChanged",
    "resourcesListChanged": "resources.listChanged",
    "resourceSubscriptions": "resources.subscribe",
}
"""What a server of the legacy era declares if it tells of a change, by the name in the filter."""


class ListenMethods(ClientConnection):
    """The part of `Client` that hears of changes."""

    _resource_watches: ResourceWatches | None = None

    def listen(
        self,
        *,
        tools_list_changed: bool = False,
        prompts_list_changed: bool = False,
        resources_list_changed: bool = False,
        resources: Iterable[str] = (),
        timeout: Limit = USE_SESSION,
    ) -> AbstractAsyncContextManager[Subscription]:
        """Hear of changes: ``async with client.listen(tools_list_changed=True) as events``.

        The loop over ``events`` gives `ToolsListChanged`, `PromptsListChanged`, `ResourcesListChanged` and
        `ResourceUpdated`. Entering waits until the server has agreed; ``events.honored`` says to what. In the legacy
        era it says which of it the server has declared, and entering subscribes to the resources.

        Leaving the block ends it at once, without waiting for the server. So does a cancellation, also while entering.

        Args:
            tools_list_changed: Hear of changes of the list of tools.
            prompts_list_changed: Hear of changes of the list of prompts.
            resources_list_changed: Hear of changes of the lists of resources and of resource templates.
            resources: The URIs of resources to hear of, `MAX_URIS` at most.
            timeout: Seconds to wait for the server to agree; None waits for ever; by default the session's. Nothing
                limits how long the block lasts.

        Raises:
            TypeError: An argument is of another type, for example a string instead of a list of URIs.
            ValueError: Nothing was asked for, a URI is empty, or there are too many.
            CapabilityError: A server of the legacy era has declared nothing of what was asked for.
            LocalProtocolError: The client is not connected; entering raises it if it listens too often at once.

        Entering raises `McpError` if the server refuses, `RequestTimeout` if it does not answer in time,
        `RemoteProtocolError` if its answer is malformed, `TransportError` if the link is lost. What the loop raises
        is described at `Subscription`.
        """
        asked = _filter(tools_list_changed, prompts_list_changed, resources_list_changed, resources)
        session = self.session
        limit = Limits.of(session.options.calls, {"timeout": timeout}).timeout
        if session.modern:
            return self._listening(asked, None, limit)
        declared = session.server.capabilities
        wanted = asked.to_wire()
        honored = {name: value for name, value in wanted.items() if declares(declared, LEGACY_CAPABILITIES[name])}
        if not honored:
            raise CapabilityError("Client.listen", LEGACY_CAPABILITIES[next(iter(wanted))], "server")
        return self._listening(asked, SubscriptionFilter.from_wire(honored), limit)

    @contextlib.asynccontextmanager
    async def _listening(
        self, asked: SubscriptionFilter, legacy: SubscriptionFilter | None, limit: float | None
    ) -> AsyncIterator[Subscription]:
        subscription = Subscription(asked)
        reason = "the client listens no more"
        with self._subscriptions.holding(subscription):
            async with background_nursery() as nursery:
                nursery.start_soon(self._hear, subscription, legacy)
                try:
                    with trio.move_on_after(math.inf if limit is None else limit) as waiting:
                        await subscription._wait_opened()
                    if waiting.cancelled_caught and limit is not None:
                        reason = "the request timed out"
                        raise RequestTimeout(LISTEN if legacy is None else "resources/subscribe", limit)
                    yield subscription
                finally:
                    nursery.cancel_scope.cancel(reason)

    async def _hear(self, subscription: Subscription, legacy: SubscriptionFilter | None) -> None:
        """Everything that lasts as long as the subscription, in a task of its own; the loop raises what it raises."""
        try:
            if legacy is None:
                await self._hear_modern(subscription)
            else:
                await self._hear_legacy(subscription, legacy)
        except Exception as exc:
            subscription._end(exc)
        else:
            subscription._end(None)

    async def _hear_modern(self, subscription: Subscription) -> None:
        session = self.session
        call = OutgoingCall(LISTEN, {"notifications": subscription._asked.to_wire()}, self.protocol_version)

        def opened(outgoing: OutgoingRequest) -> None:
            call.request_id = outgoing.request.id
            self._subscriptions.opened(subscription, outgoing)

        async def send() -> dict[str, Any]:
            return await session.subscribe(call.method, call.params, opened)

        result = await through(self._middleware, 0, call, send)
        if result.get("resultType", "complete") != "complete":
            raise RemoteProtocolError(f"the answer to {LISTEN!r} must be complete, not {result['resultType']!r}")
        about = validated(SubscriptionsListenResult, LISTEN, result).meta
        named = about.get(meta.SUBSCRIPTION_ID)
        if subscription._outgoing is None or type(named) is not int or named != subscription._outgoing.request.id:
            raise RemoteProtocolError(f"the answer to {LISTEN!r} does not name the subscription that it ends")

    async def _hear_legacy(self, subscription: Subscription, honored: SubscriptionFilter) -> None:
        if self._resource_watches is None:
            self._resource_watches = ResourceWatches(self.request, self.session.start_soon)
        subscription._honor(honored)
        async with self._resource_watches.watching(honored.resource_subscriptions or ()):
            if not self.session.closed:
                subscription._acknowledge()
            await self.session.raise_loss()


def _filter(tools: bool, prompts: bool, resources_list: bool, resources: Iterable[str]) -> SubscriptionFilter:
    """What was asked for.

    Raises:
        TypeError, ValueError: It makes no sense.
    """
    flags = {
        "tools_list_changed": tools,
        "prompts_list_changed": prompts,
        "resources_list_changed": resources_list,
    }
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise TypeError(f"{name} must be True or False, got {flag!r}")
    if isinstance(resources, (str, bytes, Mapping)) or not isinstance(resources, Iterable):
        raise TypeError(f"resources must be a list of URIs, got {resources!r}")
    given = list(resources)
    for uri in given:
        if not isinstance(uri, str):
            raise TypeError(f"a URI must be a string, got {uri!r}")
        if not uri:
            raise ValueError("a URI must not be empty")
    uris = list(dict.fromkeys(given))
    if len(uris) > MAX_URIS:
        raise ValueError(f"a client may listen for {MAX_URIS} resources at once, got {len(uris)}")
    if not uris and not any(flags.values()):
        raise ValueError("nothing to listen for: pass tools_list_changed=True, resources=[uri] or another of its kind")
    wanted = {name: True for name, flag in flags.items() if flag}
    return SubscriptionFilter(**wanted, resource_subscriptions=uris or None)
