"""A server with tools, and a real client of it in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema_rs
import pytest
import trio

from tests.peer import Peer, settle
from trio_mcp import Client, Server, types
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types import meta
from trio_mcp.types.versions import REVISIONS

every_revision = pytest.mark.parametrize("revision", REVISIONS)
LEGACY, MODERN = "2025-11-25", "2026-07-28"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
both_eras = pytest.mark.parametrize("revision", [LEGACY, MODERN])


def server_with(*tools: Callable[..., Any], park_input: bool = False, **options: Any) -> Server:
    server = Server("test", **options)
    for function in tools:
        server.add_tool(function, park_input=park_input)
    return server


@contextlib.asynccontextmanager
async def client_of(server: Server, revision: str = MODERN, **options: Any) -> AsyncIterator[Client]:
    with trio.fail_after(30):  # against a hang only
        async with Client(server, mode=revision, **options) as client:
            yield client


def listed(server: Server, revision: str = MODERN) -> list[types.Tool]:
    """Return the tools that a client sees; starts its own run of Trio, so that a sync test can call it too."""

    async def ask() -> list[types.Tool]:
        async with client_of(server, revision) as client:
            return [tool async for tool in client.iter_tools()]

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(trio.run, ask).result()


def tool_of(function: Callable[..., Any], **details: Any) -> types.Tool:
    """Return the definition of a function as a tool, its schemas checked against the metaschema of 2020-12."""
    server = Server("test")
    server.add_tool(function, **{"name": "tool", **details})
    (definition,) = listed(server)
    for schema in filter(None, (definition.input_schema, definition.output_schema)):
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
    return definition


async def call(function: Callable[..., Any], arguments: dict[str, Any], revision: str = MODERN, **details: Any) -> Any:
    """Offer a function as a tool and call it once."""
    server = Server("test")
    server.add_tool(function, **{"name": "tool", **details})
    async with client_of(server, revision) as client:
        return await client.call_tool("tool", arguments)


async def give_up(started: Callable[[], Awaitable[object]], call: Callable[..., Any], *arguments: Any) -> None:
    """Call, and cancel the call once it has started."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call, *arguments)
        await started()
        nursery.cancel_scope.cancel()


def text_of(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def news_of(peer: Peer) -> list[tuple[str, Any, str | None]]:
    """Return the notifications that have arrived, each as its kind, subscription and URI."""
    await settle()
    return [_told(message) for message in peer.arrived()]


def _told(message: Any) -> tuple[str, Any, str | None]:
    assert isinstance(message, Notification), message
    params = message.params or {}
    return message.method, (params.get("_meta") or {}).get(meta.SUBSCRIPTION_ID), params.get("uri")
