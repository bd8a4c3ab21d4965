"""The part of `Server` that serves HTTP."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.server.core import ServerCore
from trio_mcp.server.serving import serving

if TYPE_CHECKING:
    from hypercorn.config import Config

    from trio_mcp.http.server.app import HttpApp
    from trio_mcp.http.server.options import HttpOptions

__all__ = ["HttpMethods"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

LAST_WORDS = 0.5
"""Seconds after the grace in which streams that were cut off are ended on the wire."""


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
        from trio_mcp.http.runner.hypercorn import ServerLimits, configured, serve_asgi
        from trio_mcp.http.server.app import HttpApp
        from trio_mcp.http.server.options import HttpOptions

        options = options or HttpOptions()
        config = configured(host, port) if config is None else config
        # What is cut off at the end of the grace gets a moment more, to end its streams.
        limits = ServerLimits(options.max_connections, options.write_timeout, options.grace + LAST_WORDS)
        path = options.path or options.sse_path or ""
        async with serving(self) as run:
            app = HttpApp(run, options)

            async def end() -> None:
                await shutdown()
                grace.deadline = trio.current_time() + options.grace
                await app.end()

            async def cut() -> None:
                with grace:
                    await trio.sleep_forever()
                app.cut()

            async with run.ending_gracefully(), background_nursery() as nursery:
                grace = trio.CancelScope()
                nursery.start_soon(cut)
                serve = partial(serve_asgi, app, config, limits=limits, shutdown=end, idle=app.idle)
                urls: list[str] = await nursery.start(_serve_to_the_end, serve, app, nursery)
                task_status.started(urls[0] + path)
                await trio.sleep_forever()  # the end of the server cancels it

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
        from trio_mcp.http.server.app import HttpApp
        from trio_mcp.http.server.options import HttpOptions

        async with serving(self) as run:
            app = HttpApp(run, options or HttpOptions())
            try:
                async with run.ending_gracefully():
                    yield app
            finally:
                app.close()

    def _transports(self) -> dict[str, Callable[..., None]]:
        return {
            **super()._transports(),
            "http": partial(self._run_http, self.serve_http),
            "sse": partial(self._run_http, self.serve_sse),
        }

    def _run_http(self, serve_there: Serve, /, **arguments: Any) -> None:
        if trio.run(self._serve_until_signalled, serve_there, arguments) == signal.SIGINT:
            sys.exit(130)

    async def _serve_until_signalled(self, serve_there: Serve, arguments: dict[str, Any]) -> int:
        """Serve until the process is told to end; a second signal ends it at once."""
        received: list[int] = []
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:

            async def first() -> None:
                received.append(await anext(signals))
                nursery.start_soon(second)

            async def second() -> None:
                await anext(signals)
                nursery.cancel_scope.cancel("told twice to end")

            async def serve(task_status: trio.TaskStatus[str]) -> None:  # noqa: ASYNC128 - it hands it on
                await serve_there(shutdown=first, task_status=task_status, **arguments)
                nursery.cancel_scope.cancel("the server has ended")

            async with background_nursery() as nursery:
                url = await nursery.start(serve)
                print(f"{self.info.name} serves {url}", file=sys.stderr)
                await trio.sleep_forever()  # the end of the server cancels it
        return received[0]


async def _serve_to_the_end(  # noqa: ASYNC128 - it hands it on
    serve: Serve, app: HttpApp, around: trio.Nursery, task_status: trio.TaskStatus[list[str]]
) -> None:
    await serve(task_status=task_status)
    await app.idle()
    around.cancel_scope.cancel("the server has ended")
