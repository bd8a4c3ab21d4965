"""The part of `Server` that serves HTTP."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from trio_mcp.server.core import ServerCore
from trio_mcp.server.serving import serving

if TYPE_CHECKING:
    from hypercorn.config import Config

    from trio_mcp.http.server.app import HttpApp
    from trio_mcp.http.server.options import HttpOptions

__all__ = ["HttpMethods"]

Serve: TypeAlias = Callable[..., Awaitable[None]]


class HttpMethods(ServerCore):
    """Serving over HTTP, by itself or beside other ASGI applications."""

    async def serve_http(
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        options: HttpOptions | None = None,
        config: Config | None = None,
        shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve HTTP on hypercorn until ``shutdown`` returns, then until what is under way has ended.

        ``url = await nursery.start(server.serve_http)`` gives the URL of the endpoint, with the port that is really
        bound; port 0 takes any that is free.

        Args:
            host: The address to listen on.
            port: The port.
            options: What the endpoint is like.
            config: Hypercorn's own, for TLS, Unix sockets (``bind = ["unix:/path"]``) or several addresses; its
                ``bind`` then decides instead of ``host`` and ``port``.
            shutdown: Returns when the server shall end: new work is then refused, streams are ended, and requests
                under way get ``options.grace`` seconds.
            task_status: Gets the URL, the first of several.

        Raises:
            OSError: The address can't be bound.
            ValueError, TypeError: An argument is not what it should be.

        When cancelled, those who listen for changes are told of the end, and everything else is cancelled.
        """
        from trio_mcp.http.runner.hypercorn import configured
        from trio_mcp.http.serve import serve_http
        from trio_mcp.http.server.options import HttpOptions

        options = options or HttpOptions()
        config = configured(host, port) if config is None else config
        async with serving(self) as run:
            await serve_http(run, options, config, shutdown, task_status)

    async def serve_sse(  # noqa: ASYNC128 - it hands it on
        self,
        host: str = "127.0.0.1",
        port: int = 8000,
        *,
        options: HttpOptions | None = None,
        task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED,
        **arguments: Any,
    ) -> None:
        """Serve HTTP+SSE, the transport of 2024-11-05, and nothing else; as `serve_http` otherwise.

        To serve old clients beside all others, use `serve_http` with ``HttpOptions(sse_path="/sse")``.

        Args:
            host: The address to listen on.
            port: The port.
            options: What the endpoint is like; without a ``sse_path`` it is ``/sse``, and there is no other endpoint.
            task_status: Gets the URL of the stream.
            arguments: What else `serve_http` takes.
        """
        import attrs

        from trio_mcp.http.server.options import HttpOptions

        options = options or HttpOptions(path=None, sse_path="/sse")
        options = attrs.evolve(options, path=None, sse_path=options.sse_path or "/sse")
        await self.serve_http(host, port, options=options, task_status=task_status, **arguments)

    @contextlib.asynccontextmanager
    async def asgi_app(self, options: HttpOptions | None = None) -> AsyncIterator[HttpApp]:
        """Run the server as an ASGI application, to be mounted beside others and served by whatever runs on Trio.

        Its lifespan is the block; it needs no ASGI lifespan. Leaving the block cancels what is under way.

        Args:
            options: What the endpoint is like. Its ``path`` is below where the application is mounted.
        """
        from trio_mcp.http.serve import asgi_app
        from trio_mcp.http.server.options import HttpOptions

        async with serving(self) as run, asgi_app(run, options or HttpOptions()) as app:
            yield app

    def _transports(self) -> dict[str, Callable[..., None]]:
        return {
            **super()._transports(),
            "http": partial(self._run_http, self.serve_http),
            "sse": partial(self._run_http, self.serve_sse),
        }

    def _run_http(self, serve_there: Serve, /, **arguments: Any) -> None:
        from trio_mcp.http.serve import serve_until_signalled

        if trio.run(serve_until_signalled, partial(serve_there, **arguments), self.info.name) == signal.SIGINT:
            sys.exit(130)
