"""Serving a run of a server over HTTP: by itself, or as an application beside others."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import trio
from hypercorn.config import Config

from trio_mcp._nursery import background_nursery
from trio_mcp.http.runner.hypercorn import ServerLimits, serve_asgi
from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.server.host import Run
from trio_mcp.http.server.options import HttpOptions

__all__ = ["asgi_app", "serve_http", "serve_until_signalled"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

LAST_WORDS = 0.5
"""Seconds after the grace in which streams that were cut off are ended on the wire."""


@contextlib.asynccontextmanager
async def asgi_app(run: Run, options: HttpOptions) -> AsyncIterator[HttpApp]:
    """Make the application of a run; it serves inside of the block."""
    app = HttpApp(run, options)
    try:
        async with run.ending_gracefully():
            yield app
    finally:
        app.close()


async def serve_http(
    run: Run,
    options: HttpOptions,
    config: Config,
    shutdown: Callable[[], Awaitable[object]],
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve a run on hypercorn until ``shutdown`` returns, then until what is under way has ended.

    Args:
        run: The run of the server.
        options: What the endpoint is like.
        config: Hypercorn's own.
        shutdown: Returns when the server shall end.
        task_status: Gets the URL, the first of several.
    """
    app = HttpApp(run, options)
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
        urls: list[str] = await nursery.start(serve)
        task_status.started(urls[0] + (options.path or options.sse_path or ""))
        await trio.sleep_forever()  # the end of the server cancels it


async def serve_until_signalled(serve: Serve, name: str) -> int:
    """Serve until the process is told to end, and say on stderr where; a second signal ends it at once.

    Args:
        serve: As `Server.serve_http`.
        name: The server's.

    Returns:
        The signal.
    """
    received: list[int] = []
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with background_nursery() as nursery:

            async def second() -> None:
                await anext(signals)
                nursery.cancel_scope.cancel("told twice to end")

            async def first() -> None:
                received.append(await anext(signals))
                nursery.start_soon(second)

            async def serve_to_the_end(task_status: trio.TaskStatus[str]) -> None:  # noqa: ASYNC128 - it hands it on
                await serve(shutdown=first, task_status=task_status)
                nursery.cancel_scope.cancel("the server has ended")

            url = await nursery.start(serve_to_the_end)
            print(f"{name} serves {url}", file=sys.stderr)
            await trio.sleep_forever()  # the end of the server cancels it
    return received[0]
