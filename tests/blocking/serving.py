"""A server in another thread, for clients that block the thread of the test."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any

import psutil
import trio
from pydantic import BaseModel, Field

from tests import forks
from trio_mcp import Context, Server, StdioServerParameters

URIS = ["memo://one", "memo://two", "memo://three"]


class Colour(BaseModel):
    """A form."""

    colour: str


def make_server() -> Server:
    """Make a server."""
    server = Server("desk", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def count(to: Annotated[int, Field(le=10)], ctx: Context) -> str:
        for step in range(to):
            await ctx.report_progress(step + 1, to)
        return "counted"

    @server.tool
    async def wait(seconds: float = 3600) -> str:
        await trio.sleep(seconds)
        return "waited"

    @server.tool
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Which colour?", Colour)).action

    @server.tool
    async def touch() -> None:
        server.notify_resource_updated(URIS[0])

    for uri in URIS:
        server.add_resource(uri, _memo(uri), name=uri[7:])
    return server


def _memo(text: str) -> Callable[[], str]:
    return lambda: text


def stdio() -> StdioServerParameters:
    """Return how the server is started as a process."""
    return StdioServerParameters(sys.executable, ["-c", "from tests.blocking.serving import *; make_server().run()"])


@contextlib.contextmanager
def served(way: str) -> Iterator[Any]:
    """Yield a target: the server in memory, as a process, or over HTTP or WebSocket in a thread of its own."""
    if way in ("memory", "stdio"):
        yield make_server() if way == "memory" else stdio()
        return
    ready, addresses, stop = threading.Event(), list[str](), trio.Event()
    tokens: list[trio.lowlevel.TrioToken] = []

    async def serve() -> None:
        tokens.append(trio.lowlevel.current_trio_token())
        async with trio.open_nursery() as nursery:
            serving = getattr(make_server(), f"serve_{way}")
            addresses.append(await nursery.start(partial(serving, port=0)))
            ready.set()
            await stop.wait()
            nursery.cancel_scope.cancel()

    thread = threading.Thread(target=trio.run, args=(serve,), name="server")
    thread.start()
    assert ready.wait(30)
    try:
        yield addresses[0]
    finally:
        tokens[0].run_sync_soon(stop.set)
        thread.join()


def left_behind() -> list[str]:
    """Return the threads of clients, the child processes, and the connections that there are."""
    threads = [each.name for each in threading.enumerate() if each.name.startswith("Trio of")]
    processes = [str(each.pid) for each in forks.children(recursive=True)]
    sockets = [str(each.raddr) for each in psutil.Process().net_connections() if each.status == "ESTABLISHED"]
    return threads + processes + sockets
