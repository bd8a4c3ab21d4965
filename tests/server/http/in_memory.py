"""Connections of the HTTP runners without a network, so that Trio's `MockClock` decides when a deadline fires."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing
from hypercorn.config import Config

from tests.server.http.runners import chosen
from trio_mcp._nursery import background_nursery
from trio_mcp.http.runner.hypercorn.settings import settings_from
from trio_mcp.http.runner.serving import MAKERS, Runner
from trio_mcp.http.runner.settings import ServerLimits
from trio_mcp.http.runner.wire import DeadlineStream

__all__ = ["App", "everything", "over_memory", "tls_client", "writes"]


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


class Pipe(trio.abc.HalfCloseableStream):
    """What TLS goes over: a socket's stream that the test can stop.

    Attributes:
        clear: Not set while the peer takes nothing.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        self.clear = trio.Event()
        self.clear.set()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.clear.wait()
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


@contextlib.asynccontextmanager
async def over_memory(
    app: Callable[..., Awaitable[None]], config: Config, *, tls: ssl.SSLContext | None = None, write_timeout: float = 30
) -> AsyncIterator[tuple[trio.SocketStream, Any, Runner]]:
    """Connect over a pair of sockets: yield the client's end, the server's connection and its runner.

    Args:
        app: What is served.
        config: How.
        tls: The server's, if the connection is to speak TLS; the client's end is what that goes over.
        write_timeout: The connection's.
    """
    ours, half = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in socket.socketpair())
    theirs: Any = half
    if tls is not None:
        theirs = trio.SSLStream(Pipe(half), tls, server_side=True, https_compatible=True)
    http = MAKERS[chosen.runner()](app, settings_from(config), ServerLimits(write_timeout=write_timeout))
    connection = http.connect(theirs)
    with trio.fail_after(600):  # longer than any deadline of a connection
        async with background_nursery() as background, trio.open_nursery() as nursery:
            background.start_soon(http.run)
            nursery.start_soon(connection.run)
            try:
                yield ours, connection, http
            finally:
                ours.socket.close()
                nursery.cancel_scope.cancel()


async def everything(stream: trio.abc.ReceiveStream) -> bytes:
    """Return what comes up to the end of a connection, which may be a reset."""
    got = b""
    with contextlib.suppress(trio.BrokenResourceError):
        while chunk := await stream.receive_some():
            got += chunk
    return got


async def tls_client(stream: Any, trusted: ssl.SSLContext) -> trio.SSLStream[Any]:
    """Return the client's end of a connection in memory, after its TLS handshake."""
    client = trio.SSLStream(stream, trusted, server_hostname="127.0.0.1", https_compatible=True)
    await client.do_handshake()
    return client


def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what the connections of HTTP/1.1 will write from now on; a write is usually a packet."""
    seen: list[bytes] = []
    send = DeadlineStream.send

    async def record(wire: DeadlineStream, data: bytes) -> bool:
        seen.append(data)
        return await send(wire, data)

    monkeypatch.setattr(DeadlineStream, "send", record)
    return seen
