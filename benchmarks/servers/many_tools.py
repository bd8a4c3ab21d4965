"""A stdio server with many tools, each a function of its own: ``many_tools.py ours|official COUNT``."""

import sys
import time
from typing import Any

# The signatures that tools mostly have, in turn. Every function is compiled, as if an author had written it.
FUNCTIONS = [
    '''
async def tool_{0}(a: int, b: int, text: str = "x") -> int:
    """Add two integers and ignore a text, number {0}."""
    return a + b
''',
    '''
async def tool_{0}(query: str, limit: Annotated[int, Field(ge=1, le=100)] = 10) -> list[str]:
    """Search, number {0}.

    Args:
        query: What to search for.
        limit: How many to return.
    """
    return []
''',
    '''
async def tool_{0}(path: str, mode: Literal["read", "write"] = "read", encoding: Optional[str] = None) -> str:
    """Open a file, number {0}."""
    return path
''',
    '''
async def tool_{0}(items: list[str], options: dict[str, int] | None = None, strict: bool = False) -> dict[str, Any]:
    """Process items, number {0}."""
    return {{}}
''',
    '''
async def tool_{0}(query: str, page: Annotated[int, Field(description="which page")] = 1, ratio: float = 0.5) -> Page:
    """Look hits up, number {0}."""
    return Page(hits=[], total=0)
''',
]
NAMES = """
from typing import Annotated, Any, Literal, Optional
from pydantic import BaseModel, Field
class Hit(BaseModel):
    title: str
    score: float = 0.0
class Page(BaseModel):
    hits: list[Hit]
    total: int
"""


def made(count: int) -> list[Any]:
    """Return that many functions."""
    namespace: dict[str, Any] = {}
    exec(NAMES, namespace)
    for number in range(count):
        exec(FUNCTIONS[number % len(FUNCTIONS)].format(number), namespace)
    return [namespace[f"tool_{number}"] for number in range(count)]


def main(which: str, count: int) -> None:
    """Register the tools, and one that tells how many seconds of CPU time that took; then serve."""
    server: Any
    if which == "ours":
        from trio_mcp import Server

        server = Server("benchmark", version="1.0.0")
    else:
        from mcp.server.mcpserver import MCPServer

        server = MCPServer("benchmark", version="1.0.0")

    async def spent() -> float:
        return seconds

    server.add_tool(spent)  # also loads what is loaded for a first tool
    functions = made(count)
    started = time.process_time()
    for function in functions:
        server.add_tool(function)
    seconds = time.process_time() - started
    server.run(*(() if which == "ours" else ("stdio",)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
