"""Lists that come in pages (`server/utilities/pagination`), and whatever else the client may have kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from typing import Any, Protocol, TypeVar, cast

import trio

from trio_mcp.client.cache import ResponseCache
from trio_mcp.client.connection import Connection
from trio_mcp.convert import as_result
from trio_mcp.errors import McpError, RemoteProtocolError, RequestTimeout, TransportError
from trio_mcp.session.calls import CallLimits, Limit
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import CacheablePage
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["CachedCalls", "every"]

ModelT = TypeVar("ModelT", bound=WireModel)
PageT = TypeVar("PageT", bound=CacheablePage)

MAX_PAGES = 1000


class CachedCalls:
    """The requests of a client whose results it may have kept.

    Args:
        connection: The client's.
        cache: Where they are kept; None keeps nothing.
        owner: On whose behalf the client acts: those with the same owner share what is private.
    """

    def __init__(self, connection: Connection, cache: ResponseCache | None, owner: Hashable) -> None:
        self._connection = connection
        self._cache = cache
        self._owner = owner

    async def request(
        self, method: str, detail: str | None, params: dict[str, Any] | None, limits: CallLimits
    ) -> dict[str, Any]:
        """A result out of the cache, else the server's, which is kept if the server allows it.

        Args:
            method: The method.
            detail: What is asked for: a cursor or a URI.
            params: The parameters.
            limits: What the call says of its own.
        """
        cache = self._cache
        if cache is None:
            return await self._connection.request(method, params, limits)
        question = (self._connection.session.server.revision, method, detail)
        kept = cache.find(question, self._owner)
        if kept is not None:
            await trio.lowlevel.checkpoint()
            return cast("dict[str, Any]", kept)
        flight = cache.departs(question)
        try:
            result = await self._connection.request(method, params, limits)
            cache.keep(flight, self._owner, result)
            return result
        except McpError as exc:
            if exc.code == INVALID_PARAMS and detail is not None and method != "resources/read":
                cache.forget(method)  # "discard all cached pages and re-fetch from the beginning"
            raise
        except (TransportError, RequestTimeout):
            kept = cache.find(question, self._owner, stale=True)
            if kept is None:
                raise
            await trio.lowlevel.checkpoint()
            return cast("dict[str, Any]", kept)
        finally:
            cache.landed(flight)

    def read(self, result: dict[str, Any], model: type[ModelT], method: str) -> ModelT:
        """A result as a model; what can't be used is not kept.

        Raises:
            RemoteProtocolError: It is none.
        """
        try:
            return as_result(result, model, method)
        except RemoteProtocolError:
            if self._cache is not None:
                self._cache.forget(method)
            raise

    async def page(self, model: type[PageT], method: str, cursor: str | None, timeout: Limit) -> PageT:
        """One page of a list.

        Args:
            model: What a page is.
            method: The method that lists.
            cursor: Which page; None for the first.
            timeout: Seconds to wait.
        """
        params = None if cursor is None else {"cursor": cursor}
        return self.read(await self.request(method, cursor, params, {"timeout": timeout}), model, method)


class GetPage(Protocol):
    """One of the methods of `Client` that give a page of a list."""

    async def __call__(self, cursor: str | None = None, *, timeout: Limit = ...) -> CacheablePage:
        """The page of a cursor, the first for None."""


async def every(get_page: GetPage, items: str, timeout: Limit) -> AsyncIterator[Any]:
    """Every item of a list, page after page.

    Args:
        get_page: Gets one page.
        items: The field of a page that holds them; also what they are called in the error message.
        timeout: Seconds to wait for each page.

    Raises:
        RemoteProtocolError: The list has more than `MAX_PAGES` pages.
    """
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await get_page(cursor, timeout=timeout)
        for item in getattr(page, items):
            yield item
            await trio.lowlevel.checkpoint()  # of the next step, which may find the end
        cursor = page.next_cursor
        if cursor is None:
            return
    what = items.replace("_", " ")
    raise RemoteProtocolError(f"the server's list of {what} has no end: {MAX_PAGES} pages, and there is another")
