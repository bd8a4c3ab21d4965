"""Serving a run of a server over HTTP."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
from hypercorn.config import Config

from trio_mcp._nursery import background_nursery, start
from trio_mcp.http.runner.serving import serve_asgi
from trio_mcp.http.runner.settings import ServerLimits, configured
from trio_mcp.http.server.app import HttpApp, open_app
from trio_mcp.http.server.host import Run, Runnable
from trio_mcp.http.server.options import HttpOptions, HttpSettings

__all__ = ["RunSettings", "serve_http"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

LAST_WORDS = 0.5
"""Seconds after the grace for ending the streams that were cut off, on the wire (chosen: it is only local writes)."""


class RunSettings(HttpSettings, total=False):
    """The arguments of `Server.run` for HTTP; see `Server.serve_http`."""

    host: str
    port: int
    options: HttpOptions | None
    config: Config | None


async def serve_http(  # noqa: ASYNC128 - it hands it on
    server: Runnable,
    host: str,
    port: int,
    options: HttpOptions,
    config: Config | None,
    shutdown: trio.Event | None,
    task_status: trio.TaskStatus[str],
) -> None:
    """Serve a server over HTTP; see `Server.serve_http`."""
    config = configured(host, port) if config is None else config
    async with server.open_run() as run, open_app(run, options) as app:
        await _serve(app, run, config, shutdown, task_status)


async def _serve(
    app: HttpApp,
    run: Run,
    config: Config,
    shutdown: trio.Event | None,
    task_status: trio.TaskStatus[str],
) -> None:
    options = app.options
    # `cut` cancels what still runs when the grace is over. The runner waits a moment longer, so that the streams cut
    # off get a proper end instead of a dropped connection.
    limits = ServerLimits(
        options.max_connections, options.write_timeout, options.grace + LAST_WORDS, options.head_timeout
    )
    grace = trio.CancelScope()
    stop = trio.Event() if shutdown is None else shutdown

    async def end() -> None:
        await stop.wait()
        # `cut` sleeps in this scope. Its deadline is set only now: the grace starts with the shutdown.
        grace.deadline = trio.current_time() + options.grace
        await app.end()

    async def cut() -> None:
        with grace:
            await trio.sleep_forever()
        app.cut()

    # The outer block cancels what is inside it only after listeners were told of the end, so their streams are still
    # served at that point.
    async with run.ending_gracefully(), background_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:  # noqa: ASYNC128 - it hands it on
            await serve_asgi(
                app,
                config,
                runner=options.runner,
                limits=limits,
                shutdown=end,
                idle=app.idle,
                task_status=task_status,
            )
            # Connections have ended by now, but a handler of a session runs on without one.
            await app.idle()
            nursery.cancel_scope.cancel("the server has ended")

        nursery.start_soon(cut)
        urls: list[str] = await start(nursery, serve)
        url = urls[0] + options.endpoint
        if options.endpoint == options.websocket_path != options.path:
            url = "ws" + url.removeprefix("http")  # the same with TLS: wss
        task_status.started(url)
        await trio.sleep_forever()  # cancelled when the server has ended
