"""The official Python SDK in one process on Trio, as it comes and with every message encoded to bytes and back.

As it comes, its in-memory client encodes nothing: ``mode="legacy"`` passes message objects, and the modern mode calls
the server's handlers directly. The encoded variants pass the same messages through our own transport, which encodes and
decodes exactly as the SDK's stdio transport does, but inside ``send`` and ``receive``: it has no more tasks, pipes,
threads or buffers than the SDK's own in-memory streams.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

MODERN_VERSION = "2026-07-28"

# variant -> (mode of its Client, whether messages are encoded)
VARIANTS = {
    "legacy": ("legacy", False),
    "modern": ("auto", False),
    "legacy-encoded": ("legacy", True),
    "modern-encoded": (MODERN_VERSION, True),
}


def build_server() -> MCPServer:
    server = MCPServer("benchmark", version="1.0.0")

    @server.tool()
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    return server


class _Stream:
    """The part that both of the SDK's stream protocols share."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()


class EncodingStream(_Stream):
    """A write stream that sends each message as bytes."""

    _stream: MemoryObjectSendStream[bytes]

    async def send(self, item: SessionMessage) -> None:
        text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        await self._stream.send(text.encode())


class DecodingStream(_Stream):
    """A read stream that decodes messages from bytes."""

    _stream: MemoryObjectReceiveStream[bytes]

    async def receive(self) -> SessionMessage:
        return SessionMessage(jsonrpc_message_adapter.validate_json(await self._stream.receive(), by_name=False))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None


@asynccontextmanager
async def encoded_transport(server: MCPServer) -> AsyncIterator[tuple[DecodingStream, EncodingStream]]:
    """Run `server` on encoded streams and yield the client's ends, as the SDK's `Transport` contract requires."""
    lowlevel = server._lowlevel_server  # noqa: SLF001 - the SDK gives no other way to its transport
    request_send, request_receive = anyio.create_memory_object_stream[bytes](64)
    answer_send, answer_receive = anyio.create_memory_object_stream[bytes](64)

    async def serve() -> None:
        read, write = DecodingStream(request_receive), EncodingStream(answer_send)
        await lowlevel.run(read, write, lowlevel.create_initialization_options())

    async with anyio.create_task_group() as tasks, request_send, answer_receive:
        tasks.start_soon(serve)
        yield DecodingStream(answer_receive), EncodingStream(request_send)
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def connect(variant: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` through the SDK's client and server."""
    mode, encoded = VARIANTS[variant]
    server = build_server()
    target: Any = encoded_transport(server) if encoded else server
    async with Client(target, mode=mode) as client:

        async def call(a: int, b: int) -> int:
            result = await client.call_tool("add", {"a": a, "b": b})
            return result.structured_content["result"]  # type: ignore[no-any-return]

        yield call
