"""One run of a server: from the entry of its lifespan to its exit. It may have one client (stdio) or many."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import attrs
import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.server.connection import Connection

if TYPE_CHECKING:
    from trio_mcp.link import Link
    from trio_mcp.server.core import ServerCore

__all__ = ["Serving", "serving"]


@attrs.define(eq=False)
class Serving:
    """What all clients of one run of a server share.

    Attributes:
        server: The server.
        state: What its lifespan yielded; None without a lifespan.
        nursery: For what outlives a request and a connection, but not the run. It is cancelled before the lifespan
            ends.
        connections: The clients that are connected.
    """

    server: ServerCore
    state: Any
    nursery: trio.Nursery
    connections: set[Connection] = attrs.field(factory=set, init=False)

    async def serve_link(self, link: Link) -> None:
        """Serve one link until the client closes it. When cancelled, so are its handlers, and the link is closed."""
        connection = Connection(self, link)
        self.connections.add(connection)
        try:
            async with connection, background_nursery() as nursery:
                nursery.start_soon(connection.send_announcements)
                await connection.wait_closed()
        finally:
            self.connections.discard(connection)

    def announce(self, method: str, uri: str | None = None) -> None:
        """Tell every client of a change, from any thread. See `Connection.announce`."""
        for connection in tuple(self.connections):
            connection.announce(method, uri)


@contextlib.asynccontextmanager
async def serving(server: ServerCore) -> AsyncIterator[Serving]:
    """Run a server: its lifespan, and within it a nursery."""
    async with contextlib.AsyncExitStack() as stack:
        state = None if server.lifespan is None else await stack.enter_async_context(server.lifespan(server))
        nursery = await stack.enter_async_context(background_nursery())
        run = Serving(server, state, nursery)
        server._servings.add(run)
        try:
            yield run
        finally:
            server._servings.discard(run)
