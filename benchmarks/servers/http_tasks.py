"""trio_mcp's server over HTTP, with tasks in stores, with other extensions, or with none of them.

``http_tasks.py [extensions | memory | sqlite FILE]``
"""

import sys
from functools import partial

import trio

from benchmarks.contenders.our_tasks import build_server


async def main(*stores: str) -> None:
    async with trio.open_nursery() as nursery:
        print(await nursery.start(partial(build_server(*stores).serve_http, port=0)), flush=True)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
