"""FastMCP's client over HTTP, for calls that become tasks; run in the environment of FastMCP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import fastmcp_tasks  # noqa: F401  (importing it makes the client support tasks)
from fastmcp import Client

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@asynccontextmanager
async def connect(tool: str, url: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that adds two numbers with a tool of the server at a URL."""
    async with Client(url) as client:

        async def call(a: int, b: int) -> int:
            return (await client.call_tool(tool, {"a": a, "b": b})).data  # type: ignore[no-any-return]

        yield call
