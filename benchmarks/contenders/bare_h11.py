"""The bare limit of a client over HTTP on Trio: h11 on persistent connections, pydantic to parse, and nothing else."""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import h11
import trio
from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


class Connection:
    """A connection that carries one exchange after the other."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._h11 = h11.Connection(h11.CLIENT)

    async def post(self, host: str, path: str, content: bytes) -> bytes:
        fields = {**HEADERS, "Host": host, "Content-Length": str(len(content))}
        data = self._h11.send(h11.Request(method="POST", target=path, headers=[*fields.items()]))
        await self.stream.send_all(data + self._h11.send(h11.Data(content)) + self._h11.send(h11.EndOfMessage()))
        body = b""
        while type(event := await self._next_event()) is not h11.EndOfMessage:
            if type(event) is h11.Data:
                body += event.data
        self._h11.start_next_cycle()
        return body

    async def _next_event(self) -> Any:
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            self._h11.receive_data(await self.stream.receive_some(65536))
        return event


@asynccontextmanager
async def connect(variant: str, url: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` at a URL; there is one variant only."""
    del variant
    ids = count()
    parts = urlsplit(url)
    idle: list[Connection] = []

    async def call(a: int, b: int) -> int:
        params = {"name": "add", "arguments": {"a": a, "b": b}}
        content = to_json({"jsonrpc": "2.0", "id": next(ids), "method": "tools/call", "params": params})
        if not idle:
            idle.append(Connection(await trio.open_tcp_stream(parts.hostname or "", parts.port or 80)))
        connection = idle.pop()
        body = await connection.post(parts.netloc, parts.path, content)
        idle.append(connection)
        return from_json(body)["result"]["structuredContent"]["result"]  # type: ignore[no-any-return]

    try:
        yield call
    finally:
        for connection in idle:
            await connection.stream.aclose()
