"""Streamable HTTP and HTTP+SSE as a pair of links: the real client's, and one made of what the real server is fed.

A server over HTTP has no link: each POST feeds a session. Here the session hands on what it is fed after the handshake,
and what is sent goes to where the session's own messages would go.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.contract.transports import Given, register
from trio_mcp import Notification, Server
from trio_mcp._nursery import background_nursery, start
from trio_mcp.jsonrpc import Request
from trio_mcp.link import BUFFER
from trio_mcp.low_level import Link, SessionMessage, sse_client, streamable_http_client
from trio_mcp.server.base_server import core_of

HANDSHAKE = Request(
    "handshake",
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "check", "version": "1"}},
)
INITIALIZED = Notification("notifications/initialized")


class _Reads(trio.abc.ReceiveChannel[SessionMessage]):
    """The messages that a session was fed; those that wait count as under way, as those of a real session do."""

    def __init__(self, waiting: trio.MemoryReceiveChannel[tuple[SessionMessage, Any]]) -> None:
        self._waiting = waiting

    async def receive(self) -> SessionMessage:
        item, hold = await self._waiting.receive()
        if hold is not None:
            hold.release()
        return item

    async def aclose(self) -> None:
        await self._waiting.aclose()


class _Fed:
    """A server's session that hands on what it is fed, once the handshake is over."""

    def __init__(self, session: Any, sink: Any, give: Callable[[Given], Awaitable[None]]) -> None:
        self._session = session
        self._sink = sink
        self._give = give
        # The endpoint's ledger bounds what waits.
        self._fed, waiting = trio.open_memory_channel[tuple[SessionMessage, Any]](math.inf)
        write, self._outgoing = trio.open_memory_channel[SessionMessage](BUFFER)
        self._given = Given(Link(_Reads(waiting), write))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def begin(self, nursery: trio.Nursery) -> None:
        self._session.begin(nursery)
        nursery.start_soon(self._send)

    def feed(self, message: Any, metadata: Any = None, hold: Any = None) -> None:
        if message in (INITIALIZED, HANDSHAKE):
            self._session.feed(message, metadata, hold)
        else:
            if hold is not None:
                hold.keep()
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                self._fed.send_nowait((SessionMessage(message, metadata=metadata), hold))

    async def _send(self) -> None:
        async with self._outgoing:
            await self._give(self._given)
            async for item in self._outgoing:
                await self._sink.room(item.related_request_id)
                self._sink.put(item)

    def finish(self) -> None:
        self._session.finish()
        for channel in (self._fed, self._given.link.write, self._outgoing):
            channel.close()  # type: ignore[attr-defined]


class _Run:
    """A run of a server, but for its sessions."""

    def __init__(self, run: Any, give: Callable[[Given], Awaitable[None]]) -> None:
        self._run = run
        self._give = give

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def connect(self, sink: Any, *, lasting: bool) -> _Fed:
        return _Fed(self._run.connect(sink, lasting=lasting), sink, self._give)


class _Giving(Server):
    """A server that gives the links of its sessions away."""

    def __init__(self) -> None:
        super().__init__("giving")
        self.give, self.links = trio.open_memory_channel[Given](0)

        core = core_of(self)
        core.open_run = partial(self._open_run, core.open_run)  # type: ignore[method-assign]

    @contextlib.asynccontextmanager
    async def _open_run(self, open_run: Callable[[], Any]) -> AsyncIterator[Any]:
        async with open_run() as run:
            yield _Run(run, self.give.send)


@contextlib.asynccontextmanager
async def session(
    serve: Callable[..., Awaitable[None]], connect: Callable[[str], Any]
) -> AsyncIterator[tuple[Link, Link]]:
    """Run a server, open a session with it, and yield both ends after the handshake."""
    server = _Giving()
    async with background_nursery() as nursery:
        url = await start(nursery, partial(serve, server))
        async with connect(url) as client:
            nursery.start_soon(client.write.send, SessionMessage(HANDSHAKE))
            given = await server.links.receive()
            await client.read.receive()
            await client.write.send(SessionMessage(INITIALIZED))
            yield client, given.link


HTTP: dict[str, Callable[[Path], dict[str, Any]]] = {}
"""By name: what `check_transport` is given."""

NO_LINK = {"unordered", "no_backpressure", "no_end"}


@register(HTTP, "Streamable HTTP, legacy era")
def streamable(_: Path) -> dict[str, Any]:
    serve = partial(Server.serve_http, port=0, runner="h11")
    return {"pair": partial(session, serve, streamable_http_client), "traits": NO_LINK, "max_waiting": 8 * 1024 * 1024}


@register(HTTP, "HTTP+SSE")
def sse(_: Path) -> dict[str, Any]:
    serve = partial(Server.serve_http, port=0, runner="h11", path=None, sse_path="/sse")
    return {"pair": partial(session, serve, sse_client), "traits": NO_LINK, "max_waiting": 8 * 1024 * 1024}
