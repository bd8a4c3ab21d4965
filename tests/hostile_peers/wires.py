"""A hostile peer's end of each transport: it takes texts, sends any text, begins one, or closes."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import trio
import trio.testing
from wsproto.frame_protocol import Opcode

from tests.websocket.ways import Raw, serving
from trio_mcp import Server
from trio_mcp._nursery import background_nursery
from trio_mcp.jsonrpc.codec import decode, encode
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.low_level import Link, memory_link_pair, stream_link

__all__ = ["SERVED", "TO_SERVERS", "Lines", "Wire"]


class Lines:
    """Lines over any stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._buffer = b""

    async def receive(self) -> bytes:
        while b"\n" not in self._buffer:
            data = await self._stream.receive_some(65536)
            if not data:
                return b""
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    async def send(self, text: bytes) -> None:
        await self._stream.send_all(text + b"\n")

    async def begin(self, text: bytes) -> None:
        await self._stream.send_all(text)

    async def close(self) -> None:
        await trio.aclose_forcefully(self._stream)


class Memory:
    """Messages, without bytes; a text that is not a message arrives as what the codec makes of it."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def receive(self) -> bytes:
        try:
            return encode((await self._link.read.receive()).message)
        except trio.EndOfChannel:
            return b""

    async def send(self, text: bytes) -> None:
        await self._link.write.send(SessionMessage(decode(text)))

    async def begin(self, text: bytes) -> None:
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        await self._link.write.aclose()
        await self._link.read.aclose()


class Frames:
    """Text frames of a WebSocket."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw

    async def receive(self) -> bytes:
        text = ""
        while True:
            opcode, payload = await self._raw.next()
            if opcode == Opcode.PING:
                await self._raw.frame(Opcode.PONG, payload)
            elif opcode == Opcode.TEXT:
                text += payload
                with contextlib.suppress(ValueError):
                    if decode(text.encode()):
                        return text.encode()
            elif opcode in (0, Opcode.CLOSE):
                return b""

    async def send(self, text: bytes) -> None:
        await self._raw.frame(Opcode.TEXT, text)

    async def begin(self, text: bytes) -> None:
        await self._raw.frame(Opcode.TEXT, text, fin=False)

    async def close(self) -> None:
        await trio.aclose_forcefully(self._raw.stream)


Wire = Lines | Memory | Frames
Play = Callable[[Any], Awaitable[None]]


# --- servers that play -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def in_memory(play: Play) -> AsyncIterator[Any]:
    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Link]:
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            nursery.start_soon(play, Memory(theirs))
            yield ours

    yield connect


@contextlib.asynccontextmanager
async def on_a_stream(play: Play) -> AsyncIterator[Any]:
    """As over stdio, whose pipes a virtual clock can't wait for."""

    @contextlib.asynccontextmanager
    async def connect() -> AsyncIterator[Link]:
        ours, theirs = trio.testing.memory_stream_pair()
        async with background_nursery() as nursery:
            nursery.start_soon(play, Lines(theirs))
            async with stream_link(ours) as link:
                yield link

    yield connect


@contextlib.asynccontextmanager
async def over_tcp(play: Play) -> AsyncIterator[Any]:
    async with background_nursery() as nursery:
        serve = partial(trio.serve_tcp, lambda stream: play(Lines(stream)), 0, host="127.0.0.1")
        (listener,) = await nursery.start(serve)
        yield f"tcp://127.0.0.1:{listener.socket.getsockname()[1]}"


@contextlib.asynccontextmanager
async def over_a_unix_socket(play: Play) -> AsyncIterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        socket = trio.socket.socket(trio.socket.AF_UNIX)
        await socket.bind(f"{folder}/socket")
        socket.listen()
        listener = trio.SocketListener(socket)
        async with background_nursery() as nursery, listener:
            nursery.start_soon(trio.serve_listeners, lambda stream: play(Lines(stream)), [listener])
            yield f"unix:{folder}/socket"


@contextlib.asynccontextmanager
async def over_websocket(play: Play) -> AsyncIterator[Any]:
    async with Raw.serving(lambda raw: play(Frames(raw))) as url:
        yield url


SERVED: dict[str, Callable[[Play], contextlib.AbstractAsyncContextManager[Any]]] = {
    "memory": in_memory,
    "a stream": on_a_stream,
    "TCP": over_tcp,
    "Unix": over_a_unix_socket,
    "WebSocket": over_websocket,
}
"""By transport, what gives a target for a client; each connection plays."""


# --- clients that play -------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def to_memory(server: Server) -> AsyncIterator[Wire]:
    async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
        nursery.start_soon(server.serve, theirs)
        yield Memory(ours)


@contextlib.asynccontextmanager
async def to_a_stream(server: Server) -> AsyncIterator[Wire]:
    ours, theirs = trio.testing.memory_stream_pair()

    async def serve() -> None:
        async with stream_link(theirs) as link:
            await server.serve(link)

    async with background_nursery() as nursery:
        nursery.start_soon(serve)
        yield Lines(ours)


@contextlib.asynccontextmanager
async def to_tcp(server: Server) -> AsyncIterator[Wire]:
    async with background_nursery() as nursery:
        url = await nursery.start(partial(server.serve_tcp, port=0))
        stream = await trio.open_tcp_stream("127.0.0.1", int(url.rpartition(":")[2]))
        async with stream:
            yield Lines(stream)


@contextlib.asynccontextmanager
async def to_a_websocket(server: Server) -> AsyncIterator[Wire]:
    async with serving(server) as url, Raw.open(url) as raw:
        yield Frames(raw)


TO_SERVERS: dict[str, Callable[[Server], contextlib.AbstractAsyncContextManager[Wire]]] = {
    "memory": to_memory,
    "a stream": to_a_stream,
    "TCP": to_tcp,
    "WebSocket": to_a_websocket,
}
"""By transport, what serves a server and connects to it."""
