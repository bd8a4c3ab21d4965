"""A server of the legacy era whose requests are answered by hand, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import trio

from tests.http_peer import INITIALIZED, Asked, HttpPeer, giving, peer
from tests.transports.support import DEADLINE
from trio_mcp import Backoff, Client, streamable_http_client

TEXT = {"content": [{"type": "text", "text": "ok"}]}
QUICK = Backoff(first=0.001, longest=0.002, attempts=3)
CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}

ok = giving(TEXT)


@contextlib.asynccontextmanager
async def legacy(
    handlers: dict[str, Any] | None = None, *, reconnect: Backoff = QUICK, **options: Any
) -> AsyncIterator[tuple[HttpPeer, Client]]:
    with trio.fail_after(DEADLINE):
        async with peer({"tools/call": ok, **(handlers or {})}) as server:

            def connect() -> Any:
                return streamable_http_client(server.url, reconnect=reconnect)

            async with Client(connect, mode="legacy", **options) as client:
                yield server, client


async def text(client: Client, tool: str = "t", **options: Any) -> str:
    return str((await client.call_tool(tool, **options)).content[0].text)  # type: ignore[union-attr]


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
        if self.refuse_all or asked.headers["mcp-session-id"] != self.session:
            await asked.status(404)
        else:
            await ok(asked)

    def handlers(self) -> dict[str, Any]:
        return {"initialize": self.initialize, "tools/call": self.call}
