"""trio_mcp's server over HTTP; an argument has further settings of ``serve_http`` as JSON, such as the runner."""

import json
import sys
from functools import partial

import trio
from hypercorn.config import Config

from benchmarks.servers.ours import server


async def main() -> None:
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.keep_alive_max_requests = sys.maxsize  # so that no client has to reconnect while it is measured
    config.keep_alive_timeout = 3600  # nor a connection is closed that is meant to be idle, or slow
    settings = json.loads(sys.argv[1]) if sys.argv[1:] else {}
    async with trio.open_nursery() as nursery:
        print(await nursery.start(partial(server.serve_http, config=config, **settings)), flush=True)


if __name__ == "__main__":
    trio.run(main)
