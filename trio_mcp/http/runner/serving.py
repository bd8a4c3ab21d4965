"""Serving an ASGI application: one function that can be started in a nursery and ends gracefully."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import trio
from hypercorn.config import Config

from trio_mcp._nursery import background_nursery, closing, without_cancellation
from trio_mcp.http.runner.h1.runner import h11_runner, httptools_runner
from trio_mcp.http.runner.hypercorn.connection import HypercornRunner
from trio_mcp.http.runner.settings import ServerLimits
from trio_mcp.http.runner.sockets import listeners_of, open_sockets

__all__ = ["MAKERS", "Connection", "Runner", "serve_asgi"]

# Written by hand, so that a connection over the limit costs no parser.
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class Connection(Protocol):
    """A connection, from its acceptance to its end."""

    async def run(self) -> None:
        """Serve requests until either end closes the connection, and close the stream."""

    def shut_if_idle(self) -> None:
        """End the connection unless a request is under way."""


class Runner(Protocol):
    """What speaks HTTP on the connections of one server.

    Attributes:
        protocols: What it speaks over TLS, by its names in ALPN.
    """

    protocols: list[str]

    def connect(self, stream: Any) -> Connection:
        """Return the connection that serves a stream."""

    async def run(self) -> None:
        """Do what the connections share, until cancelled."""

    async def end(self) -> None:
        """Let each connection end with its current request."""


MAKERS: dict[str, Callable[[Any, Config, ServerLimits], Runner]] = {
    "hypercorn": HypercornRunner,
    "h11": h11_runner,
    "httptools": httptools_runner,
}


async def serve_asgi(
    app: Any,
    config: Config,
    *,
    runner: str = "hypercorn",
    limits: ServerLimits | None = None,
    shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
    idle: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until ``shutdown`` returns, and then until what is under way has ended.

    When started in a nursery it returns the URLs that are actually bound, one for each of ``config.bind``: with the
    port that the system has chosen for port 0, and ``http+unix://`` with the percent-encoded path for a Unix socket.

    Args:
        app: An ASGI application; its lifespan protocol is not used.
        config: Hypercorn's configuration: addresses, TLS, timeouts.
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
    connections: set[Connection] = set()

    async def serve_connection(stream: Any) -> None:
        if len(connections) >= limits.connections:
            await _refuse(stream)
            return
        connection = http.connect(stream)
        connections.add(connection)
        try:
            await connection.run()
        except BaseException as exc:
            if (interruption := without_cancellation(exc)) is not None:
                interruptions.append(interruption)
            raise
        finally:
            connections.discard(connection)

    async def interrupt() -> None:
        for exc in interruptions:
            raise exc

    # `trio.serve_listeners` closes a connection's stream with an await of its own, which in a cancelled scope would
    # replace a KeyboardInterrupt by Cancelled. So those are collected here and raised at the very end.
    interruptions: list[BaseException] = []
    async with closing(interrupt):
        http = MAKERS[runner](app, config, limits)
        with open_sockets(config) as sockets:
            listeners, urls = listeners_of(config, sockets, http.protocols)
            async with background_nursery() as background, trio.open_nursery() as serving:
                background.start_soon(http.run)
                async with trio.open_nursery() as accepting:
                    # Two nurseries: cancelling this one closes the listeners, while connections run on in the other.
                    await accepting.start(
                        partial(trio.serve_listeners, serve_connection, listeners, handler_nursery=serving)
                    )
                    task_status.started(urls)
                    await shutdown()
                    # One deadline for both: waiting to close the listeners uses up the grace of the connections.
                    deadline = trio.current_time() + limits.grace
                    with trio.CancelScope(deadline=deadline):
                        await idle()
                    accepting.cancel_scope.cancel("the server is ending")
                # From here on a connection ends with its current request; those that wait for one end now.
                await http.end()
                for connection in tuple(connections):
                    connection.shut_if_idle()
                serving.cancel_scope.deadline = deadline


async def _refuse(stream: Any) -> None:
    """Answer a connection over the limit with 503, if that needs no TLS handshake, and close it."""
    with trio.move_on_after(1):  # seconds; chosen: the buffers of a new connection are empty
        try:
            if isinstance(stream, trio.SocketStream):
                await stream.send_all(REFUSED)
        except trio.BrokenResourceError:
            pass
    await trio.aclose_forcefully(stream)
