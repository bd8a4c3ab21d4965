"""What the tests of `Client.listen` share: notices of a server in either era, and a listener in the background."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import attrs

from tests.peer import Peer, settle
from trio_mcp import Client, Subscription
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.messages import Notification, Request
from trio_mcp.types import meta

MODERN, LEGACY = "2026-07-28", "2025-11-25"
TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

TELLS_ALL: dict[str, Any] = {
    "tools": {"listChanged": True},
    "prompts": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
}


def notice(method: str, subscription: object = None, **params: Any) -> Notification:
    """Return a notification, within a modern subscription if one is given."""
    if subscription is not None:
        params["_meta"] = {meta.SUBSCRIPTION_ID: subscription}
    return Notification(method, params or None)


def acknowledgement(request: Request, **offered: Any) -> Notification:
    """Return the acknowledgement of a server that honours the whole filter, or the one given."""
    return notice(ACKNOWLEDGED, request.id, notifications=offered or (request.params or {})["notifications"])


def end(request: Request) -> dict[str, Any]:
    """Return the result that ends a subscription."""
    return {"resultType": "complete", "_meta": {meta.SUBSCRIPTION_ID: request.id}}


@attrs.define
class Listener:
    """A task that listens.

    Attributes:
        events: What it has heard.
        subscription: What `Client.listen` gave.
        failure: What it raised.
        done: It is through.
    """

    events: list[Any] = attrs.Factory(list)
    subscription: Subscription | None = None
    failure: Exception | None = None
    done: bool = False

    async def run(self, client: Client, **arguments: Any) -> None:
        try:
            async with client.listen(**arguments) as self.subscription:
                async for event in self.subscription:
                    self.events.append(event)
        except Exception as exc:
            self.failure = exc
        self.done = True


@contextlib.asynccontextmanager
async def listening(
    client: Client, asked: list[Request], wire: Peer, *, acknowledged: bool = True, **arguments: Any
) -> AsyncIterator[tuple[Listener, Request]]:
    """Yield a modern listener whose server honours its whole filter, and its request; close it on leaving.

    Without ``acknowledged`` the server has not answered yet.
    """
    listener = Listener()
    async with background_nursery() as nursery:
        nursery.start_soon(lambda: listener.run(client, **arguments))
        await settle()
        request = asked[-1]
        if acknowledged:
            await wire.send(acknowledgement(request))
            await settle()
            assert listener.subscription is not None
        yield listener, request
