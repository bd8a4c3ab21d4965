"""Servers to be a client of."""

from __future__ import annotations

import sys
import textwrap

import trio

from tests.peer import Peer
from trio_mcp import Context, ListOptions, Server, StdioServerParameters


def make_server() -> Server:
    server = Server("test", version="1", lists=ListOptions(page_size=2))

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait() -> None:
        await trio.sleep_forever()

    @server.tool
    async def count(to: int, ctx: Context) -> list[int]:
        for number in range(to):
            await ctx.report_progress(number + 1, to)
        return list(range(to))

    @server.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @server.tool
    async def nothing() -> None:
        return None

    return server


async def say_nothing(server: Peer) -> None:
    """Be a server that never answers."""
    await trio.sleep_forever()


def script(code: str, *, after: str) -> StdioServerParameters:
    """Return a server process with a tool that runs some code, and one that waits forever."""
    program = textwrap.dedent(
        f"""
        import trio
        from trio_mcp import Server
        server = Server("script")

        @server.tool
        async def {after}() -> None:
            {code}

        @server.tool
        async def wait() -> None:
            await trio.sleep_forever()

        server.run()
        """
    )
    return StdioServerParameters(sys.executable, ["-c", program], stderr="discard")
