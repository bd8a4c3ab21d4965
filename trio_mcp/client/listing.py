"""Lists that come in pages (`server/utilities/pagination`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Protocol, TypeVar

from trio_mcp.client.cache import CachedCalls
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.session.calling import Limit
from trio_mcp.types.messages import PaginatedResult

__all__ = ["every", "one_page"]

PageT = TypeVar("PageT", bound=PaginatedResult)

MAX_PAGES = 1000


class GetPage(Protocol):
    """One of the methods of `Client` that give a page of a list."""

    async def __call__(self, cursor: str | None = None, *, timeout: Limit = ...) -> PaginatedResult:
        """The page of a cursor, the first for None."""


async def one_page(calls: CachedCalls, model: type[PageT], method: str, cursor: str | None, timeout: Limit) -> PageT:
    """Ask for one page, or take it from the cache.

    Args:
        calls: Those of the client.
        model: What a page is.
        method: The method that lists.
        cursor: Which page; None for the first.
        timeout: Seconds to wait.
    """
    params = None if cursor is None else {"cursor": cursor}
    return calls.read(await calls.request(method, cursor, params, {"timeout": timeout}), model, method)


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
        cursor = page.next_cursor
        if cursor is None:
            return
    what = items.replace("_", " ")
    raise RemoteProtocolError(f"the server's list of {what} has no end: {MAX_PAGES} pages, and there is another")
