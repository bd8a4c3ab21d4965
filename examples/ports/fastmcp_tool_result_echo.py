"""FastMCP's example tool_result_echo.py: a result with text, structured content and metadata of its own.

$ trio-mcp call examples/ports/fastmcp_tool_result_echo.py echo text=hello --json
"""

import time

from trio_mcp import Server
from trio_mcp.types import CallToolResult, TextContent

server = Server("Echo Server")


@server.tool
def echo(text: str) -> CallToolResult:
    """Echo text back with metadata about the operation."""
    start = time.perf_counter()
    result = {"data": text, "length": len(text)}
    seconds = time.perf_counter() - start
    return CallToolResult(
        content=[TextContent(text=f"Echoed: {text}")],
        structured_content=result,
        meta={
            "execution_time_ms": round(seconds * 1000, 2),
            "character_count": len(text),
            "word_count": len(text.split()),
        },
    )


if __name__ == "__main__":
    server.run()
