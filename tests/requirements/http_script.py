"""A scripted server over HTTP: it sees messages on a link, and need not know how they arrive.

What it sends goes where the specification wants it (2025-11-25 and 2026-07-28 `basic/transports`): the answer to a
request on the response to its POST, and so does the progress of a request and what belongs to a subscription; all else
on the oldest response that is still open, or on that to the GET, or waits for one. A client that leaves a
modern response has cancelled its request, so the script gets the notification that says so on any other link.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import attrs
import trio

from tests.http_peer import Asked, peer
from tests.peer import Peer
from trio_mcp import Link, SessionMessage
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.codec import encode, parse
from trio_mcp.jsonrpc.messages import ErrorResponse, Incoming, Notification, Request, Response
from trio_mcp.types import meta

__all__ = ["scripted_http"]

Script = Callable[[Peer], Awaitable[None]]


@contextlib.asynccontextmanager
async def scripted_http(script: Script) -> AsyncIterator[str]:
    """Serve a script for one client, and return the URL."""
    inbound, read = trio.open_memory_channel[SessionMessage](64)
    write, outbound = trio.open_memory_channel[SessionMessage](64)
    endpoint = _Endpoint(inbound)
    async with peer() as server, background_nursery() as nursery:
        server.otherwise = endpoint.handle
        nursery.start_soon(endpoint.send_all, outbound)
        nursery.start_soon(script, Peer(Link(read, write)))
        yield server.url


@attrs.define(eq=False)
class _Open:
    """A response that can carry messages."""

    asked: Asked
    events: bool = False
    done: trio.Event = attrs.Factory(trio.Event)

    async def event(self, message: Incoming) -> None:
        if not self.events:
            await self.asked.begin_events()
            self.events = True
        await self.asked.chunk(b"event: message\ndata: " + encode(message) + b"\n\n")

    async def end(self, message: Response | ErrorResponse, **headers: str) -> None:
        if self.events:
            await self.event(message)
            await self.asked.end_events()
        else:
            await self.asked.status(200, encode(message), **headers)
        self.done.set()


@attrs.define(eq=False)
class _Endpoint:
    inbound: trio.MemorySendChannel[SessionMessage]
    posts: dict[object, _Open] = attrs.Factory(dict)
    stream: _Open | None = None
    opened: trio.lowlevel.ParkingLot = attrs.Factory(trio.lowlevel.ParkingLot)

    async def handle(self, asked: Asked) -> None:
        """Serve one HTTP request."""
        if asked.method == "GET":
            await self._hold(asked)
        elif asked.body is None:
            await asked.status(200)  # DELETE
        else:
            message = parse(asked.body)
            if isinstance(message, Request):
                await self._answer(asked, message)
            else:
                await self.inbound.send(SessionMessage(message))
                await asked.status(202)

    async def _hold(self, asked: Asked) -> None:
        self.stream = _Open(asked, events=True)
        await asked.begin_events()
        self.opened.unpark_all()
        try:
            await asked.gone()
        finally:
            self.stream = None

    async def _answer(self, asked: Asked, request: Request) -> None:
        post = self.posts[request.id] = _Open(asked)
        self.opened.unpark_all()
        await self.inbound.send(SessionMessage(request))
        left = await _first(post.done.wait, asked.gone)
        del self.posts[request.id]
        if left and meta.PROTOCOL_VERSION in (request.params or {}).get("_meta", {}):
            notice = Notification("notifications/cancelled", {"requestId": request.id})
            await self.inbound.send(SessionMessage(notice))

    async def send_all(self, outbound: trio.MemoryReceiveChannel[SessionMessage]) -> None:
        """Send the script's messages."""
        async for item in outbound:
            message = item.message
            with contextlib.suppress(trio.BrokenResourceError):  # the client has left: the script is not told
                if isinstance(message, (Response, ErrorResponse)) and message.id in self.posts:
                    await self.posts[message.id].end(message, **_headers(message))
                else:
                    await (await self._place(message)).event(message)

    async def _place(self, message: Incoming) -> _Open:
        params = message.params if isinstance(message, (Request, Notification)) and message.params else {}
        own = params.get("progressToken", params.get("_meta", {}).get(meta.SUBSCRIPTION_ID))
        while True:
            live = {request_id: post for request_id, post in self.posts.items() if not post.done.is_set()}
            if own in live:
                return live[own]
            if live:
                return next(iter(live.values()))
            if self.stream is not None:
                return self.stream
            await self.opened.park()


def _headers(message: Response | ErrorResponse) -> dict[str, str]:
    opens = isinstance(message, Response) and "protocolVersion" in message.result
    return {"Mcp_Session_Id": "scripted"} if opens else {}


async def _first(done: Callable[[], Awaitable[object]], gone: Callable[[], Awaitable[object]]) -> bool:
    """Wait for one of two; return whether it was the second."""
    left = False

    async def wait(until: Callable[[], Awaitable[object]], second: bool) -> None:
        nonlocal left
        await until()
        left = left or second
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, done, False)
        nursery.start_soon(wait, gone, True)
    return left
