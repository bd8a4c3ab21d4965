"""Serves a run of a server over HTTP."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, TypeAlias
from urllib.parse import urlsplit

import attrs
import trio

from trio_mcp._addresses import is_loopback
from trio_mcp._nursery import background_nursery, start
from trio_mcp._settings import Default
from trio_mcp.http.runner.serving import serve_asgi
from trio_mcp.http.runner.settings import Bound, ServerLimits, ServerSettings, settings_at
from trio_mcp.http.runner.sockets import open_sockets, url_of_socket
from trio_mcp.http.server.app import HttpApp, open_app
from trio_mcp.http.server.host import HostedRun, Runnable
from trio_mcp.http.server.options import HttpOptions, HttpSettings

if TYPE_CHECKING:  # only a caller that passes a Config needs hypercorn
    from hypercorn.config import Config

__all__ = ["RunSettings", "ServeSettings", "check_resource", "listening", "serve_http"]

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
    sockets: Sequence[Bound] = (),
) -> None:
    """Serve a server over HTTP; see `Server.serve_http`.

    Args:
        server: The server.
        host: The address to listen on.
        port: The port to listen on.
        shutdown: As in `Server.serve_http`.
        task_status: Receives the URL.
        settings: The settings of the endpoint.
        sockets: Sockets that `listening` has opened in the parent process; they replace the address.
    """
    options, runner_settings = _read(host, port, settings)
    if sockets:
        runner_settings = attrs.evolve(runner_settings, shared=sockets)
    async with server.open_run() as run, open_app(run, options) as app:
        await _serve(app, run, runner_settings, shutdown, task_status)


@contextlib.contextmanager
def listening(host: str, port: int, settings: ServeSettings) -> Iterator[tuple[list[Bound], str, HttpOptions]]:
    """Listen for the duration of a block, for child processes which serve; yield the sockets, the URL and the options.

    Args:
        host: The address to listen on.
        port: The port to listen on.
        settings: Those for which the child processes serve.

    Raises:
        OSError: If the address can't be bound, or a certificate can't be used.
        TypeError, ValueError: If a setting is invalid.
    """
    options, runner_settings = _read(host, port, settings)
    with open_sockets(runner_settings) as sockets:
        usable = [(scheme, sock) for scheme, sock in sockets if scheme != "quic"]
        for _, sock in usable:
            # This is a property of the socket itself, so it is the same in the children. Between the moment at which
            # one of them learns of a connection and its call of `accept`, another may have taken the connection.
            sock.setblocking(False)
            sock.listen(runner_settings.backlog)
        yield usable, _endpoint_url(url_of_socket(*usable[0]), options), options


def _read(host: str, port: int, settings: ServeSettings) -> tuple[HttpOptions, ServerSettings]:
    settings = settings.copy()
    config = settings.pop("config", None)
    options = HttpOptions(settings.pop("options", None), **settings)  # type: ignore[misc]  # the rest: HttpSettings
    if config is None:
        runner_settings = settings_at(host, port)
        if (auth := options.settings["auth"]) is not None:
            check_resource(auth.resource, host, port, options)
        return options, runner_settings
    # hypercorn is imported here, because a server without a Config may not need it.
    from trio_mcp.http.runner.hypercorn.settings import settings_from

    return options, settings_from(config)


def _endpoint_url(url: str, options: HttpOptions) -> str:
    """Return the URL by which the server is known."""
    url += options.endpoint
    if options.endpoint == options.settings["websocket_path"] != options.settings["path"]:
        url = "ws" + url.removeprefix("http")  # http becomes ws, and https becomes wss
    return url


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
        await app.end(refuse=not runner_settings.shared)

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
                leaving=stop.wait,
                idle=app.idle,
                task_status=task_status,
            )
            # Connections have ended by now, but a handler of a session may still be running without a connection.
            await app.idle()
            nursery.cancel_scope.cancel("the server has ended")

        nursery.start_soon(cut)
        urls: list[str] = await start(nursery, serve)
        task_status.started(_endpoint_url(urls[0], options))
        await trio.sleep_forever()  # the task runs until `serve` cancels the nursery
