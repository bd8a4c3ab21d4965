"""Servers on real sockets, and clients that speak to them byte by byte."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from tests.peer import HANDSHAKE, ndjson
from tests.server.http.certificate import over_tls
from trio_mcp import Client, Context, Server
from trio_mcp.low_level import tcp_client, unix_client
from trio_mcp.sockets.addresses import read_address

DEADLINE = 30
"""Seconds, against a hang only."""

KINDS = ("tcp", "tls", "unix")


@attrs.define
class Served:
    """A server on a socket.

    Attributes:
        url: Its URL.
        server: The server.
        calls: What its tools were called with.
        proceed: Lets ``hold`` return.
        held: How many of its calls wait.
        shutdown: Ends the server when set.
        ended: Set when it has ended.
        stop: Cancels the server.
        trusting: A client's context for TLS, or None.
    """

    url: str = ""
    server: Server = attrs.Factory(lambda: Server("test"))
    calls: list[str] = attrs.Factory(list)
    proceed: trio.Event = attrs.Factory(trio.Event)
    held: int = 0
    shutdown: trio.Event = attrs.Factory(trio.Event)
    ended: trio.Event = attrs.Factory(trio.Event)
    stop: trio.CancelScope = attrs.Factory(trio.CancelScope)
    trusting: ssl.SSLContext | None = None

    def client(self, **settings: Any) -> Client:
        if self.url.startswith("unix:"):
            return Client(lambda: unix_client(self.url), **settings)
        return Client(lambda: tcp_client(self.url, ssl_context=self.trusting), **settings)

    async def connect(self) -> trio.abc.HalfCloseableStream:
        """Connect, without a word."""
        address = read_address(self.url)
        if address.scheme == "unix":
            return await trio.open_unix_socket(address.place)
        return await trio.open_tcp_stream(address.host, address.port)


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's context for TLS, and a client's that trusts it."""
    config, trusting = over_tls(folder)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(config.certfile), config.keyfile)
    return context, trusting


@contextlib.asynccontextmanager
async def served(kind: str, folder: Path, **settings: Any) -> AsyncIterator[Served]:
    """Serve some tools for the time of a block."""
    it = Served()
    server = it.server

    @server.tool
    async def note(text: str) -> str:
        it.calls.append(text)
        return text

    @server.tool
    async def hold(ctx: Context) -> str:
        it.held += 1
        try:
            await it.proceed.wait()
            return "held"
        finally:
            it.held -= 1

    @server.tool
    async def fail() -> None:
        raise RuntimeError("a tool failed")

    @server.tool
    async def large(size: int) -> str:
        return "x" * size

    @server.tool
    async def peer(ctx: Context) -> list[int]:
        return list(ctx.transport_metadata["peer"])

    if kind == "unix":
        serve = partial(server.serve_unix, folder / "mcp.sock", shutdown=it.shutdown, **settings)
    else:
        if kind == "tls":
            settings["ssl_context"], it.trusting = contexts(folder)
        serve = partial(server.serve_tcp, port=0, shutdown=it.shutdown, **settings)

    async def run(task_status: trio.TaskStatus[str]) -> None:
        with it.stop:
            await serve(task_status=task_status)
        it.ended.set()

    with trio.fail_after(DEADLINE):
        async with trio.open_nursery() as nursery:
            it.url = await nursery.start(run)
            yield it
            nursery.cancel_scope.cancel()


def opening(*messages: Any) -> bytes:
    """Return the handshake of the legacy era, and more messages."""
    return ndjson(*HANDSHAKE, *messages)


async def read_to_the_end(stream: trio.abc.ReceiveStream) -> bytes:
    """Return what comes until the stream ends, however that is."""
    data = b""
    with contextlib.suppress(trio.BrokenResourceError):
        async for chunk in stream:
            data += chunk
    return data


class Lines:
    """Takes the messages of a stream one by one."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""

    async def take(self) -> dict[str, Any]:
        while b"\n" not in self._rest:
            chunk = await self._stream.receive_some()
            assert chunk, "the connection has ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message
