"""Connections of the HTTP runner without a network, so that Trio's `MockClock` decides when a deadline fires."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio
import trio.testing
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext

from trio_mcp.http.runner.hypercorn.connection import HttpConnection
from trio_mcp.http.runner.settings import ServerLimits

__all__ = ["App", "over_memory", "over_socket", "tls_client"]


class App:
    """An ASGI application that answers everything, and counts what it began.

    Attributes:
        answer: The body of every answer.
        read: Whether it reads the body of a request first.
    """

    def __init__(self, answer: bytes = b"ok", *, read: bool = False) -> None:
        self.answer = answer
        self.read = read
        self.begun = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun += 1
        await trio.testing.wait_all_tasks_blocked()  # whatever the connection does meanwhile, it has done
        while self.read and (await receive()).get("more_body"):
            pass
        length = (b"content-length", b"%d" % len(self.answer))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": self.answer})


class _Wire(trio.abc.HalfCloseableStream):
    """A half of a pair in memory that has what a connection asks of a socket: addresses, of which it has none.

    Attributes:
        clear: Not set while the peer takes nothing.
    """

    def __init__(self, half: trio.abc.HalfCloseableStream) -> None:
        self._half = half
        self.socket = socket.socket(socket.AF_UNIX)
        self.clear = trio.Event()
        self.clear.set()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.clear.wait()
        await self._half.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._half.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._half.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._half.receive_some(max_bytes)

    async def aclose(self) -> None:
        self.socket.close()
        await self._half.aclose()


Ends = tuple[Any, HttpConnection, WorkerContext]


@contextlib.asynccontextmanager
async def _running(
    app: Callable[..., Awaitable[None]], config: Config, ours: Any, theirs: Any, write_timeout: float
) -> AsyncIterator[Ends]:
    context = WorkerContext(None)
    connection = HttpConnection(app, config, context, ServerLimits(write_timeout=write_timeout), theirs)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield ours, connection, context
        await trio.aclose_forcefully(ours)
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def over_memory(
    app: Callable[..., Awaitable[None]], config: Config, *, tls: ssl.SSLContext | None = None, write_timeout: float = 30
) -> AsyncIterator[Ends]:
    """Connect over a pair of streams in memory: yield the client's end, the server's connection and its context.

    Args:
        app: What is served.
        config: How.
        tls: The server's, if the connection is to speak TLS; the client's end is what that goes over.
        write_timeout: The connection's.
    """
    ours, half = trio.testing.memory_stream_pair()
    theirs: Any = _Wire(half)
    if tls is not None:
        theirs = trio.SSLStream(theirs, tls, server_side=True, https_compatible=True)
    async with _running(app, config, ours, theirs, write_timeout) as ends:
        yield ends


@contextlib.asynccontextmanager
async def over_socket(app: Callable[..., Awaitable[None]], config: Config) -> AsyncIterator[Ends]:
    """Connect over a pair of sockets, where the server reads from the descriptor itself."""
    ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
    async with _running(app, config, ours, theirs, 30) as ends:
        yield ends


async def tls_client(stream: Any, trusted: ssl.SSLContext) -> trio.SSLStream[Any]:
    """Return the client's end of a connection in memory, after its TLS handshake."""
    client = trio.SSLStream(stream, trusted, server_hostname="127.0.0.1", https_compatible=True)
    await client.do_handshake()
    return client
