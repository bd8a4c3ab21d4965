"""A server that tells what its process holds: ``python -m tests.growth.serve stdio|http``."""

from __future__ import annotations

import sys
from functools import partial

import trio

from tests.growth.held import Held, held
from trio_mcp import Server

server = Server("growth", version="1.0.0")


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


_met = trio.Event()
_waiting = 0


@server.tool
async def meet(count: int) -> str:
    """Wait until this many calls wait here."""
    global _met, _waiting
    _waiting += 1
    if _waiting < count:
        await _met.wait()
    else:
        _met.set()
        _met, _waiting = trio.Event(), 0
    return "met"


@server.tool
async def snapshot() -> Held:
    """Tell what this process holds."""
    return held()


async def over_http() -> None:
    async with trio.open_nursery() as nursery:
        print(await nursery.start(partial(server.serve_http, "127.0.0.1", 0, runner="h11")), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        trio.run(over_http)
