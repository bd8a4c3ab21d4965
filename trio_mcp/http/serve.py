"""Serving a run of a server over HTTP: by itself, or as an application beside others."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeAlias

import trio
from hypercorn.config import Config

from trio_mcp._nursery import background_nursery, start
from trio_mcp.http.runner.hypercorn import ServerLimits, configured, serve_asgi
from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.server.host import Run
from trio_mcp.http.server.options import HttpOptions

__all__ = ["asgi_app", "serve_http"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

LAST_WORDS = 0.5
"""Seconds after the grace in which streams that were cut off are ended on the wire."""


class Runnable(Protocol):
    """A server."""

    def open_run(self) -> contextlib.AbstractAsyncContextManager[Run]:
        """Run it, for the time of a block."""


@contextlib.asynccontextmanager
async def asgi_app(server: Runnable, options: HttpOptions | None) -> AsyncIterator[HttpApp]:
    """Run a server as an application; it serves inside of the block."""
    async with server.open_run() as run:
        app = HttpApp(run, options or HttpOptions())
        try:
            async with run.ending_gracefully():
                yield app
        finally:
            app.close()


async def serve_http(  # noqa: ASYNC128 - it hands it on
    server: Runnable,
    host: str,
    port: int,
    options: HttpOptions | None,
    config: Config | None,
    shutdown: Callable[[], Awaitable[object]],
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve a server on hypercorn; see `Server.serve_http`."""
    options = options or HttpOptions()
    config = configured(host, port) if config is None else config
    async with server.open_run() as run:
        await _serve(HttpApp(run, options), run, config, shutdown, task_status)


async def _serve(
    app: HttpApp,
    run: Run,
    config: Config,
    shutdown: Callable[[], Awaitable[object]],
    task_status: trio.TaskStatus[str],
) -> None:
    options = app.options
    # What is cut off at the end of the grace gets a moment more, to end its streams.
    limits = ServerLimits(options.max_connections, options.write_timeout, options.grace + LAST_WORDS)
    grace = trio.CancelScope()

    async def end() -> None:
        await shutdown()
        grace.deadline = trio.current_time() + options.grace
        await app.end()

    async def cut() -> None:
        with grace:
            await trio.sleep_forever()
        app.cut()

    async with run.ending_gracefully(), background_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:  # noqa: ASYNC128 - it hands it on
            await serve_asgi(app, config, limits=limits, shutdown=end, idle=app.idle, task_status=task_status)
            await app.idle()
            nursery.cancel_scope.cancel("the server has ended")

        nursery.start_soon(cut)
        urls: list[str] = await start(nursery, serve)
        task_status.started(urls[0] + (options.path or options.sse_path or ""))
        await trio.sleep_forever()  # the end of the server cancels it
