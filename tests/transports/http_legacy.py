"""A server of the legacy era whose requests are answered by hand, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import trio

from tests.http_peer import INITIALIZED, Asked, HttpPeer, event, giving, plain, result
from tests.transports.http_calls import serving
from trio_mcp import Backoff, Client, SessionOptions
from trio_mcp.low_level import streamable_http_client

TEXT = {"content": [{"type": "text", "text": "ok"}]}
QUICK = Backoff(first=0.001, longest=0.002, attempts=3)
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

ok = giving(TEXT)


@contextlib.asynccontextmanager
async def legacy(
    handlers: dict[str, Any] | None = None, *, reconnect: Backoff = QUICK, **options: Any
) -> AsyncIterator[tuple[HttpPeer, Client]]:
    async with serving({"tools/call": ok, **(handlers or {})}) as server:

        def connect() -> Any:
            return streamable_http_client(server.url, reconnect=reconnect)

        async with Client(connect, mode="legacy", **options) as client:
            yield server, client


async def text(client: Client, tool: str = "t", **options: Any) -> str:
    return str((await client.call_tool(tool, **options)).content[0].text)  # type: ignore[union-attr]


class Faults:
    """What `on_error` of a client is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.told = trio.Event()
        self.options = SessionOptions(on_error=self._note)

    def _note(self, fault: Exception) -> None:
        self.said.append(str(fault))
        self.told.set()


class Restarting:
    """A server that forgets its session when told to."""

    def __init__(self) -> None:
        self.number = 1
        self.refuse_all = False

    @property
    def session(self) -> str:
        return f"s{self.number}"

    async def initialize(self, asked: Asked) -> None:
        await asked.result(INITIALIZED, Mcp_Session_Id=self.session)

    async def call(self, asked: Asked) -> None:
        await (ok(asked) if self.knows(asked) else asked.status(404))

    def knows(self, asked: Asked) -> bool:
        return not self.refuse_all and asked.headers.get("mcp-session-id", self.session) == self.session

    def handlers(self) -> dict[str, Any]:
        return {"initialize": self.initialize, "tools/call": self.call, "DELETE": plain(204)}


OLD_ANSWERS: dict[str, dict[str, Any]] = {
    "initialize": {**INITIALIZED, "protocolVersion": "2024-11-05"},
    "tools/list": {"tools": []},
    "tools/call": TEXT,
}


class OldServer:
    """A server of 2024-11-05: GET opens a stream, and what is POSTed to the path that it names is answered there."""

    def __init__(self) -> None:
        self.streams: dict[str, Asked] = {}
        self.sending = trio.Lock()

    def handlers(self) -> dict[str, Any]:
        others = ("server/discover", "notifications/initialized", "notifications/cancelled", "prompts/list")
        return {"GET": self.get, **dict.fromkeys((*OLD_ANSWERS, *others), self.post)}

    async def get(self, asked: Asked) -> None:
        number = str(asked.connection)
        self.streams[number] = asked
        await asked.events(f"event: endpoint\ndata: /messages?session={number}\n\n".encode(), then="gone")
        del self.streams[number]

    async def post(self, asked: Asked) -> None:
        _, _, number = asked.path.partition("/messages?session=")
        await asked.status(202 if number else 405)
        stream = self.streams.get(number)
        if stream is not None and asked.rpc in OLD_ANSWERS:
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async with self.sending:
                    await stream.chunk(event(result(asked.id, OLD_ANSWERS[asked.rpc])))
