"""FastMCP's client, over HTTP or of a server in one process; run in the environment of FastMCP."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastmcp import Client

from benchmarks.peers.fastmcp_server import composed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


@asynccontextmanager
async def connect(kind: str, *url: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` of the server at a URL, or else of one of this kind in this process."""
    async with Client(url[0] if url else composed(kind)) as client:

        async def call(a: int, b: int) -> int:
            return (await client.call_tool("add", {"a": a, "b": b})).data  # type: ignore[no-any-return]

        yield call
