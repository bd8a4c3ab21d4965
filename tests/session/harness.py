"""Sessions under test: two real ones back to back, or one whose peer is the test itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio
import trio.lowlevel

from trio_mcp import ClientSession, Link, ServerSession, SessionMessage, SessionOptions, memory_link_pair
from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.jsonrpc.messages import Incoming, Notification, Request, Response
from trio_mcp.session import RequestContext

CLIENT_CAPABILITIES: dict[str, Any] = {"roots": {}, "sampling": {}, "elicitation": {}}


def identity(**capabilities: Any) -> ServerIdentity:
    declared = capabilities or {"tools": {}, "logging": {}}
    return ServerIdentity(info={"name": "test", "version": "1"}, capabilities=lambda revision: declared)


class ScriptedServer(ServerSession):
    """Answers every request with the function given; without one with an echo of the parameters."""

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
async def session_pair(
    answer: Callable[[RequestContext], Awaitable[dict[str, Any]]] | None = None,
    *,
    mode: str = "legacy",
    encode: bool = True,
    client_options: SessionOptions | None = None,
    server_options: SessionOptions | None = None,
    **client_arguments: Any,
) -> AsyncIterator[tuple[ClientSession, ScriptedServer]]:
    """A client's session and a server's, negotiated and open."""
    async with memory_link_pair(encode=encode) as (ours, theirs):
        server = ScriptedServer(theirs, answer, options=server_options)
        client_arguments.setdefault("capabilities", CLIENT_CAPABILITIES)
        client = ClientSession(*ours, options=client_options, **client_arguments)
        async with server, client:
            await (client.initialize() if mode == "legacy" else client.discover())
            if mode == "legacy":
                while not server.initialized:
                    await trio.lowlevel.checkpoint()
            yield client, server


class Wire:
    """The other end of a link, worked by hand."""

    def __init__(self, link: Link) -> None:
        self.read, self.write = link
        self.heard: list[Notification] = []  # where a script reads

    async def receive(self) -> Incoming:
        return (await self.read.receive()).message

    async def request(self) -> Request:
        message = await self.receive()
        assert isinstance(message, Request), message
        return message

    async def send(self, message: Incoming) -> None:
        await self.write.send(SessionMessage(message))

    def received_nowait(self) -> list[Incoming]:
        """Everything that has arrived."""
        assert isinstance(self.read, trio.MemoryReceiveChannel)
        found: list[Incoming] = []
        while True:
            try:
                found.append(self.read.receive_nowait().message)
            except (trio.WouldBlock, trio.EndOfChannel):
                return found


INITIALIZE_RESULT: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}, "logging": {}},
    "serverInfo": {"name": "wire", "version": "1"},
}


@contextlib.asynccontextmanager
async def client_on_wire(**arguments: Any) -> AsyncIterator[tuple[ClientSession, Wire]]:
    """A client's session, open in the legacy era, and the server's end of its link."""
    async with memory_link_pair() as (ours, theirs):
        wire = Wire(theirs)
        arguments.setdefault("capabilities", CLIENT_CAPABILITIES)
        async with ClientSession(*ours, **arguments) as client:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.initialize)
                request = await wire.request()
                await wire.send(Response(request.id, INITIALIZE_RESULT))
                assert isinstance(await wire.receive(), Notification)
            yield client, wire


@contextlib.asynccontextmanager
async def server_on_wire(
    answer: Callable[[RequestContext], Awaitable[dict[str, Any]]] | None = None,
    *,
    open_it: bool = True,
    **arguments: Any,
) -> AsyncIterator[tuple[ScriptedServer, Wire]]:
    """A server's session, open in the legacy era, and the client's end of its link."""
    async with memory_link_pair() as (ours, theirs):
        wire = Wire(ours)
        async with ScriptedServer(theirs, answer, **arguments) as server:
            if open_it:
                await wire.send(
                    Request(
                        "init",
                        "initialize",
                        {
                            "protocolVersion": "2025-11-25",
                            "capabilities": CLIENT_CAPABILITIES,
                            "clientInfo": {"name": "wire", "version": "1"},
                        },
                    )
                )
                assert isinstance(await wire.receive(), Response)
                await wire.send(Notification("notifications/initialized"))
                await trio.testing.wait_all_tasks_blocked()
                assert server.initialized
            yield server, wire
