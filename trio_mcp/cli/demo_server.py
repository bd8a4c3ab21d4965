"""The server of ``trio-mcp demo``. ``python -m trio_mcp.cli.demo_server`` serves it over stdio."""

from __future__ import annotations

import trio

from trio_mcp._version import __version__
from trio_mcp.server.context import Context
from trio_mcp.server.server import Server

__all__ = ["make_server"]


def make_server() -> Server:
    """Make a server with a handful of tools."""
    server = Server("demo", version=__version__, instructions="Add numbers, count, or wait.")
    cancellations: list[str] = []

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def count(to: int, ctx: Context) -> int:
        """Count, and report each step.

        Args:
            to: The number to count to.
        """
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, f"at {number}")
        return to

    @server.tool
    async def wait(ctx: Context) -> None:
        """Report the start, then wait until cancelled."""
        await ctx.report_progress(0, message="waiting")
        try:
            await trio.sleep_forever()
        except trio.Cancelled as exc:
            cancellations.append(exc.reason or "no reason given")
            raise

    @server.tool
    async def why_cancelled() -> list[str]:
        """Return the reasons for which calls of `wait` were cancelled; wait until there is one."""
        # A client that cancels does not wait for the server, so this call may arrive before the cancelled task has
        # ended.
        with trio.move_on_after(5):
            while not cancellations:  # noqa: ASYNC110
                await trio.sleep(0.001)
        return cancellations

    return server


if __name__ == "__main__":
    make_server().run()
