"""A request leaves no reference cycle: what it held is free at once, not when the collector runs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Literal

import pytest
import trio

from trio_mcp import Client, McpError, ProxyServer, Server, ToolError
from trio_mcp._nursery import background_nursery

CALLS = 20


def adder() -> Server:
    """A server with a tool that waits, so that its call takes the longest way."""
    server = Server("adder", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        await trio.lowlevel.checkpoint()
        return a + b

    @server.tool
    async def fail() -> None:
        raise ValueError("a fault of the tool")

    return server


@contextlib.asynccontextmanager
async def reached(way: str) -> AsyncIterator[Any]:
    """Yield what a client connects to."""
    async with background_nursery() as nursery:
        match way:
            case "memory":
                yield adder()
            case "proxy":
                yield ProxyServer(adder())
            case "HTTP" | "WebSocket" | "TCP":
                server = adder()
                serve = {"HTTP": server.serve_http, "WebSocket": server.serve_websocket, "TCP": server.serve_tcp}[way]
                yield await nursery.start(partial(serve, port=0))


async def call(client: Client) -> None:
    await client.call_tool("add", {"a": 1, "b": 2})


async def call_what_fails(client: Client) -> None:
    with contextlib.suppress(ToolError):
        await client.call_tool("fail")


async def ask_what_is_unknown(client: Client) -> None:
    with contextlib.suppress(McpError):
        await client.request("nothing/such", {})


async def give_up(client: Client) -> None:
    with trio.move_on_after(0):
        await client.call_tool("add", {"a": 1, "b": 2})


@pytest.mark.parametrize("request_", [call, call_what_fails, ask_what_is_unknown, give_up])
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("way", ["memory", "proxy", "HTTP", "WebSocket", "TCP"])
async def test_a_request_leaves_no_reference_cycle(way: str, mode: Literal["auto", "legacy"], request_: Any) -> None:
    async with reached(way) as target, Client(target, mode=mode) as client:
        for _ in range(3):
            await request_(client)  # the first ones make what stays
        gc.collect()
        gc.disable()
        try:
            for _ in range(CALLS):
                await request_(client)
            # A single object a request would be seen, and what else happened meanwhile is less.
            assert gc.collect() < CALLS
        finally:
            gc.enable()
