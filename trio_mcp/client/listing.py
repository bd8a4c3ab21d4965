"""What the client's features share: results as models, and lists in pages (`server/utilities/pagination`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from trio_mcp.client.connection import ClientConnection
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.session.calling import Limit
from trio_mcp.session.convert import brief
from trio_mcp.types._base import WireModel
from trio_mcp.types.messages import PaginatedResult
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
        return validated(model, method, await self.request(method, params, timeout=timeout))


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
