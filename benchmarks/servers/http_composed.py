"""trio_mcp's server over HTTP, made of another: ``http_composed.py plain | mount | proxy URL``."""

import sys
from functools import partial

import trio

from benchmarks.contenders.our_composed import composed


async def main(*arguments: str) -> None:
    async with trio.open_nursery() as nursery:
        print(await nursery.start(partial(composed(*arguments).serve_http, port=0)), flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
