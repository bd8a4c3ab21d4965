"""A way to the server: ``python -m tests.failover.serve '{"kind": …, "port": …, "name": …, "out": …}'``."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.listening import config_of_held
from tests.soak.record import Ledger
from tests.soak.serve import end_with_the_driver
from tests.soak.tools import digest
from trio_mcp import Context, Server, ToolError
from trio_mcp._nursery import background_nursery

STATE = "state://number"
"""The resource that the driver changes, for all processes, by writing to a file."""

POLL = 0.05
"""Seconds between two looks at that file."""


def state_of(out: Path) -> int:
    """Return the number that the driver wrote last."""
    try:
        return int((out / "state").read_text() or 0)
    except FileNotFoundError:
        return 0


def make_server(out: Path) -> Server:
    """Make the server, which is the same in each process; what has an effect writes it to the ledger first."""
    ledger = Ledger(out / "effects.log")

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        async def watch() -> None:
            known = state_of(out)
            while True:
                await trio.sleep(POLL)
                if (now := state_of(out)) != known:
                    known = now
                    server.notify_resource_updated(STATE)

        async with background_nursery() as nursery:
            nursery.start_soon(watch)
            yield

    server = Server("ledger", version="1", lifespan=lifespan)

    @server.resource(STATE)
    async def state() -> str:
        return str(state_of(out))

    @server.tool(annotations={"read_only_hint": True})
    async def look(call: str, seconds: float) -> str:
        """Change nothing."""
        await trio.sleep(seconds)
        return digest(call, 0)

    @server.tool(annotations={"read_only_hint": True})
    async def steps(call: str, seconds: float, ctx: Context) -> str:
        """Change nothing, and report four steps."""
        for step in range(1, 5):
            await ctx.report_progress(step, 4)
            await trio.sleep(seconds / 4)
        return digest(call, 0)

    @server.tool(annotations={"idempotent_hint": True})
    async def put(call: str, seconds: float) -> str:
        """Change something, to the same again and again."""
        ledger.note(call, "did")
        await trio.sleep(seconds)
        return digest(call, 0)

    @server.tool
    async def act(call: str, seconds: float) -> str:
        """Change something."""
        await trio.sleep(seconds / 2)
        ledger.note(call, "did")
        await trio.sleep(seconds / 2)
        return digest(call, 0)

    @server.tool
    async def fail(call: str, seconds: float) -> str:
        """Change something, and say that it failed."""
        ledger.note(call, "did")
        raise ToolError(digest(call, 0))

    return server


async def main(given: dict[str, Any]) -> None:
    """Serve until SIGTERM comes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    out = Path(given["out"])
    server = make_server(out)
    kinds: dict[str, Callable[..., Any]] = {
        "websocket": server.serve_websocket,
        "http": server.serve_http,
        "sse": partial(server.serve_http, sse_path="/sse"),
    }
    (kind,) = given["ports"]
    async with trio.open_nursery() as nursery:
        shutdown = trio.Event()

        async def serve(task_status: trio.TaskStatus[str]) -> None:
            config = config_of_held(given["ports"][kind])
            await kinds[kind](config=config, shutdown=shutdown, task_status=task_status)
            nursery.cancel_scope.cancel()

        await nursery.start(serve)
        nursery.start_soon(end_with_the_driver, nursery)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            (out / f"{given['name']}.ready").touch()
            async for _ in signals:
                shutdown.set()


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
