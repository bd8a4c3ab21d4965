"""What version 2 of the official Python client has no transports for: WebSocket, and lines over a socket."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import urlsplit

import anyio
import mcp_types
import trio
import trio_websocket
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage

Texts = tuple[AsyncIterator[str], Callable[[str], Awaitable[None]]]
"""The texts of the messages that come, and a function that sends one."""


@contextlib.asynccontextmanager
async def over_websocket(url: str) -> AsyncIterator[Texts]:
    async def texts(socket: trio_websocket.WebSocketConnection) -> AsyncIterator[str]:
        with contextlib.suppress(trio_websocket.ConnectionClosed):
            while True:
                yield await socket.get_message()

    async with trio_websocket.open_websocket_url(url, subprotocols=["mcp"]) as socket:
        assert socket.subprotocol == "mcp"
        yield texts(socket), socket.send_message


@contextlib.asynccontextmanager
async def over_socket(url: str) -> AsyncIterator[Texts]:
    async def texts(stream: trio.SocketStream) -> AsyncIterator[str]:
        buffer = b""
        async for chunk in stream:
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                yield line.decode()

    parts = urlsplit(url)
    if parts.scheme == "unix":
        stream = await trio.open_unix_socket(parts.path)
    else:
        stream = await trio.open_tcp_stream(parts.hostname, parts.port)
    async with stream:
        yield texts(stream), lambda text: stream.send_all(text.encode() + b"\n")


@contextlib.asynccontextmanager
async def official_transport(url: str) -> AsyncIterator[TransportStreams]:
    """Connect to the URL of a way."""
    connect = over_websocket if url.startswith("ws:") else over_socket
    into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, out = anyio.create_memory_object_stream[SessionMessage](0)

    async def take(texts: AsyncIterator[str]) -> None:
        with contextlib.suppress(anyio.BrokenResourceError):
            async with into, contextlib.aclosing(texts):
                async for text in texts:
                    await into.send(
                        SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(text, by_name=False))
                    )

    async def give(send: Callable[[str], Awaitable[None]]) -> None:
        async with out:
            async for message in out:
                await send(message.message.model_dump_json(by_alias=True, exclude_unset=True))

    async with connect(url) as (texts, send), trio.open_nursery() as nursery, read, write:
        nursery.start_soon(take, texts)
        nursery.start_soon(give, send)
        yield read, write
        nursery.cancel_scope.cancel()
