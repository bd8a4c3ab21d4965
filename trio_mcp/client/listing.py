"""What the client's features share: results as models, and lists in pages (`server/utilities/pagination`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import trio
from pydantic import ValidationError

from trio_mcp.client.cache import ResponseCache
from trio_mcp.client.connection import ClientConnection
from trio_mcp.convert import brief
from trio_mcp.errors import McpError, RemoteProtocolError, RequestTimeout, TransportError
from trio_mcp.session.requests import Limit
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import PaginatedResult
from trio_mcp.types.error_codes import INVALID_PARAMS
from trio_mcp.types.meta import checked_meta

__all__ = ["Listing", "every", "request_meta", "validated"]

ModelT = TypeVar("ModelT", bound=WireModel)
PageT = TypeVar("PageT", bound=PaginatedResult)
ItemT = TypeVar("ItemT")

MAX_PAGES = 1000


class Listing(ClientConnection):
    """A connection that gets lists page by page."""

    async def _one_page(self, model: type[PageT], method: str, cursor: str | None, timeout: Limit) -> PageT:
        params = None if cursor is None else {"cursor": cursor}
        if self._cache is None:
            return validated(model, method, await self.request(method, params, timeout=timeout))
        return self._validated(model, method, await self._cached(self._cache, method, cursor, params, timeout=timeout))

    def _validated(self, model: type[ModelT], method: str, result: dict[str, Any]) -> ModelT:
        try:
            return validated(model, method, result)
        except RemoteProtocolError:
            if self._cache is not None:
                self._cache.forget(method)  # what can't be used is not kept
            raise

    async def _cached(
        self, cache: ResponseCache, method: str, detail: str | None, params: dict[str, Any] | None, **limits: Any
    ) -> dict[str, Any]:
        """A result out of the cache, else the server's, which is kept if the server allows it."""
        question = (self.protocol_version, method, detail)
        owner = self._principal or self
        kept = cache.find(question, owner)
        if kept is not None:
            await trio.lowlevel.checkpoint()
            return cast("dict[str, Any]", kept)
        flight = cache.departs(question)
        try:
            result: dict[str, Any] = await self.request(method, params, **limits)
            cache.keep(flight, owner, result)
            return result
        except McpError as exc:
            if exc.code == INVALID_PARAMS and detail is not None and method != "resources/read":
                cache.forget(method)  # "discard all cached pages and re-fetch from the beginning"
            raise
        except (TransportError, RequestTimeout):
            kept = cache.find(question, owner, stale=True)
            if kept is None:
                raise
            return cast("dict[str, Any]", kept)
        finally:
            cache.landed(flight)


async def every(
    get_page: Callable[[str | None], Awaitable[PageT]], items_of: Callable[[PageT], Iterable[ItemT]], what: str
) -> AsyncIterator[ItemT]:
    """Every item of a list, page after page.

    Args:
        get_page: Gets the page of a cursor, the first for None.
        items_of: What is on a page.
        what: What the items are, for the error message.

    Raises:
        RemoteProtocolError: The list has more than `MAX_PAGES` pages.
    """
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await get_page(cursor)
        for item in items_of(page):
            yield item
        cursor = page.next_cursor
        if cursor is None:
            return
    raise RemoteProtocolError(f"the server's list of {what} has no end: {MAX_PAGES} pages, and there is another")


def validated(model: type[ModelT], method: str, result: dict[str, Any]) -> ModelT:
    """A result as a model.

    Raises:
        RemoteProtocolError: It is none.
    """
    try:
        return model.from_wire(result)
    except ValidationError as exc:
        raise RemoteProtocolError(f"the answer to {method!r} is no valid {model.__name__}: {brief(exc)}") from None


def request_meta(connection: ClientConnection, given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """What the caller wants in the ``_meta`` of a request.

    Raises:
        TypeError, ValueError: As `checked_meta` does.
    """
    return checked_meta(given, what, of_request=True, revisions=(connection.protocol_version,))
