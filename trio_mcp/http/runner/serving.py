"""Serving an ASGI application: one function that can be started in a nursery and ends gracefully."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import trio

from trio_mcp._nursery import background_nursery, closing
from trio_mcp.http.runner.h1.connection import LeanRunner
from trio_mcp.http.runner.h1.parsers import httptools_parser
from trio_mcp.http.runner.settings import ServerLimits, ServerSettings
from trio_mcp.http.runner.sockets import listeners_of, open_sockets
from trio_mcp.http.runner.wire import Connections, RunnableConnection

__all__ = ["MAKERS", "Runner", "serve_asgi"]


class Runner(Protocol):
    """A runner: it speaks HTTP on the connections of one server.

    Attributes:
        protocols: The protocols that it speaks over TLS, by their names in ALPN.
    """

    protocols: list[str]

    def connect(self, stream: Any) -> RunnableConnection:
        """Return the connection that serves a stream."""

    async def run(self) -> None:
        """Run whatever the connections share, until cancelled."""

    async def end(self) -> None:
        """Let each connection end with its current request."""


def hypercorn_runner(app: Any, settings: ServerSettings, limits: ServerLimits) -> Runner:
    """Return the runner on hypercorn."""
    # hypercorn is imported only now: the other runners don't need it.
    from trio_mcp.http.runner.hypercorn.connection import HypercornRunner

    return HypercornRunner(app, settings, limits)


def httptools_runner(app: Any, settings: ServerSettings, limits: ServerLimits) -> Runner:
    """Return our own runner with the parser of httptools.

    Raises:
        RuntimeError: If httptools is not installed.
    """
    return LeanRunner(app, settings, limits, httptools_parser())


# The keys are the values of the setting ``runner``. A runner that is not installed fails only when it is made.
MAKERS: dict[str, Callable[[Any, ServerSettings, ServerLimits], Runner]] = {
    "hypercorn": hypercorn_runner,
    "h11": LeanRunner,
    "httptools": httptools_runner,
}


async def serve_asgi(
    app: Any,
    settings: ServerSettings,
    *,
    runner: str = "hypercorn",
    limits: ServerLimits | None = None,
    shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
    idle: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until ``shutdown`` returns, and then until what is under way has ended.

    When started in a nursery it returns the URLs that are actually bound, one for each socket: with the port that
    the system has chosen for port 0, and ``http+unix://`` with the percent-encoded path for a Unix socket.

    Args:
        app: An ASGI application; its lifespan protocol is not used.
        settings: Its addresses, TLS and timeouts.
        runner: A name in `trio_mcp.http.server.options.RUNNERS`.
        limits: Limits on connections.
        shutdown: Returns when no new work should be accepted. It should also end streams that are endless.
        idle: Returns when no new connections are needed any more. Until then they are accepted even after ``shutdown``,
            for messages that belong to work under way.
        task_status: Receives the URLs.

    Raises:
        OSError: If an address can't be bound.

    When cancelled, it ends at once, and exchanges under way are cancelled.
    """
    limits = limits or ServerLimits()
    # The runner comes first: one that is not installed is a clear error, before anything is bound.
    http = MAKERS[runner](app, settings, limits)
    connections = Connections(http.connect, limits.connections)
    async with closing(connections.interrupt):
        with open_sockets(settings) as sockets:
            listeners, urls = listeners_of(settings, sockets, http.protocols)
            # `background` is outermost: whatever the connections share has to last until the last of them has ended.
            async with background_nursery() as background, trio.open_nursery() as serving:
                background.start_soon(http.run)
                async with trio.open_nursery() as accepting:
                    # Two nurseries: cancelling this one closes the listeners, while connections run on in the other.
                    await accepting.start(
                        partial(trio.serve_listeners, connections.serve, listeners, handler_nursery=serving)
                    )
                    task_status.started(urls)
                    await shutdown()
                    # One deadline for both: waiting to close the listeners uses up the grace of the connections.
                    deadline = trio.current_time() + limits.grace
                    with trio.CancelScope(deadline=deadline):
                        await idle()
                    accepting.cancel_scope.cancel("the server is ending")
                # A connection now ends with its current request; those that wait for one end at once.
                await http.end()
                # This comes after `end`: a connection that becomes idle in between would neither be closed here nor
                # know that it must end.
                connections.shut_if_idle()
                serving.cancel_scope.deadline = deadline
