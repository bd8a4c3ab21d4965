"""What the tests of signing in share: a protected server that says who calls."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import trio

from tests.listening import on_held_port
from trio_mcp import Context, Server
from trio_mcp.auth import ResourceServer

from .support import DEADLINE


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

    @server.tool
    async def token(service: str, ctx: Context) -> str:
        return await ctx.token_for(service, scopes=["read"])

    # The URL has to be known before the server runs.
    with on_held_port() as (port, config), trio.fail_after(DEADLINE):
        auth = ResourceServer(f"http://127.0.0.1:{port}{path}", issuers=[issuer], scopes=["read"], **settings)
        async with trio.open_nursery() as nursery:
            yield await nursery.start(partial(server.serve_http, config=config, path=path, auth=auth))
            nursery.cancel_scope.cancel()
