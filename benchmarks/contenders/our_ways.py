"""trio_mcp's client of a URL, or of a list of them: the first carries all calls, the others are there in case."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from trio_mcp import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@asynccontextmanager
async def connect(variant: str, url: str, *others: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add``; `variant` is ``"alone"``, for the first URL, or ``"list"``."""
    async with Client(url if variant == "alone" else [url, *others]) as client:

        async def call(a: int, b: int) -> int:
            result = await client.call_tool("add", {"a": a, "b": b})
            return result.data  # type: ignore[no-any-return]

        yield call
