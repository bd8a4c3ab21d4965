"""Read lists that come in pages (`server/utilities/pagination`), and send requests that have cacheable results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, cast

import trio

from trio_mcp.client.cache import ResponseCache
from trio_mcp.client.connection import ClientConnection
from trio_mcp.convert import as_result
from trio_mcp.errors import CapabilityError, McpError, RemoteProtocolError, RequestTimeout, TransportError
from trio_mcp.session.calls import CallLimits, Limit
from trio_mcp.types._base import WireModel
from trio_mcp.types.bases import CacheablePage
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.tools import Tool

__all__ = ["Audience", "CachedCalls", "check_audience", "every", "is_for"]

ModelT = TypeVar("ModelT", bound=WireModel)
PageT = TypeVar("PageT", bound=CacheablePage)

Audience: TypeAlias = Literal["model", "app"]
"""Who calls a tool: the model, or a page of the tool's server (SEP-1865, Visibility)."""

MAX_PAGES = 1000  # an arbitrary limit, as a server can invent cursors forever


class CachedCalls:
    """Sends a client's requests that have cacheable results.

    Args:
        connection: The client's connection.
        cache: The cache for the results; with None, nothing is cached.
        owner: On whose behalf the client acts: clients with the same owner share private results.
    """

    def __init__(self, connection: ClientConnection, cache: ResponseCache | None, owner: Hashable) -> None:
        self._connection = connection
        self._cache = cache
        self._owner = owner

    async def request(
        self, method: str, detail: str | None, params: dict[str, Any] | None, limits: CallLimits
    ) -> dict[str, Any]:
        """Return a cached result, or else the server's, which is cached if the server allows it.

        A call with headers of its own has nothing to do with the cache.

        Args:
            method: The method of the request.
            detail: The cursor or the URI that is asked for.
            params: The parameters of the request.
            limits: The limits of this call.
        """
        cache = self._cache
        if cache is None or self._connection.is_apart(limits):
            return await self._connection.request(method, params, limits)
        question = (self._connection.session.server.revision, method, detail)
        kept = cache.find(question, self._owner)
        if kept is not None:
            await trio.lowlevel.checkpoint()  # a call must have a checkpoint even if the result is cached
            return cast("dict[str, Any]", kept)
        # The request is announced to the cache: if the server announces a change from now on, its response is not
        # cached.
        flight = cache.departs(question)
        try:
            result = await self._connection.request(method, params, limits)
            cache.keep(flight, self._owner, result)
            return result
        except McpError as exc:
            # If a cursor is invalid, a client should "discard all cached pages and re-fetch from the beginning".
            if exc.code == INVALID_PARAMS and detail is not None and method != "resources/read":
                cache.forget(method)
            raise
        # An outdated result is used only if the server could not be asked, and so never hides a refusal.
        except (TransportError, RequestTimeout):
            kept = cache.find(question, self._owner, stale=True)
            if kept is None:
                raise
            await trio.lowlevel.checkpoint()
            return cast("dict[str, Any]", kept)
        finally:
            cache.landed(flight)

    def read(self, result: dict[str, Any], model: type[ModelT], method: str) -> ModelT:
        """Return a result as a model; if it is malformed, drop the cached results of its method.

        Raises:
            RemoteProtocolError: If the result is malformed.
        """
        try:
            return as_result(result, model, method)
        except RemoteProtocolError:
            if self._cache is not None:
                self._cache.forget(method)
            raise

    async def page(self, model: type[PageT], method: str, cursor: str | None, limits: CallLimits) -> PageT:
        """Return one page of a list.

        Args:
            model: The model of a page.
            method: The method that lists the items.
            cursor: The page's cursor; None for the first page.
            limits: The limits of this call.
        """
        params = None if cursor is None else {"cursor": cursor}
        return self.read(await self.request(method, cursor, params, limits), model, method)


class GetPage(Protocol):
    """A method of `Client` that returns a page of a list."""

    async def __call__(self, cursor: str | None = None, *, timeout: Limit = ...) -> CacheablePage:
        """Return the page that a cursor names, or the first page if the cursor is None."""


async def every(get_page: GetPage, items: str, timeout: Limit) -> AsyncIterator[Any]:
    """Yield every item of a list, page by page; yield nothing if the server does not offer such items.

    Args:
        get_page: Gets one page.
        items: The field of a page that holds the items; also their name in the error message.
        timeout: Seconds to wait for each page.

    Raises:
        RemoteProtocolError: If the list has more than `MAX_PAGES` pages.
    """
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        try:
            page = await get_page(cursor, timeout=timeout)
        except CapabilityError:  # the error is raised before anything is sent
            await trio.lowlevel.checkpoint()
            return
        for item in getattr(page, items):
            yield item
            # Each step of an `async for` loop has to be a checkpoint (docs/design.md, rule 11), including the step that
            # finds the end of the list.
            await trio.lowlevel.checkpoint()
        cursor = page.next_cursor
        if cursor is None:
            return
    what = items.replace("_", " ")
    raise RemoteProtocolError(f"the server's list of {what} has more than {MAX_PAGES} pages; giving up")


def check_audience(audience: object) -> None:
    """Check that a value is an audience, or None.

    Raises:
        ValueError: If it is neither.
    """
    if audience not in (None, "model", "app"):
        raise ValueError(f"audience must be 'model', 'app' or None, got {audience!r}")


def is_for(tool: Tool, audience: Audience) -> bool:
    """Return whether a tool is meant for an audience; a tool that says nothing is for both.

    A malformed statement counts as one that names neither, because hiding a tool does less harm than showing it.
    """
    ui = None if tool.meta is None else tool.meta.get("ui")
    visibility = ui.get("visibility") if type(ui) is dict else None
    if visibility is None:
        return True
    return type(visibility) is list and audience in visibility
