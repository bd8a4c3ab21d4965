"""A modern server whose tools are answered by hand, one answer per tool, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import trio

from tests.http_peer import DISCOVERED, Asked, HttpPeer, event, giving, peer, result, streaming
from tests.transports.support import DEADLINE, kept_connections
from trio_mcp import Client

TEXT = {"resultType": "complete", "content": [{"type": "text", "text": "ok"}]}

discovered = giving(DISCOVERED)
ok = giving(TEXT)
streamed = streaming(lambda asked: b": hello\n\n" + event(result(asked.id, TEXT)))
endless_stream = streaming(b": still here\n\n", then="gone")
cut_events = streaming(lambda asked: event(result(asked.id, TEXT))[:-1], then="abort")


class Calls:
    """Responses to calls of tools, by the tool's name."""

    def __init__(self, **tools: Any) -> None:
        self.tools = tools

    async def __call__(self, asked: Asked) -> None:
        await self.tools.get(asked.body["params"]["name"], ok)(asked)


async def cut_json(asked: Asked) -> None:
    await asked.raw(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{"jsonrpc":')
    await asked.abort()


@contextlib.asynccontextmanager
async def serving(handlers: Mapping[str, Any] | None = None) -> AsyncIterator[HttpPeer]:
    """Run a server within the block, which must end in time."""
    with trio.fail_after(DEADLINE):
        async with peer(handlers) as server:
            yield server


async def connect(target: Any, **options: Any) -> None:
    """Connect to what can't be connected to."""
    async with Client(target, **options):
        raise AssertionError("it connected")


@contextlib.asynccontextmanager
async def modern(call: Any = None, **tools: Any) -> AsyncIterator[tuple[HttpPeer, Client]]:
    """Connect a client to a modern server that answers calls like this or with these tools; other tools return "ok"."""
    handlers = {"server/discover": discovered, "tools/call": call or Calls(**tools)}
    async with serving(handlers) as server, Client(server.url) as client:
        yield server, client


async def works(client: Client) -> None:
    assert (await client.call_tool("fine")).content[0].text == "ok"  # type: ignore[union-attr]


async def over(server: HttpPeer, http_client: httpx.AsyncClient, tasks: int) -> None:
    """Wait until no exchange is open on either side, and only the tasks of idle connections are left.

    A connection may still wait to be accepted, only to be found closed; one that never ends runs into the safety net.
    """
    kept = kept_connections(http_client)
    statistics = trio.lowlevel.current_statistics
    while server.live > kept or statistics().tasks_living - server.live > tasks:  # noqa: ASYNC110
        await trio.sleep(0.001)
