"""trio_mcp's server over HTTP, and what keeps its sessions: ``http_stores.py [memory | sqlite FILE | shared FILE]``."""

import contextlib
import sys
from functools import partial

import trio

from benchmarks.servers import ours
from trio_mcp import MemoryEventStore, Server, SqliteEventStore


async def main(kind: str = "none", *file: str) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = ours.server
        store: MemoryEventStore | SqliteEventStore | None = None
        if kind == "memory":
            store = MemoryEventStore(max_bytes=256 << 20)
        elif kind == "sqlite":
            store = await stack.enter_async_context(SqliteEventStore(*file))
        elif kind == "shared":
            server = Server("benchmark", version="1.0.0", stores=file[0])
            for tool in (ours.add, ours.echo, ours.pause):
                server.add_tool(tool)
        async with trio.open_nursery() as nursery:
            print(
                await nursery.start(partial(server.serve_http, port=0, event_store=store, max_message_size=64 << 20)),
                flush=True,
            )


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
