"""Serving a server over HTTP, by itself or beside other ASGI applications."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

import trio
from hypercorn.config import Config

from trio_mcp._nursery import background_nursery
from trio_mcp.http.runner.hypercorn import ServerLimits, configured, serve_asgi
from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.server.run import Run

__all__ = ["asgi_app", "serve_http", "serve_until_signalled"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

LAST_WORDS = 0.5
"""Seconds after the grace in which streams that were cut off are ended on the wire."""


class Runnable(Protocol):
    """A server: see `BaseServer`."""

    def open_run(self) -> contextlib.AbstractAsyncContextManager[Run]: ...


async def serve_http(
    server: Runnable,
    host: str,
    port: int,
    options: HttpOptions | None,
    config: Config | None,
    shutdown: Callable[[], Awaitable[object]],
    task_status: trio.TaskStatus[str],
) -> None:
    """See `Server.serve_http`."""
    options = options or HttpOptions()
    config = configured(host, port) if config is None else config
    # What is cut off at the end of the grace gets a moment more, to end its streams.
    limits = ServerLimits(options.max_connections, options.write_timeout, options.grace + LAST_WORDS)
    path = options.path or options.sse_path or ""
    async with server.open_run() as run:
        app = HttpApp(run, options)

        async def end() -> None:
            await shutdown()
            grace.deadline = trio.current_time() + options.grace
            await app.end()

        async def cut() -> None:
            with grace:
                await trio.sleep_forever()
            app.cut()

        async with run.ending_gracefully(run.connections), background_nursery() as nursery:
            grace = trio.CancelScope()
            nursery.start_soon(cut)
            serve = partial(serve_asgi, app, config, limits=limits, shutdown=end, idle=app.idle)
            urls: list[str] = await nursery.start(_serve_to_the_end, serve, app, nursery)
            task_status.started(urls[0] + path)
            await trio.sleep_forever()  # the end of the server cancels it


@contextlib.asynccontextmanager
async def asgi_app(server: Runnable, options: HttpOptions | None) -> AsyncIterator[HttpApp]:
    """See `Server.asgi_app`."""
    async with server.open_run() as run:
        app = HttpApp(run, options or HttpOptions())
        try:
            async with run.ending_gracefully(run.connections):
                yield app
        finally:
            app.close()


async def serve_until_signalled(name: str, serve_there: Serve, arguments: dict[str, Any]) -> int:
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
            print(f"{name} serves {url}", file=sys.stderr)
            await trio.sleep_forever()  # the end of the server cancels it
    return received[0]


async def _serve_to_the_end(  # noqa: ASYNC128 - it hands it on
    serve: Serve, app: HttpApp, around: trio.Nursery, task_status: trio.TaskStatus[list[str]]
) -> None:
    await serve(task_status=task_status)
    await app.idle()
    around.cancel_scope.cancel("the server has ended")
