"""The MCP server under test, protected by the authorization server for tests."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp._nursery import background_nursery, start
from trio_mcp.auth.testing.server import AuthorizationServer

if TYPE_CHECKING:
    from trio_mcp.server.base_server import BaseServer

__all__ = ["protected"]


@contextlib.asynccontextmanager
async def protected(server: BaseServer, authority: AuthorizationServer, **settings: Any) -> AsyncIterator[str]:
    """Serve both servers for the duration of a block; yield the URL of the MCP server, which requires access tokens.

    Args:
        server: The MCP server.
        authority: The authorization server.
        settings: Arguments of `ResourceServer`, such as ``scopes``.
    """
    # These modules are imported only now, because a test that needs only the authorization server does not need them.
    from trio_mcp.auth.server.resource import ResourceServer
    from trio_mcp.http.runner.hypercorn.settings import QuietConfig

    # Tokens are issued for the server's URL, so its port must be known before the server runs. The socket stays bound,
    # because a port that is free now may be taken a moment later.
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        async with authority.served() as issuer, background_nursery() as nursery:
            auth = ResourceServer(f"http://127.0.0.1:{port}/mcp", issuers=[issuer], **settings)

            async def serve(task_status: trio.TaskStatus[str]) -> None:  # noqa: ASYNC128 - task_status is passed on
                config = QuietConfig()
                config.bind = [f"fd://{bound.dup().detach()}"]  # the server closes this descriptor
                await server.serve_http(config=config, auth=auth, task_status=task_status)

            yield await start(nursery, serve)
