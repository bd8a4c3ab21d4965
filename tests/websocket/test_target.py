"""A `Client` of a WebSocket."""

from __future__ import annotations

import trio

from tests.ways import WAYS
from trio_mcp import Client, Context, HttpServerParameters, Server


async def test_headers_and_query_of_the_target_reach_handlers() -> None:
    server = Server("who")

    @server.tool
    def who(ctx: Context) -> list[str | None]:
        metadata = ctx.transport_metadata
        return [metadata["headers"].get("X-Who"), metadata["query"]]

    with trio.fail_after(60):
        async with WAYS["WebSocket"](server) as url:
            parameters = HttpServerParameters(f"{url}?team=a", kind="ws", headers={"X-Who": "me"})
            async with Client(parameters) as client:
                assert (await client.call_tool("who")).data == ["me", "team=a"]
