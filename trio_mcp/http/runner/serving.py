"""Serves an ASGI application, with a function that can be started in a nursery and ends gracefully."""

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

FAREWELL = 1.0
"""How many seconds an open connection may wait for one more request after its process has stopped accepting others.

An arbitrary choice: a client that calls again and again makes its next request within it.
"""

PROMISED = 1.0
"""How many seconds a connection is then kept after a response that has promised another request (arbitrary)."""

LAST = 0.1
"""How many seconds a process then has to begin the requests that have arrived. An arbitrary choice."""


class Runner(Protocol):
    """A runner: it serves HTTP on the connections of one server.

    Attributes:
        protocols: The protocols that it supports over TLS, by their names in ALPN.
    """

    protocols: list[str]

    def connect(self, stream: Any) -> RunnableConnection:
        """Return a connection that serves HTTP on a stream."""

    async def run(self) -> None:
        """Run the task that the connections share, if there is one, until cancelled."""

    async def end(self) -> None:
        """Let each response that begins from now on say that its connection ends."""


def hypercorn_runner(app: Any, settings: ServerSettings, limits: ServerLimits) -> Runner:
    """Return a runner that uses hypercorn."""
    # hypercorn is imported only now: the other runners don't need it.
    from trio_mcp.http.runner.hypercorn.connection import HypercornRunner

    return HypercornRunner(app, settings, limits)


def httptools_runner(app: Any, settings: ServerSettings, limits: ServerLimits) -> Runner:
    """Return our own runner, with httptools as its parser.

    Raises:
        RuntimeError: If httptools is not installed.
    """
    return LeanRunner(app, settings, limits, httptools_parser())


# The keys are the values of the setting ``runner``. A runner whose package is not installed fails only when it is made.
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
    leaving: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    idle: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until ``shutdown`` returns, and then until the exchanges under way have ended.

    When started with `trio.Nursery.start`, it returns the URLs that are actually bound, one for each socket, with the
    port that the system has chosen for port 0. The URL of a Unix socket is ``http+unix://`` with the percent-encoded
    path. If the function is cancelled, it ends at once, and exchanges under way are cancelled.

    Args:
        app: An ASGI application; its lifespan protocol is not used.
        settings: The addresses, TLS and timeouts of the server.
        runner: A name in `trio_mcp.http.server.options.RUNNERS`.
        limits: Limits on connections.
        shutdown: Returns when no new work should be accepted. It should also end streams that otherwise never end.
        leaving: Returns when other processes should accept the new connections, which is before ``shutdown``. It is
            awaited only if the sockets of the settings are shared; ``shutdown`` is then awaited `FAREWELL` seconds
            later, or when the last connection has ended, whichever comes first.
        idle: Returns when no new connections are needed any more. Until then they are accepted even after ``shutdown``,
            for messages that belong to work under way. It is not awaited if the sockets are shared: other processes
            are as likely to accept those connections.
        task_status: Receives the URLs.

    Raises:
        OSError: If an address can't be bound.
    """
    limits = limits or ServerLimits()
    # The runner is made first: if its package is not installed, the error comes before anything is bound.
    http = MAKERS[runner](app, settings, limits)
    connections = Connections(http.connect, limits.connections)
    async with closing(connections.interrupt):
        with open_sockets(settings) as sockets:
            listeners, urls = listeners_of(settings, sockets, http.protocols)
            # `background` is the outer nursery, because the task that the connections share must outlast all
            # connections.
            async with background_nursery() as background, trio.open_nursery() as serving:
                background.start_soon(http.run)
                async with trio.open_nursery() as accepting:
                    # There are two nurseries: cancelling this one closes the listeners, while connections continue in
                    # the other.
                    await accepting.start(
                        partial(trio.serve_listeners, connections.serve, listeners, handler_nursery=serving)
                    )
                    task_status.started(urls)
                    if settings.shared:
                        await leaving()
                    else:
                        await shutdown()
                        # `idle` and the connections share one deadline: the time spent in `idle` is part of the
                        # connections' grace period.
                        deadline = trio.current_time() + limits.grace
                        with trio.CancelScope(deadline=deadline):
                            await idle()
                    accepting.cancel_scope.cancel("the server is ending")
                if settings.shared:
                    # A client learns from a response that its connection ends, and makes a new one, to another process.
                    # So none of its requests is refused here, or lost as the connection is closed.
                    await http.end()
                    with trio.move_on_after(FAREWELL):
                        await connections.all_ended()
                    # Requests that have arrived by now are served before new work is refused. A response that lasts
                    # longer has promised another request: its client has some time for it.
                    connections.shut_if_idle(PROMISED)
                    with trio.move_on_after(LAST):
                        await connections.all_ended()
                    await shutdown()
                    deadline = trio.current_time() + limits.grace
                else:
                    # From now on, each connection ends with its current request.
                    await http.end()
                    # Idle connections end at once. This comes after `end`: otherwise, a connection that becomes idle in
                    # between would neither be closed here nor know that it must end.
                    connections.shut_if_idle()
                serving.cancel_scope.deadline = deadline
