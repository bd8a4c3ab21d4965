"""trio_mcp's server over HTTP in one process or in several, with stores or without: ``processes.py SETTINGS``.

The settings are JSON: ``file``, the file or the URL of the stores; ``processes``, with which there is a supervisor;
``tasks``, whether the server has them; ``count``, whether it counts how often it wakes up. Each process that serves
prints the URL and its id.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import trio
from hypercorn.config import Config

from trio_mcp import Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.server.processes.child import inherited


class Waits(trio.abc.Instrument):
    """Counts how often the event loop has waited and was woken.

    The kernel counts more: after the event loop is woken by another thread, it waits for that thread to let go of the
    interpreter.
    """

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += timeout > 0


WAITS = Waits()


@contextlib.asynccontextmanager
async def announced(server: Server) -> AsyncIterator[None]:
    """Print the address that the supervisor has bound, in each process that serves."""
    if (mine := inherited()) is not None:
        host, port = mine.sockets[0][1].getsockname()
        print(f"http://{host}:{port}/mcp", os.getpid(), flush=True)
    yield


@contextlib.asynccontextmanager
async def counted(server: Server) -> AsyncIterator[None]:
    trio.lowlevel.add_instrument(WAITS)
    async with announced(server):
        yield


def build_server(file: str | None = None, *, tasks: bool = False, count: bool = False) -> Server:
    settings: dict[str, Any] = {"extensions": [Tasks()]} if tasks else {}
    server = Server("benchmark", version="1.0.0", stores=file, lifespan=counted if count else announced, **settings)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    @server.tool
    async def pid() -> int:
        """Return the id of the process that serves the call."""
        return os.getpid()

    @server.tool
    async def waits() -> int:
        """Return how often the event loop has waited."""
        return WAITS.count

    @server.tool
    async def touch(number: int) -> float:
        """Announce that a document has changed, and return when."""
        now = time.perf_counter()
        server.notify_resource_updated(f"doc://{number}")
        return now

    @server.resource("doc://{number}")
    async def doc(number: int) -> str:
        return str(number)

    if tasks:

        @server.tool(task=TaskPolicy(after=0))
        async def later() -> int:
            return 1

    return server


async def serve(server: Server, settings: Mapping[str, Any]) -> None:
    """Serve in one process, with these settings of ``serve_http``."""
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, config=patient(), max_connections=2000, **settings))
        print(url, os.getpid(), flush=True)


def patient() -> Config:
    """Return a configuration with which no client has to reconnect while it is measured."""
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.keep_alive_max_requests = sys.maxsize
    config.keep_alive_timeout = 3600
    return config


def main(processes: int | None = None, **settings: Any) -> None:
    server = build_server(**settings)
    if processes is None:
        trio.run(serve, server, {})
    else:
        server.run("http", processes=processes, config=patient(), stateless=True)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
