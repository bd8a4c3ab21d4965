"""Serving an ASGI application on hypercorn, from one function that can be started in a nursery and ended with grace."""

from __future__ import annotations

import contextlib
import logging
import os
import socket as stdlib_socket
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any
from urllib.parse import quote

import attrs
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config, Sockets
from hypercorn.trio.worker_context import WorkerContext

from trio_mcp.http.runner.connection import HttpConnection

__all__ = ["ServerLimits", "configured", "serve_asgi"]

logger = logging.getLogger("trio_mcp")

REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class QuietConfig(Config):
    """Hypercorn's configuration without logs and a ``Server`` header; the ``Date`` is written once a second."""

    errorlog = None
    include_server_header = False
    _dated: tuple[int, list[tuple[bytes, bytes]]] = (0, [])

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:
        now = int(time.time())
        if self._dated[0] != now:
            self._dated = (now, super().response_headers(protocol))
        return self._dated[1]


def configured(host: str, port: int) -> Config:
    """Hypercorn's configuration for one address.

    Raises:
        TypeError, ValueError: The address can't be one.
    """
    if not isinstance(host, str) or not host:
        raise TypeError(f"host must be a name or an address, got {host!r}")
    if isinstance(port, bool) or not isinstance(port, int):
        raise TypeError(f"port must be an integer, got {port!r}")
    if not 0 <= port < 65536:
        raise ValueError(f"port must be between 0 and 65535, got {port}")
    config = QuietConfig()
    config.bind = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}"]
    return config


@attrs.frozen
class ServerLimits:
    """What the connections of one server may cost.

    Attributes:
        connections: How many there are at once; further ones are answered with 503 and closed.
        write_timeout: Seconds that a peer may take to read 64 KiB, once its buffers are full, before it is dropped.
        grace: Seconds that exchanges under way are given when the server ends.
    """

    connections: int = 1000
    write_timeout: float = 30.0
    grace: float = 5.0


async def serve_asgi(
    app: Any,
    config: Config,
    *,
    limits: ServerLimits | None = None,
    shutdown: Callable[[], Awaitable[object]] = trio.sleep_forever,
    idle: Callable[[], Awaitable[object]] = trio.lowlevel.checkpoint,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an application until ``shutdown`` returns, and then until what is under way has ended.

    Starting it in a nursery gives the URLs that are really bound, one for each of ``config.bind``: with the port that
    the system has chosen for port 0, and ``http+unix://`` with the percent-encoded path for a Unix socket.

    Args:
        app: An ASGI application; its lifespan protocol is not used.
        config: Hypercorn's: addresses, TLS, timeouts.
        limits: What connections may cost.
        shutdown: Returns when no new work shall be taken. Whoever has endless streams ends them then, too.
        idle: Returns when no connection is needed any more but those that there are; so long they are accepted, for
            what belongs to work under way.
        task_status: Gets the URLs.

    Raises:
        OSError: An address can't be bound.

    When cancelled, it ends at once: exchanges under way are cancelled.
    """
    limits = limits or ServerLimits()
    context = WorkerContext(None)
    wrapped = ASGIWrapper(app)
    connections: set[HttpConnection] = set()

    async def serve_connection(stream: Any) -> None:
        if len(connections) >= limits.connections:
            await _refuse(stream)
            return
        connection = HttpConnection(wrapped, config, context, stream, write_timeout=limits.write_timeout)
        connections.add(connection)
        try:
            await connection.run()
        finally:
            connections.discard(connection)

    with _sockets(config) as sockets:
        listeners, urls = _listeners(config, sockets)
        async with trio.open_nursery() as serving:
            async with trio.open_nursery() as accepting:
                # Cancelling this nursery closes the listeners; the connections are the other's.
                await accepting.start(
                    partial(trio.serve_listeners, serve_connection, listeners, handler_nursery=serving)
                )
                task_status.started(urls)
                await shutdown()
                deadline = trio.current_time() + limits.grace
                with trio.CancelScope(deadline=deadline):
                    await idle()
                accepting.cancel_scope.cancel("the server is ending")
            await context.terminated.set()
            for connection in tuple(connections):
                connection.shut_if_idle()
            serving.cancel_scope.deadline = deadline


async def _refuse(stream: Any) -> None:
    with trio.move_on_after(1):
        try:
            if isinstance(stream, trio.SocketStream):
                await stream.send_all(REFUSED)
        except trio.BrokenResourceError:
            pass
    await trio.aclose_forcefully(stream)


@contextlib.contextmanager
def _sockets(config: Config) -> Iterator[Sockets]:
    """The bound sockets; those of Unix sockets leave no file behind."""
    try:
        sockets = config.create_sockets()
    except OSError as exc:
        raise OSError(exc.errno, f"can't listen on {', '.join(config.bind)}: {exc.strerror or exc}") from exc
    everyone = [*sockets.secure_sockets, *sockets.insecure_sockets, *sockets.quic_sockets]
    paths = [sock.getsockname() for sock in everyone if sock.family == stdlib_socket.AF_UNIX]
    try:
        yield sockets
    finally:
        for sock in everyone:
            sock.close()
        for path in paths:
            try:
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)
            except OSError:
                pass


def _listeners(config: Config, sockets: Sockets) -> tuple[list[Any], list[str]]:
    listeners: list[Any] = []
    urls: list[str] = []
    tls = config.create_ssl_context()
    for scheme, group in (("https", sockets.secure_sockets), ("http", sockets.insecure_sockets)):
        for sock in group:
            sock.listen(config.backlog)
            listener: Any = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
            if scheme == "https":
                assert tls is not None
                listener = trio.SSLListener(listener, tls, https_compatible=True)
            listeners.append(listener)
            urls.append(_url(scheme, sock))
    return listeners, urls


def _url(scheme: str, sock: stdlib_socket.socket) -> str:
    name = sock.getsockname()
    if sock.family == stdlib_socket.AF_UNIX:
        return f"{scheme}+unix://{quote(name, safe='')}"
    host, port = name[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
