"""Sessions under test: two real ones back to back, or one whose peer is the test itself."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio
import trio.lowlevel
import trio.testing

from tests.peer import Peer
from trio_mcp import SessionOptions
from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.low_level import (
    ClientSession,
    Link,
    RequestContext,
    ServerSession,
    memory_link_pair,
    stream_link,
)

CLIENT_CAPABILITIES: dict[str, Any] = {"roots": {}, "sampling": {}, "elicitation": {}}


def identity(**capabilities: Any) -> ServerIdentity:
    declared = capabilities or {"tools": {}, "logging": {}}
    return ServerIdentity(info={"name": "test", "version": "1"}, capabilities=lambda revision: declared)


class ScriptedServer(ServerSession):
    """Answers every request with the given function; by default echoes the parameters."""

    def __init__(
        self, link: Link, answer: Callable[[RequestContext], Awaitable[dict[str, Any]]] | None = None, **options: Any
    ) -> None:
        super().__init__(*link, options.pop("identity", identity()), **options)
        self.answer = answer
        self.added: set[str] = set()
        self.seen: list[str] = []

    async def received_request(self, context: RequestContext) -> Any:
        self.seen.append(context.method)
        if context.method in self.added:
            return await super().received_request(context)
        return {"echo": context.params.get("arguments")} if self.answer is None else await self.answer(context)

    def add_request_handler(self, method: str, *arguments: Any) -> None:
        super().add_request_handler(method, *arguments)
        self.added.add(method)


@contextlib.asynccontextmanager
async def socket_link_pair() -> AsyncIterator[tuple[Link, Link]]:
    """Connect two links by sockets, on which messages are written at once and acted on as they are read."""
    one, two = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in socket.socketpair())
    async with stream_link(one) as here, stream_link(two) as there:
        yield here, there


@contextlib.asynccontextmanager
async def session_pair(
    answer: Callable[[RequestContext], Awaitable[dict[str, Any]]] | None = None,
    *,
    mode: str = "legacy",
    encode: bool = True,
    client_options: SessionOptions | None = None,
    server_options: SessionOptions | None = None,
    over_sockets: bool = False,
    **client_arguments: Any,
) -> AsyncIterator[tuple[ClientSession, ScriptedServer]]:
    """Yield a client's session and a server's, negotiated and open."""
    async with socket_link_pair() if over_sockets else memory_link_pair(encode=encode) as (ours, theirs):
        server = ScriptedServer(theirs, answer, options=server_options)
        client_arguments.setdefault("capabilities", CLIENT_CAPABILITIES)
        client = ClientSession(*ours, options=client_options, **client_arguments)
        async with server, client:
            await (client.initialize() if mode == "legacy" else client.discover())
            if mode == "legacy":
                while not server.initialized:
                    await trio.lowlevel.checkpoint()
            yield client, server


@contextlib.asynccontextmanager
async def client_on_wire(**arguments: Any) -> AsyncIterator[tuple[ClientSession, Peer]]:
    """Yield a client's session, open in the legacy era, and the server's end of its link."""
    async with memory_link_pair() as (ours, theirs):
        wire = Peer(theirs, capabilities={"tools": {}, "logging": {}})
        arguments.setdefault("capabilities", CLIENT_CAPABILITIES)
        async with ClientSession(*ours, **arguments) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.initialize)
                await wire.greet()
                await wire.expect(Notification)
            yield client, wire


@contextlib.asynccontextmanager
async def server_on_wire(
    answer: Callable[[RequestContext], Awaitable[dict[str, Any]]] | None = None,
    *,
    open_it: bool = True,
    **arguments: Any,
) -> AsyncIterator[tuple[ScriptedServer, Peer]]:
    """Yield a server's session, open in the legacy era, and the client's end of its link."""
    async with memory_link_pair() as (ours, theirs):
        wire = Peer(ours, capabilities=CLIENT_CAPABILITIES)
        async with ScriptedServer(theirs, answer, **arguments) as server:
            if open_it:
                await wire.initialize()
                await trio.testing.wait_all_tasks_blocked()
                assert server.initialized
            yield server, wire
