"""A proxy with the official SDK, which has none: a low-level server that hands tools and calls on by one client.

It passes neither questions, progress, logs nor changes on. ``http_forwarding.py URL`` answers in JSON, on uvicorn.
"""

import sys
from typing import Any

import anyio
import uvicorn
from mcp import Client
from mcp.server.lowlevel import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult

from benchmarks.servers.http_official import Telling


async def main(url: str) -> None:
    async with Client(url) as upstream:

        async def list_tools(context: Any, params: Any) -> ListToolsResult:
            return await upstream.list_tools()

        async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
            return await upstream.call_tool(params.name, params.arguments)

        server: Server[Any] = Server("proxy", version="1.0.0", on_list_tools=list_tools, on_call_tool=call_tool)
        app = server.streamable_http_app(json_response=True)
        config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", http="h11", timeout_keep_alive=3600)
        await Telling(config).serve()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
