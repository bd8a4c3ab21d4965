"""A stdio server on the official SDK's low-level API that lists its tools in pages. It serves both eras."""

from __future__ import annotations

from typing import Any

import anyio
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp_types import ListToolsResult, PaginatedRequestParams, Tool

NAMES = [f"tool-{number}" for number in range(8)]
PAGE = 3


async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
    start = int(params.cursor) if params is not None and params.cursor is not None else 0
    tools = [Tool(name=name, input_schema={"type": "object"}) for name in NAMES[start : start + PAGE]]
    end = start + PAGE
    return ListToolsResult(tools=tools, next_cursor=str(end) if end < len(NAMES) else None)


async def main() -> None:
    server = Server("official-paging-peer", version="1", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
