"""A program: eight processes whose common login has expired, again and again; one is killed in the middle of a refresh.

A process of its own that forks them, outside any run of Trio. It prints the tokens that they ended with.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable

import trio

from trio_mcp.auth import FileTokens, OAuth
from trio_mcp.auth.fetching import Fetcher
from trio_mcp.auth.rules.steps import Fetch, Fetched

EXPIRY = 3600
"""Seconds for which a token holds."""


async def token(folder: str, server: str, later: float, killed: bool) -> str:
    """Return the token of a request that is sent some seconds later; or be killed once a refresh was answered."""
    fetcher = Fetcher(server)

    async def fetch(step: Fetch) -> Fetched:
        found = await fetcher.flow()(step)
        if killed:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    auth = OAuth(store=FileTokens(folder), show=None, fetch=fetch, clock=lambda: time.time() + later)
    async with auth.opened(server, contextlib.nullcontext) as signer:
        return dict(await signer.attempt().fields("POST", server))["Authorization"]


def together(number: int, run: Callable[[], str]) -> list[str]:
    """Run a function in some processes at once, and return what each returned; nothing for one that was killed."""
    reading, writing = os.pipe()
    for _ in range(number):
        if not os.fork():
            try:
                os.write(writing, run().encode() + b"\n")
            finally:
                os._exit(0)
    os.close(writing)
    with open(reading) as results:
        found = results.read().split("\n")[:-1]
    for _ in range(number):
        os.wait()
    return found


if __name__ == "__main__":
    folder, server = sys.argv[1:]

    def tokens(number: int, expiries: int, *, killed: bool = False) -> list[str]:
        return together(number, lambda: trio.run(token, folder, server, expiries * (EXPIRY + 60), killed))

    print(json.dumps([tokens(8, 1), tokens(8, 1), tokens(1, 2, killed=True), tokens(8, 2), tokens(8, 3)]))
