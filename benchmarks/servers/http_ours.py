"""trio_mcp's server over HTTP, on hypercorn."""

import sys
from functools import partial

import trio
from hypercorn.config import Config
from ours import server


async def main() -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.keep_alive_max_requests = sys.maxsize  # so that no client has to reconnect while it is measured
    async with trio.open_nursery() as nursery:
        print(await nursery.start(partial(server.serve_http, config=config)), flush=True)


if __name__ == "__main__":
    trio.run(main)
