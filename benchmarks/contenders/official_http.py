"""The official Python SDK's client over HTTP, on the event loop of the worker."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from mcp import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

MODES = {"modern": "auto", "legacy": "legacy"}


@asynccontextmanager
async def connect(variant: str, url: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` at a URL; `variant` is the era."""
    async with Client(url, mode=MODES[variant]) as client:

        async def call(a: int, b: int) -> int:
            result = await client.call_tool("add", {"a": a, "b": b})
            assert result.structured_content is not None
            return result.structured_content["result"]  # type: ignore[no-any-return]

        yield call
