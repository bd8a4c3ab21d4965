"""The official Python SDK's server on stdio, as it comes; with the argument ``trio``, on Trio."""

import sys

import anyio
from mcp.server.mcpserver import MCPServer

server = MCPServer("benchmark", version="1.0.0")


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool()
async def pause(seconds: float) -> str:
    """Sleep for a while."""
    await anyio.sleep(seconds)
    return "done"


if __name__ == "__main__":
    if sys.argv[1:] == ["trio"]:
        anyio.run(server.run_stdio_async, backend="trio")
    else:
        server.run("stdio")  # its default, asyncio
