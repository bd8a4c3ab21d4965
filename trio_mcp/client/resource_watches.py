"""Which resources a client of the legacy era has subscribed to (`server/resources`, section Subscriptions).

There a link has one subscription per URI, whoever wants it. So those who want it are counted: the first subscribes,
the last unsubscribes, and what is done for one URI is done one after the other.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import attrs
import trio

from trio_mcp.errors import LocalProtocolError, McpError

__all__ = ["ResourceWatches"]

logger = logging.getLogger("trio_mcp")

MAX_URIS = 1000
UNSUBSCRIBE_TIMEOUT = 10.0
"""Seconds. Nobody waits for it but those who want the same resource again."""


@attrs.define(eq=False)
class _Watch:
    """The subscription to one URI.

    Attributes:
        holders: How many want it.
        asked: The server may know of it: it was asked, and perhaps carried it out though the call was given up.
        sure: The server has said yes, and has not been asked to end it.
        turn: Held by who is asking the server.
    """

    holders: int = 0
    asked: bool = False
    sure: bool = False
    turn: trio.Lock = attrs.Factory(trio.Lock)


class ResourceWatches:
    """The subscriptions of one client.

    Args:
        request: Sends a request, as `ClientConnection.request`.
        start_soon: Runs a function in a task that ends with the session; gives whether that is still there.
    """

    def __init__(self, request: Callable[..., Awaitable[Any]], start_soon: Callable[..., bool]) -> None:
        self._request = request
        self._start_soon = start_soon
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @contextlib.asynccontextmanager
    async def watching(self, uris: Iterable[str]) -> AsyncIterator[None]:
        """Be subscribed to resources.

        Leaving never waits: a task of the session's does the unsubscribing. When cancelled while it subscribes, the
        same happens.

        Raises:
            LocalProtocolError: The client has too many subscriptions.
            McpError: The server refused one.
        """
        held: list[str] = []
        try:
            for uri in uris:
                watch = self._hold(uri)
                held.append(uri)
                async with watch.turn:
                    if not watch.sure:
                        await self._subscribe(uri, watch)
            yield
        finally:
            for uri in held:
                self._release(uri)

    def _hold(self, uri: str) -> _Watch:
        watch = self._watches.get(uri)
        if watch is None:
            if len(self._watches) >= MAX_URIS:
                raise LocalProtocolError(f"a client may be subscribed to {MAX_URIS} resources at once; {uri!r} is more")
            watch = self._watches[uri] = _Watch()
        watch.holders += 1
        return watch

    async def _subscribe(self, uri: str, watch: _Watch) -> None:
        asked_before, watch.asked = watch.asked, True
        try:
            await self._request("resources/subscribe", {"uri": uri}, timeout=None, total_timeout=None)
        except McpError:
            watch.asked = asked_before
            raise
        watch.sure = True

    def _release(self, uri: str) -> None:
        watch = self._watches[uri]
        watch.holders -= 1
        if watch.holders:
            return
        if not (watch.asked and self._start_soon(self._unsubscribe, uri, watch)):
            del self._watches[uri]

    async def _unsubscribe(self, uri: str, watch: _Watch) -> None:
        async with watch.turn:
            if watch.asked and not watch.holders:
                watch.sure = False
                limit = UNSUBSCRIBE_TIMEOUT
                try:
                    await self._request("resources/unsubscribe", {"uri": uri}, timeout=limit, total_timeout=limit)
                except Exception as exc:
                    logger.info("the server has not ended the subscription to %r: %s", uri, exc)
                watch.asked = False
        if not watch.holders and self._watches.get(uri) is watch:
            del self._watches[uri]
