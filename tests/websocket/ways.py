"""The ways in which a server speaks WebSocket: on its own, beside HTTP on each runner, and mounted in an ASGI server.

`Raw` is a client that does what no library would.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Self

import hypercorn.trio
import pytest
import trio
from hypercorn.config import Config
from pydantic import BaseModel
from pydantic_core import from_json, to_json
from wsproto.frame_protocol import FrameProtocol, Opcode
from wsproto.utilities import generate_accept_token

from tests.listening import local_config
from trio_mcp import Context, Server
from trio_mcp._nursery import background_nursery

__all__ = ["Name", "Raw", "Tools", "every_way", "on_our_runners", "serving", "tasks"]

OURS = ("alone", "h11", "httptools", "hypercorn")
"""The ways in which the connection is ours; otherwise another ASGI server speaks WebSocket."""

WAYS = (*OURS, "mounted")


def _marked(ways: tuple[str, ...]) -> list[Any]:
    # All but the parser of header fields is what h11 has.
    return [pytest.param(way, marks=pytest.mark.again) if way == "httptools" else way for way in ways]


every_way = pytest.mark.parametrize("way", _marked(WAYS))
on_our_runners = pytest.mark.parametrize("way", _marked(OURS))


@contextlib.asynccontextmanager
async def serving(
    server: Server,
    way: str = "alone",
    *,
    stop: trio.Event | None = None,
    config: Config | None = None,
    scope: trio.CancelScope | None = None,
    **settings: Any,
) -> AsyncIterator[str]:
    """Serve a server for a block, and yield the URL of its WebSocket; cancelling the scope cancels the server."""
    if way == "mounted":
        serve: Any = partial(_mount, server, settings)
    elif way == "alone":
        serve = partial(server.serve_websocket, port=0, config=config, shutdown=stop, **settings)
    else:
        settings = {"websocket_path": "/mcp", **settings}
        serve = partial(server.serve_http, port=0, runner=way, config=config, shutdown=stop, **settings)

    async def in_scope(task_status: trio.TaskStatus[Any]) -> None:
        with scope or trio.CancelScope():
            await serve(task_status=task_status)

    async with background_nursery() as nursery:
        with trio.fail_after(60):  # against a hang only
            url = await nursery.start(in_scope)
        if way == "mounted":
            url = f"{url[0]}/inside/mcp"
        yield "ws" + url.removeprefix("http").removeprefix("ws")


async def _mount(server: Server, settings: dict[str, Any], task_status: Any) -> None:
    async with server.asgi_app(**{"websocket_path": "/mcp", **settings}) as app:

        async def outer(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] == "lifespan":
                while (await receive())["type"] != "lifespan.shutdown":
                    await send({"type": "lifespan.startup.complete"})
                await send({"type": "lifespan.shutdown.complete"})
            else:
                assert scope["path"].startswith("/inside")
                await app({**scope, "root_path": "/inside"}, receive, send)

        given: Any = outer
        await hypercorn.trio.serve(given, local_config(), task_status=task_status)


class Raw:
    """One end of a WebSocket, frame by frame.

    Args:
        stream: The stream, after the handshake.
        ahead: What was read from it.
        client: Whether this is the client's end.
    """

    def __init__(self, stream: trio.abc.Stream, ahead: bytes = b"", *, client: bool = True) -> None:
        self.stream = stream
        self._client = client
        self._frames = FrameProtocol(client=client, extensions=[])
        self._frames.receive_bytes(ahead)

    @classmethod
    async def connect(cls, url: str, head: bytes | None = None, **fields: str) -> tuple[trio.SocketStream, bytes]:
        """Connect, send the head of a handshake, and return the stream and the head of the response."""
        host, _, path = url.removeprefix("ws://").partition("/")
        name, _, port = host.rpartition(":")
        stream = await trio.open_tcp_stream(name, int(port))
        given = {
            "Host": host,
            "Upgrade": "websocket",
            "Connection": "keep-alive, Upgrade",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Protocol": "other, mcp",
            **{name.replace("_", "-"): value for name, value in fields.items()},
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value)
        await stream.send_all(head or f"GET /{path} HTTP/1.1\r\n{lines}\r\n".encode())
        got = b""
        while b"\r\n\r\n" not in got and (data := await stream.receive_some()):
            got += data
        return stream, got

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, url: str, **fields: str) -> AsyncIterator[Self]:
        stream, got = await cls.connect(url, **fields)
        async with stream:
            assert got.startswith(b"HTTP/1.1 101"), got
            yield cls(stream, got.partition(b"\r\n\r\n")[2])

    @classmethod
    @contextlib.asynccontextmanager
    async def serving(cls, handler: Callable[[Self], Awaitable[object]]) -> AsyncIterator[str]:
        """Serve WebSockets with a function of the server's end, and yield their URL."""

        async def serve(stream: trio.SocketStream) -> None:
            async with stream:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += await stream.receive_some()
                (key,) = re.findall(rb"(?i)\r\nsec-websocket-key: (.*)\r\n", head)
                await stream.send_all(ACCEPTED % generate_accept_token(key))
                await handler(cls(stream, client=False))

        async with background_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, host="127.0.0.1"), serve, 0)
            yield f"ws://127.0.0.1:{listeners[0].socket.getsockname()[1]}/mcp"

    async def send(self, message: Any) -> None:
        await self.stream.send_all(self._frames.send_data(to_json(message).decode()))

    async def frame(self, opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool | None = None) -> None:
        """Send a frame, however wrong."""
        masked = self._client if masked is None else masked
        length = len(payload)
        head = bytes([opcode | (0x80 if fin else 0)])
        mask = 0x80 if masked else 0
        if length < 126:
            head += bytes([mask | length])
        elif length < 65536:
            head += bytes([mask | 126]) + length.to_bytes(2, "big")
        else:
            head += bytes([mask | 127]) + length.to_bytes(8, "big")
        await self.stream.send_all(head + bytes(4 if masked else 0) + payload)

    async def next(self) -> tuple[int, Any]:
        """Return the opcode and the payload of the next frame; 0 at the end of the connection."""
        while True:
            for found in self._frames.received_frames():
                return found.opcode, found.payload
            try:
                data = await self.stream.receive_some()
            except trio.BrokenResourceError:
                data = b""
            if not data:
                return 0, None
            self._frames.receive_bytes(bytes(data))

    async def message(self) -> Any:
        """Return the next message, which may come in pieces."""
        text = ""
        while True:
            opcode, payload = await self.next()
            if opcode == Opcode.PING:
                await self.frame(Opcode.PONG, payload)
                continue
            assert opcode == Opcode.TEXT, (opcode, payload)
            text += payload
            with contextlib.suppress(ValueError):
                return from_json(text)

    async def closed(self) -> tuple[int, str]:
        """Return the code and the reason of the close frame, after any other frames; 0 without one."""
        while True:
            opcode, payload = await self.next()
            if opcode == Opcode.CLOSE:
                return int(payload[0]), payload[1]
            if not opcode:
                return 0, ""

    async def ask(self, method: str, params: Any = None, id: int = 1) -> Any:
        """Send a request, and return the next message."""
        await self.send({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
        return await self.message()

    async def add(self, a: int) -> int:
        """Call the tool `add`, and return what it returns."""
        meta = {f"io.modelcontextprotocol/{name}": value for name, value in MODERN.items()}
        answer = await self.ask("tools/call", {"name": "add", "arguments": {"a": a, "b": 1}, "_meta": meta})
        found: int = answer["result"]["structuredContent"]["result"]
        return found


ACCEPTED = (
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Protocol: mcp\r\n"
    b"Sec-WebSocket-Accept: %b\r\n\r\n"
)

MODERN: dict[str, Any] = {
    "protocolVersion": "2026-07-28",
    "clientInfo": {"name": "raw", "version": "1"},
    "clientCapabilities": {},
}


class Tools:
    """A server whose tools do what they are told.

    Attributes:
        started: Set when `wait` has begun.
        go: Ends it.
        cancelled: Set when it is cancelled.
    """

    def __init__(self, **options: Any) -> None:
        self.server = Server("test", **options)
        self.started, self.go, self.cancelled = trio.Event(), trio.Event(), trio.Event()

        @self.server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool
        async def echo(text: str) -> str:
            return text

        @self.server.tool
        async def count(to: int, ctx: Context) -> int:
            for number in range(to):
                await ctx.report_progress(number + 1, to)
            return to

        @self.server.tool
        async def greet(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", Name)
            return f"Hello, {answer.data and answer.data.name}"

        @self.server.tool
        async def seen(ctx: Context) -> list[str]:
            metadata = ctx.transport_metadata
            return [metadata["headers"].get("X-User"), metadata["query"], metadata["client"][0]]

        @self.server.tool
        async def fail() -> None:
            raise ValueError("no")

        @self.server.tool
        async def block(seconds: float) -> str:
            time.sleep(seconds)  # noqa: ASYNC251 - what a handler should not do
            return "done"

        @self.server.tool
        async def wait() -> str:
            self.started.set()
            try:
                await self.go.wait()
            except trio.Cancelled:
                self.cancelled.set()
                raise
            return "done"


class Name(BaseModel):
    name: str


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living
