"""A cancellation at every step of connecting, calling and closing a client."""

from __future__ import annotations

import sys

import psutil
import trio

from tests.client.servers import make_server
from tests.injection import cancel_after, cancel_everywhere
from trio_mcp import Client, StdioServerParameters


async def test_in_memory() -> None:
    server = make_server()

    async def scenario() -> None:
        async with Client(server) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.call_tool("count", {"to": 2}, on_progress=lambda _: None)
            await client.aclose()

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert server.statistics().runs == 0

    assert await cancel_everywhere(scenario, check) >= 60


async def test_over_stdio_no_process_is_left() -> None:
    target = StdioServerParameters(sys.executable, ["-m", "trio_mcp.cli.demo_server"], stderr="discard")

    async def scenario() -> None:
        async with Client(target) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            await client.aclose()

    # A process per run, so not every step: all of the first ones, then every few.
    for step in [*range(1, 16), *range(16, 400, 9)]:
        cancelled = await cancel_after(step, scenario)
        assert psutil.Process().children(recursive=True) == []
        if not cancelled:
            break
    assert not cancelled
