"""A stdio server with a tool of ten steps, whose tasks lie in a file: give its path and a ledger."""

from __future__ import annotations

import os
import sys

import trio

from trio_mcp import Context, Server
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.stores import SqliteStores

path, ledger = sys.argv[1:]
file = os.open(ledger, os.O_APPEND | os.O_WRONLY)
server = Server("steps", stores=SqliteStores(path), extensions=[Tasks(TaskOptions(lease=2))])


@server.tool(task=TaskPolicy(after=0, on_loss="rerun"))
async def film(ctx: Context) -> str:
    async def draw(step: int) -> None:
        await trio.sleep(0.2)
        os.write(file, f"{os.getpid()} {step}\n".encode())

    for step in range(10):
        await ctx.once(f"step-{step}", draw, step)
    return "done"


server.run()
