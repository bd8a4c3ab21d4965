"""Make calls, and compare what both processes hold before and after."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import trio

from tests.growth.held import Held, held, left
from trio_mcp import Client, StdioServerParameters

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MODES = {"modern": "auto", "legacy": "legacy"}
TRANSPORTS = ("stdio", "http")
IN_FLIGHT = 64
"""Calls at a time; over HTTP each has a connection."""


@attrs.frozen
class Outcome:
    """What some calls have left behind.

    Attributes:
        case: The transport and the era.
        calls: How many were made.
        left: What was not there before, in words; nothing if all is well.
        client: What the client's process held before and after.
        server: What the server's process held before and after.
    """

    case: str
    calls: int
    left: list[str]
    client: tuple[Held, Held]
    server: tuple[Held, Held]

    def __str__(self) -> str:
        grown = [f"{after['resident'] - before['resident']:+.2f} MiB" for before, after in (self.client, self.server)]
        text = f"{self.case}: {self.calls:,} calls, client {grown[0]}, server {grown[1]}"
        return "\n  ".join([text, *self.left])


@asynccontextmanager
async def _target(transport: str) -> AsyncIterator[Any]:
    command = [sys.executable, "-m", "tests.growth.serve", transport]
    if transport == "stdio":
        yield StdioServerParameters(command[0], command[1:])
        return
    async with trio.open_nursery() as nursery:
        process = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE, check=False))
        try:
            async with aclosing(process.stdout):
                yield (await process.stdout.receive_some()).decode().strip()
        finally:
            process.terminate()


async def _make(client: Client, calls: int, progress: Callable[[int], None]) -> None:
    made = begun = 0

    async def lane() -> None:
        nonlocal made, begun
        while begun < calls:
            number, begun = begun, begun + 1
            result = await client.call_tool("add", {"a": number, "b": 7})
            assert result.data == number + 7
            made += 1
            if made % 10_000 == 0:
                progress(made)

    async with trio.open_nursery() as nursery:
        for _ in range(IN_FLIGHT):
            nursery.start_soon(lane)


async def make_calls(transport: str, era: str, calls: int, warm_up: int, progress: Callable[[str], None]) -> Outcome:
    """Make calls with one client, after some to warm up, and return what they have left behind."""
    case = f"{transport}, {era}"

    async def both() -> tuple[Held, Held]:
        # Over HTTP, this opens as many connections as there can be, so that their number is the same each time.
        async with trio.open_nursery() as nursery:
            for _ in range(IN_FLIGHT):
                nursery.start_soon(client.call_tool, "meet", {"count": IN_FLIGHT})
        theirs = (await client.call_tool("snapshot", {})).data
        return held(), theirs

    async with _target(transport) as target, Client(target, mode=MODES[era]) as client:
        await both()  # the first one may itself leave something in a cache
        await _make(client, warm_up, lambda made: None)
        before = await both()
        await _make(client, calls, lambda made: progress(f"{case}: {made:,} of {calls:,}"))
        after = await both()
    client_held, server_held = (before[0], after[0]), (before[1], after[1])
    found = left(*client_held, "client") + left(*server_held, "server")
    return Outcome(case, calls, found, client_held, server_held)
