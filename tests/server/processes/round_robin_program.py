"""One of several programs without a supervisor, which share what those of ``sharing_program.py`` do, and tasks."""

from __future__ import annotations

import os

import trio

from tests.round_robin import shared
from tests.server.processes.sharing_program import Answer, make
from trio_mcp import Context
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.stores import key_ring

ROUNDS = 3
AT_ONCE = TaskPolicy(after=0, poll=0.05)

key_ring.LOOK = 0.2  # type: ignore[misc] # so that a test need not wait for ten seconds

server = make(timeout=5.0, extensions=[Tasks()], **shared())


async def interview(ctx: Context) -> list[int]:
    """Ask some questions; return the processes that have asked, and the one that has got the last answer."""
    pids: list[int] = []
    for number in range(ROUNDS):
        pids.append(await ctx.once(f"pid {number}", os.getpid))
        await ctx.elicit("Go on?", Answer)
    return [*pids, os.getpid()]


server.add_tool(interview)
server.add_tool(interview, name="interview_as_task", task=AT_ONCE)


@server.tool(task=AT_ONCE)
async def wait() -> None:
    await trio.sleep_forever()


if __name__ == "__main__":
    server.run("http", port=0)
