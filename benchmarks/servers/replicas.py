"""trio_mcp's server over HTTP as one of several replicas: ``replicas.py [URL]``.

The URL is that of the stores. Without one, the server keeps its sessions, and their events, in memory. It prints the
URL and its process id.
"""

from __future__ import annotations

import sys
import time

import trio
from pydantic import BaseModel

from benchmarks.servers import more_tools, processes
from trio_mcp import Context, MemoryEventStore


class Consent(BaseModel):
    yes: bool


async def ask(ctx: Context) -> float:
    """Ask the user, and return when the answer was there."""
    await ctx.elicit("Go on?", Consent)
    return time.perf_counter()


def main(url: str | None = None) -> None:
    server = processes.build_server(url)
    server.add_tool(more_tools.wait)
    server.add_tool(ask)
    settings: dict[str, object] = {"max_sessions": 10_000}
    if url is None:
        settings["event_store"] = MemoryEventStore(max_bytes=256 << 20)
    trio.run(processes.serve, server, settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
