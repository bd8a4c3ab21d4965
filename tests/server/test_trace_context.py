"""The trace of a request reaches its handler, and goes on with the requests that the handler makes (SEP-414)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio

from tests.server.harness import both_eras, client_of
from trio_mcp import Client, Context, Server, TraceContext

TRACE = TraceContext("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", "a=1", "user=alice")
STARTED = TraceContext("00-33333333333333333333333333333333-4444444444444444-01")
OTHER = TraceContext("00-11111111111111111111111111111111-2222222222222222-00")


def inner_server(seen: list[TraceContext | None]) -> Server:
    server = Server("inner")

    @server.tool
    async def look(ctx: Context) -> None:
        assert TraceContext.current() == ctx.trace_context
        seen.append(ctx.trace_context)

    return server


def outer_server(inner: Server, revision: str) -> Server:
    """Return a server whose tools call another server, in every way a handler may."""

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[Client]:
        async with Client(inner, mode=revision) as client:
            yield client

    server = Server("outer", lifespan=lifespan)

    @server.tool
    async def own_task(ctx: Context[Client]) -> None:
        await ctx.state.call_tool("look")

    @server.tool
    async def child_tasks(ctx: Context[Client]) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(ctx.state.call_tool, "look")

    @server.tool
    def sync_thread(ctx: Context[Client]) -> None:
        trio.from_thread.run(ctx.state.call_tool, "look")

    @server.tool
    async def client_of_its_own() -> None:
        async with Client(inner, mode=revision) as client:
            await client.call_tool("look")

    return server


@both_eras
@pytest.mark.parametrize("way", ["own_task", "child_tasks", "sync_thread", "client_of_its_own"])
async def test_a_server_that_calls_another_passes_the_trace_of_the_request_on(revision: str, way: str) -> None:
    """It never passes on the one in which it was started itself."""
    seen: list[TraceContext | None] = []
    with STARTED.use():
        async with client_of(outer_server(inner_server(seen), revision), revision) as client:
            with TRACE.use():
                await client.call_tool(way)
            await client.call_tool(way, meta=OTHER.to_meta())
            await client.request("tools/call", {"name": way, "_meta": {"traceparent": "broken"}})
    count = 2 if way == "child_tasks" else 1
    assert seen == [TRACE] * count + [OTHER] * count + [None] * count
