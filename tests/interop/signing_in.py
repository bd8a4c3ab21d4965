"""What the tests of signing in share: a protected server that says who calls."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import trio

from trio_mcp import Context, Server
from trio_mcp.auth import ResourceServer

from .support import DEADLINE


def free_port() -> int:
    """Return a port for a server whose URL has to be known before it runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def protected(issuer: str, path: str = "/mcp", **settings: Any) -> AsyncIterator[str]:
    """Serve a server that says who calls, and yield its URL."""
    server = Server("files")

    @server.tool(scopes=["read"])
    async def whoami(ctx: Context) -> str:
        assert ctx.principal is not None
        return f"{ctx.principal.subject} at {ctx.principal.issuer}"

    @server.tool(scopes=["read", "write"])
    async def write() -> str:
        return "written"

    port = free_port()
    auth = ResourceServer(f"http://127.0.0.1:{port}{path}", issuers=[issuer], scopes=["read"], **settings)
    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            yield await nursery.start(partial(server.serve_http, port=port, path=path, auth=auth))
            nursery.cancel_scope.cancel()
