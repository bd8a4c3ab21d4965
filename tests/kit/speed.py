"""How fast the kit is on a server of this library over stdio: ``python -m tests.kit.speed [--seconds 60]``."""

from __future__ import annotations

import argparse
import sys

import trio

from trio_mcp import Server, StdioServerParameters
from trio_mcp.conformance.engine import check_server
from trio_mcp.types import ToolAnnotations

READS = ToolAnnotations(read_only_hint=True)


def make_server() -> Server:
    """Make a server of tools, resources and a prompt that all take arguments."""
    server = Server("speed")

    @server.tool(annotations=READS)
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=READS)
    async def join(words: list[str], by: str) -> str:
        """Join words."""
        return by.join(words)

    @server.resource("thing://{name}")
    async def thing(name: str) -> str:
        """Describe a thing."""
        return name

    @server.prompt
    async def greet(name: str) -> str:
        """Greet someone."""
        return f"Hello {name}"

    return server


async def main(seconds: float) -> None:
    """Check the server for some time, and print the figures."""
    target = StdioServerParameters(sys.executable, ["-m", "tests.kit.speed", "--serve"])
    report = await check_server(target, examples=1_000_000, time=seconds)
    calls, repeated = report.figures["calls"], report.figures["repeated calls"]
    print(
        f"{report.requests} requests in {report.seconds:.0f} s, {report.requests / report.seconds:.0f} a second; "
        f"{calls / report.requests:.0%} call a tool, read a resource or get a prompt, {repeated} of them twice; "
        f"{report.generating / report.seconds:.0%} of the time went into plans; {len(report.broken)} rules broken"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true", help="serve over standard input and output")
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    if chosen.serve:
        make_server().run()
    else:
        trio.run(main, chosen.seconds)
