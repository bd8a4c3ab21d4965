"""A client of the modern era on the wire: it sends requests and sees every message that the server sends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import attrs
import trio

from tests.server.harness import MODERN
from trio_mcp import Server, SessionMessage, memory_link_pair
from trio_mcp.jsonrpc.messages import ErrorResponse, Message, Notification, Request, Response
from trio_mcp.link import Link
from trio_mcp.types import meta

__all__ = ["ACKNOWLEDGED", "Wire", "modern", "settled", "wire_to"]

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


def modern(params: dict[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of a request of the modern era."""
    return {**(params or {}), "_meta": {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_CAPABILITIES: {}}}


async def settled() -> None:
    """What was announced has been sent: each step of the way is taken."""
    for _ in range(5):
        await trio.testing.wait_all_tasks_blocked()


@attrs.define
class Wire:
    """The client's end of a link."""

    link: Link

    async def request(self, request_id: int | str, method: str, params: dict[str, Any] | None = None) -> None:
        await self.link.write.send(SessionMessage(Request(request_id, method, modern(params))))

    async def listen(self, request_id: int | str, **wanted: Any) -> Message:
        """Open a stream, and give the first message that comes, which must be on it."""
        await self.request(request_id, "subscriptions/listen", {"notifications": wanted})
        return await self.receive()

    async def cancel(self, request_id: int | str) -> None:
        await self.link.write.send(SessionMessage(Notification("notifications/cancelled", {"requestId": request_id})))

    async def receive(self) -> Message:
        message = (await self.link.read.receive()).message
        assert isinstance(message, (Notification, Response, ErrorResponse))
        return message

    def all_here(self) -> list[Any]:
        """Everything that has arrived."""
        messages: list[Any] = []
        with contextlib.suppress(trio.WouldBlock, trio.EndOfChannel):
            while True:
                messages.append(self.link.read.receive_nowait().message)
        return messages

    async def news(self) -> list[tuple[str, Any, str | None]]:
        """The notifications that have come: kind, subscription, URI."""
        await settled()
        return [news_of(message) for message in self.all_here()]


def news_of(message: Any) -> tuple[str, Any, str | None]:
    """What a notification tells, and on which subscription."""
    assert isinstance(message, Notification), message
    params = message.params or {}
    return message.method, (params.get("_meta") or {}).get(meta.SUBSCRIPTION_ID), params.get("uri")


@contextlib.asynccontextmanager
async def wire_to(server: Server) -> AsyncIterator[Wire]:
    """A link to a server, which serves it until the block is left."""
    with trio.fail_after(30):  # against a hang only
        async with memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
            await nursery.start(lambda task_status: server.serve(theirs, task_status=task_status))
            yield Wire(ours)
            nursery.cancel_scope.cancel()
