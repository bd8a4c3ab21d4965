"""The tasks in which hypercorn runs the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.typing import ASGIReceiveEvent, Scope

from trio_mcp._log import logger
from trio_mcp.http.server.asgi import EXTRAS, Extras

__all__ = ["Tasks"]


class ChannelExtras(Extras):
    """The extras of a request whose events come through a channel."""

    def __init__(self, receive: trio.MemoryReceiveChannel[Any]) -> None:
        self._receive = receive

    def receive_nowait(self) -> Any:
        try:
            return self._receive.receive_nowait()
        except trio.WouldBlock:
            return None
        except trio.EndOfChannel:
            return {"type": "http.disconnect"}


class Tasks:
    """The task group in which hypercorn starts its tasks.

    Here what the application leaves unread blocks no task, and what it raises ends only its exchange.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self.spawn = nursery.start_soon

    async def spawn_app(
        self, app: Any, config: Config, scope: Scope, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[ASGIReceiveEvent], Awaitable[None]]:
        # Bounded: while the application doesn't read, the connection stops reading, and TCP slows the client down.
        put, receive = trio.open_memory_channel[ASGIReceiveEvent](config.max_app_queue_size)
        extras = ChannelExtras(receive)
        if scope["type"] == "http":
            scope["extensions"][EXTRAS] = extras  # type: ignore[assignment]

        async def next_event() -> ASGIReceiveEvent:
            try:
                return await receive.receive()
            except trio.EndOfChannel:
                return {"type": "http.disconnect"}

        async def run() -> None:
            # Closing the receiving end wakes a `hand_over` that waits for room in it.
            with receive:
                try:
                    await app(scope, next_event, send)
                except Exception as exc:
                    logger.exception("%s %s failed", scope.get("method"), scope.get("path"), exc_info=exc)
            # Tells hypercorn that the application has ended: it sends a 500 if there was no response.
            await send(None)

        async def hand_over(event: ASGIReceiveEvent) -> None:
            if event["type"] == "http.disconnect":
                # Closing the channel says so, instead of an event in it, because nothing may wait here: this may run in
                # the application's own task, as it sends the end of its response, with the request partly unread.
                put.close()
                extras.happened()
                return
            # Without waiting if there is room, so that the common case takes no turn of the event loop.
            try:
                try:
                    put.send_nowait(event)
                except trio.WouldBlock:
                    await put.send(event)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # the application has ended, or was told that the client has left

        self.spawn(run)
        return hand_over
