"""trio_mcp's server on stdio."""

import trio

from trio_mcp import Server

server = Server("benchmark", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@server.tool
async def pause(seconds: float) -> str:
    """Sleep for a while."""
    await trio.sleep(seconds)
    return "done"


if __name__ == "__main__":
    server.run()
