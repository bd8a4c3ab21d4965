"""Processes that share a file, and write to a ledger: ``python promises_program.py '{"folder": "/there", …}'``.

With ``apart``, the clock of each process is so many seconds ahead of that of the process before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import trio
from pydantic import BaseModel

from trio_mcp import Context, InputOptions, Principal, Server
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.http.server.legacy import sharing
from trio_mcp.server.processes import child, children, slots, supervisor
from trio_mcp.stores import KeyRing, SqliteStores, UserStateOptions

ROOMS: dict[str, Any] = {
    "child": child,
    "children": children,
    "sharing": sharing,
    "slots": slots,
    "supervisor": supervisor,
}
LAMP = "desk://lamp"


class Answer(BaseModel):
    text: str


class Count(BaseModel):
    value: int = 0


def make(folder: Path, *, timeout: float, keys: bool, name: str) -> Server:
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(*words: object) -> None:
        with contextlib.suppress(OSError):  # the disk is full
            os.write(ledger, f"{os.getpid()} {' '.join(map(str, words))}\n".encode())

    @contextlib.asynccontextmanager
    async def lifespan(_: Server) -> AsyncIterator[None]:
        note("lifespan")
        yield

    server = Server(
        name,
        # The clock of this process may be another one: see `main`.
        stores=SqliteStores(folder / "desk.db", timeout=timeout, now=lambda: time.time()),
        lifespan=lifespan,
        principal=lambda ctx: Principal("ann"),
        user_state=UserStateOptions(trust_principal=True),
        input=InputOptions(key=KeyRing.file(folder / "desk.keys") if keys else None),
        extensions=[Tasks(TaskOptions(lease=1.0))],
    )

    @server.tool
    async def pid() -> int:
        return os.getpid()

    @server.tool
    async def count(ctx: Context) -> int:
        def more(found: Count) -> Count:
            found.value += 1
            return found

        return (await ctx.update_user_state(Count, more)).value

    @server.tool
    async def counted(ctx: Context) -> int:
        return (await ctx.user_state(Count)).value

    @server.tool
    async def touch() -> int:
        server.notify_resource_updated(LAMP)
        return os.getpid()

    @server.resource(LAMP)
    async def lamp() -> str:
        return "on"

    add_what_notes(server, note)
    return server


def add_what_notes(server: Server, note: Callable[..., None]) -> None:
    """Add the tools that write to the ledger."""

    @server.tool
    async def wait(name: str, seconds: float) -> int:
        note("began", name)
        try:
            await trio.sleep(seconds)
            note("ended", name)
        except trio.Cancelled:
            note("cancelled", name)
            raise
        return os.getpid()

    async def asked(ctx: Context) -> list[int]:
        """The processes that have asked, and that have got the answer."""
        note("began", "to ask")
        first = os.getpid()
        await ctx.elicit("Go on?", Answer)
        return [first, os.getpid()]

    server.add_tool(asked, name="ask")
    server.add_tool(asked, name="park", park_input=True)

    async def step(name: str) -> int:
        note("began", name)
        return os.getpid()

    @server.tool(task=TaskPolicy(after=0, on_loss="rerun", ttl=86_400))
    async def film(ctx: Context, go: str) -> list[int]:
        """Do a step, and a second one when there is a file."""
        note("began", "film")
        one = await ctx.once("one", step, "one")
        while not await trio.Path(go).exists():  # noqa: ASYNC110 - the test is another process
            await trio.sleep(0.01)
        return [one, await ctx.once("two", step, "two")]

    @server.tool(task=TaskPolicy(after=0, on_loss="rerun", max_takeovers=2))
    async def fatal() -> None:
        note("began", "fatal")
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    settings = json.loads(sys.argv[1])
    for name, value in settings.pop("constants", {}).items():
        room, constant = name.split(".")
        setattr(ROOMS[room], constant, value)
    apart, mine = settings.pop("apart", 0), child.inherited()
    if apart and mine is not None:
        ahead, real = apart * (mine.number - 1), time.time
        time.time = lambda: real() + ahead  # what has taken `time.time` as a default keeps the real one
    server = make(
        Path(settings.pop("folder")),
        timeout=settings.pop("timeout", 5.0),
        keys=settings.pop("keys", False),
        name=settings.pop("name", "desk"),
    )
    server.run("http", **settings)


if __name__ == "__main__":
    main()
