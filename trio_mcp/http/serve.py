"""Serves a run of a server over HTTP."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeAlias
from urllib.parse import urlsplit

import trio

from trio_mcp._addresses import is_loopback
from trio_mcp._nursery import background_nursery, start
from trio_mcp._settings import Default
from trio_mcp.http.runner.serving import serve_asgi
from trio_mcp.http.runner.settings import ServerLimits, ServerSettings, settings_at
from trio_mcp.http.server.app import HttpApp, open_app
from trio_mcp.http.server.host import HostedRun, Runnable
from trio_mcp.http.server.options import HttpOptions, HttpSettings

if TYPE_CHECKING:  # only a caller that passes a Config needs hypercorn
    from hypercorn.config import Config

__all__ = ["RunSettings", "ServeSettings", "check_resource", "serve_http"]

Serve: TypeAlias = Callable[..., Awaitable[None]]

LAST_WORDS = 0.5
"""How many seconds the streams that are cut off after the grace period get to end.

An arbitrary choice: ending them takes only local writes.
"""


class ServeSettings(HttpSettings, total=False):
    """The settings of `Server.serve_http` and its siblings: those of `HttpSettings`, and these.

    Attributes:
        options: The options of the endpoint, for endpoints that share them; settings that are given as well replace
            those in the options.
        config: A hypercorn configuration, for TLS, Unix sockets (``bind = ["unix:/path"]``) or several addresses. Its
            ``bind`` replaces ``host`` and ``port``.
    """

    options: Annotated[HttpOptions | None, Default()]
    config: Annotated["Config | None", Default()]


class RunSettings(ServeSettings, total=False):
    """The arguments of `Server.run` for HTTP; see `Server.serve_http`."""

    host: str
    port: int


async def serve_http(  # noqa: ASYNC128 - task_status is passed on
    server: Runnable,
    host: str,
    port: int,
    shutdown: trio.Event | None,
    task_status: trio.TaskStatus[str],
    settings: ServeSettings,
) -> None:
    """Serve a server over HTTP; see `Server.serve_http`."""
    config = settings.pop("config", None)
    options = HttpOptions(settings.pop("options", None), **settings)  # type: ignore[misc]  # the rest: HttpSettings
    if config is None:
        runner_settings = settings_at(host, port)
        if (auth := options.settings["auth"]) is not None:
            check_resource(auth.resource, host, port, options)
    else:
        # hypercorn is imported here, because a server without a Config may not need it.
        from trio_mcp.http.runner.hypercorn.settings import settings_from  # noqa: ASYNC127 - as above

        runner_settings = settings_from(config)
    async with server.open_run() as run, open_app(run, options) as app:
        await _serve(app, run, runner_settings, shutdown, task_status)


def check_resource(resource: str, host: str, port: int, options: HttpOptions) -> None:
    """Refuse a configuration in which tokens are for a URL that is certainly not the one being served.

    Behind a proxy, or on an address that other machines reach, clients may use another URL for the server.

    Args:
        resource: The URL that tokens are for.
        host: The address to listen on.
        port: The port to listen on.
        options: The settings of the endpoint.

    Raises:
        ValueError: If ``resource`` is certainly not the URL being served.
    """
    parts = urlsplit(resource)
    if parts.scheme == "https":  # TLS ends at a proxy, because only plain HTTP is served here
        return
    if not port or not all(each == "localhost" or is_loopback(each) for each in (host, parts.hostname or "")):
        return
    # As the resource, clients accept the server's URL, or that of a parent path (by whole segments).
    above = f"{options.endpoint}/".startswith(f"{parts.path.rstrip('/')}/")
    if (parts.port or 80) != port or not above:
        served = f"http://{host}:{port}{options.endpoint}"
        raise ValueError(f"tokens for {resource} would not be valid for this server, whose URL is {served}")


async def _serve(
    app: HttpApp,
    run: HostedRun,
    runner_settings: ServerSettings,
    shutdown: trio.Event | None,
    task_status: trio.TaskStatus[str],
) -> None:
    options = app.options
    settings = options.settings
    # `cut` cancels what is still running when the grace period is over. The runner waits a moment longer, so that the
    # streams that are cut off get a proper end instead of a dropped connection.
    limits = ServerLimits(
        settings["max_connections"],
        settings["write_timeout"],
        settings["grace"] + LAST_WORDS,
        settings["head_timeout"],
    )
    grace = trio.CancelScope()
    stop = trio.Event() if shutdown is None else shutdown

    async def end() -> None:
        await stop.wait()
        # `cut` sleeps in the scope `grace`, whose deadline is set only now: the grace starts with the shutdown.
        grace.deadline = trio.current_time() + settings["grace"]
        await app.end()

    async def cut() -> None:
        with grace:
            await trio.sleep_forever()
        app.cut()

    # The outer block cancels its contents only after listeners have been told of the end, so that their streams are
    # still served at that point.
    async with run.ending_gracefully(), background_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[list[str]]) -> None:  # noqa: ASYNC128 - task_status is passed on
            await serve_asgi(
                app,
                runner_settings,
                runner=settings["runner"],
                limits=limits,
                shutdown=end,
                idle=app.idle,
                task_status=task_status,
            )
            # Connections have ended by now, but a handler of a session may still be running without a connection.
            await app.idle()
            nursery.cancel_scope.cancel("the server has ended")

        nursery.start_soon(cut)
        urls: list[str] = await start(nursery, serve)
        url = urls[0] + options.endpoint
        if options.endpoint == settings["websocket_path"] != settings["path"]:
            url = "ws" + url.removeprefix("http")  # http becomes ws, and https becomes wss
        task_status.started(url)
        await trio.sleep_forever()  # the task runs until `serve` cancels the nursery
