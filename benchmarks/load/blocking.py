"""Calls a tool without async: ``python -m benchmarks.load.blocking KIND [URL]``.

For each line with a number of calls on its standard input, it makes so many, one after the other, and prints how many
microseconds of CPU time each has taken in this process. Without a URL, the server is in the process, too.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from benchmarks.contenders.our_memory import build_server
from trio_mcp import Client, blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Call = Callable[[], Any]

ARGUMENTS = {"a": 1, "b": 2}


@contextmanager
def by_blocking_client(target: Any) -> Iterator[Call]:
    """Yield a function that calls the tool by the blocking client."""
    with blocking.Client(target) as client:
        yield lambda: client.call_tool("add", ARGUMENTS)


@contextmanager
def by_from_thread(target: Any) -> Iterator[Call]:
    """Yield a function that calls the tool by `trio.from_thread.run`, around the async client."""
    ready, held = threading.Event(), dict[str, Any]()

    async def main() -> None:
        async with Client(target) as client:
            held.update(client=client, token=trio.lowlevel.current_trio_token(), leave=trio.Event())
            ready.set()
            await held["leave"].wait()

    thread = threading.Thread(target=trio.run, args=(main,))
    thread.start()
    ready.wait()
    call = partial(held["client"].call_tool, "add", ARGUMENTS)
    yield lambda: trio.from_thread.run(call, trio_token=held["token"])
    trio.from_thread.run_sync(held["leave"].set, trio_token=held["token"])
    thread.join()


KINDS = {"blocking": by_blocking_client, "from_thread": by_from_thread}


def main(kind: str, *url: str) -> None:
    with KINDS[kind](*(url or [build_server()])) as call:
        print("ready", flush=True)
        for line in sys.stdin:
            calls = int(line)
            before = time.process_time()
            for _ in range(calls):
                call()
            print((time.process_time() - before) * 1e6 / calls, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
