"""trio_mcp's server over one of its transports: ``links.py TRANSPORT [PATH]``. All but stdio print their URL."""

import sys
from functools import partial

import trio

from benchmarks.servers.ours import server

LIMIT = 64 * 1024 * 1024  # bytes of a message, as on stdio


async def main(transport: str, path: str) -> None:
    async with trio.open_nursery() as nursery:
        if transport == "tcp":
            url = await nursery.start(partial(server.serve_tcp, port=0, max_message_size=LIMIT))
        elif transport == "unix":
            url = await nursery.start(partial(server.serve_unix, path, max_message_size=LIMIT))
        else:
            url = await nursery.start(partial(server.serve_websocket, port=0, max_message_size=LIMIT))
        print(url, flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    else:
        trio.run(main, sys.argv[1], sys.argv[-1])
