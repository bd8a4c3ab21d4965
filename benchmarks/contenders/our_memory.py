"""trio_mcp in one process: as it comes, and with every message encoded to bytes and back."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp import Client, Server
from trio_mcp.low_level import memory_link_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio_mcp.link import Link

MODERN_VERSION = "2026-07-28"

# variant -> (mode of the Client, whether messages are encoded)
VARIANTS = {
    "legacy": ("legacy", False),
    "modern": ("auto", False),
    "legacy-encoded": ("legacy", True),
    "modern-encoded": (MODERN_VERSION, True),
}


def build_server() -> Server:
    server = Server("benchmark", version="1.0.0")

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    return server


@asynccontextmanager
async def encoded_link(server: Server) -> AsyncIterator[Link]:
    """Serve one end of an encoding pair of links and yield the other."""
    async with memory_link_pair(encode=True) as (ours, theirs), trio.open_nursery() as nursery:
        await nursery.start(server.serve, theirs)
        yield ours
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connect(variant: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` through a `Client` and a `Server`."""
    mode, encoded = VARIANTS[variant]
    server = build_server()
    target: Any = (lambda: encoded_link(server)) if encoded else server
    async with Client(target, mode=mode) as client:

        async def call(a: int, b: int) -> int:
            result = await client.call_tool("add", {"a": a, "b": b})
            return result.data  # type: ignore[no-any-return]

        yield call
