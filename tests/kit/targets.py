"""Servers for the tests of the engine, which do what they are told, over lines in memory."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import trio
import trio.testing

from trio_mcp._nursery import background_nursery
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.lines import stream_wire
from trio_mcp.conformance.wires.targets import WireTarget
from trio_mcp.conformance.wires.wire import Wire

__all__ = ["Connection", "over_lines", "plain"]

NUMBER = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}
TOOL = {"name": "count", "inputSchema": NUMBER, "annotations": {"readOnlyHint": True}}


@attrs.define
class Connection:
    """The server's side of a connection.

    Attributes:
        stream: Its stream.
        heard: The messages that came.
    """

    stream: trio.abc.Stream
    heard: list[dict[str, Any]] = attrs.Factory(list)

    async def say(self, message: dict[str, Any]) -> None:
        """Send a message."""
        await self.stream.send_all(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")

    async def answer(self, message: dict[str, Any], result: dict[str, Any]) -> None:
        """Answer a request."""
        await self.say({"id": message["id"], "result": result})


Handle = Callable[[Connection, dict[str, Any]], Awaitable[None]]


async def plain(connection: Connection, message: dict[str, Any]) -> None:
    """Answer as a server of one tool should."""
    results = {
        "initialize": {
            "protocolVersion": message.get("params", {}).get("protocolVersion"),
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "plain", "version": "1"},
        },
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": []},
        "ping": {},
    }
    if "id" not in message:
        return
    if message["method"] in results:
        await connection.answer(message, results[message["method"]])
    else:
        await connection.say({"id": message["id"], "error": {"code": -32601, "message": "unknown"}})


def read(line: bytes) -> dict[str, Any] | None:
    """Return the request or notification in a line; everything else is ignored."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    usable = isinstance(message, dict) and isinstance(message.get("method"), str)
    return message if usable and isinstance(message.get("params", {}), dict) else None


def over_lines(handle: Handle, *, on_open: Callable[[int], object] = lambda number: None) -> WireTarget:
    """Return a target whose server calls a function for each message."""

    async def serve(stream: trio.abc.Stream) -> None:
        connection = Connection(stream)
        rest = b""
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\n")
                for message in filter(None, map(read, lines)):
                    connection.heard.append(message)
                    await handle(connection, message)

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[Wire]:
        on_open(number)
        ours, theirs = trio.testing.memory_stream_pair()
        async with background_nursery() as nursery:
            nursery.start_soon(serve, theirs)
            async with stream_wire(tape, number, "memory", ours) as wire:
                yield wire

    return WireTarget("plain", opened)
