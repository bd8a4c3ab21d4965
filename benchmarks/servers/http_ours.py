"""trio_mcp's server over HTTP, on hypercorn."""

import sys
from functools import partial

import trio
from ours import server

from trio_mcp.http.runner.hypercorn import configured


async def main() -> None:
    config = configured("127.0.0.1", 0)
    config.keep_alive_max_requests = sys.maxsize  # no client has to connect anew while it is measured
    async with trio.open_nursery() as nursery:
        print(await nursery.start(partial(server.serve_http, config=config)), flush=True)


if __name__ == "__main__":
    trio.run(main)
