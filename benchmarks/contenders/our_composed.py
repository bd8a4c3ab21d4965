"""trio_mcp's servers made of others, by a mount or a proxy; and a client of such a server in one process."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from benchmarks.contenders.our_memory import build_server
from trio_mcp import Client, ProxyServer, Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


def composed(kind: str, *url: str) -> Server | ProxyServer:
    """Return a server with ``add``: its own (``plain``), of a mounted server (``mount``), or of one behind a proxy
    (``proxy``), which is in this process or at a URL.
    """
    if kind == "proxy":
        return ProxyServer(*url or [build_server()])
    if kind == "mount":
        main = Server("main", version="1.0.0")
        main.mount(build_server())
        return main
    return build_server()


@asynccontextmanager
async def connect(kind: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` of such a server in this process."""
    async with Client(composed(kind)) as client:

        async def call(a: int, b: int) -> int:
            result = await client.call_tool("add", {"a": a, "b": b})
            return result.data  # type: ignore[no-any-return]

        yield call
