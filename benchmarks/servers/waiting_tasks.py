"""Tasks that wait for input: ``waiting_tasks.py FILE COUNT`` prints the bytes that each takes in process and file.

``waiting_tasks.py FILE idle SECONDS`` prints, for a second in which nothing happens, the steps of Trio and the looks at
the store; with ``memory`` in place of the file, of stores in memory.
"""

import gc
import sys
import tracemalloc
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import trio
from pydantic import BaseModel

from trio_mcp import Answers, Client, Context, Server
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks
from trio_mcp.stores import Claim, MemoryStores, SqliteStores

ENOUGH = 1_000_000
WARM_UP = 100
LANES = 20  # the store writes the tasks of several lanes in one transaction


class Answer(BaseModel):
    go_on: bool


def build_server(stores: Any) -> Server:
    server = Server("benchmark", version="1.0.0", stores=stores, extensions=[Tasks(TaskOptions(max_tasks=ENOUGH))])

    @server.tool(task=TaskPolicy(after=0))
    async def ask(ctx: Context, text: str) -> str:
        """Ask whether to go on."""
        await ctx.elicit(text, Answer)
        return text

    return server


async def waiting(file: Path, count: int) -> float:
    async def answer(*_: Any) -> None:
        raise AssertionError("the client was asked")

    async with Client(
        build_server(SqliteStores(file)), extensions=[Tasks()], answers=Answers(elicitation=answer)
    ) as client:
        tasks = Tasks.of(client)

        async def lane(number: int) -> None:
            for _ in range(number):
                # The handle is dropped: the client keeps nothing, either.
                task = await tasks.start("ask", {"text": "Go on?"})
                while (state := await task.get()).status == "working":
                    await trio.lowlevel.checkpoint()
                assert state.status == "input_required", state

        async def make(number: int) -> None:
            async with trio.open_nursery() as nursery:
                for _ in range(LANES):
                    nursery.start_soon(lane, number // LANES)

        await make(WARM_UP)
        gc.collect()
        tracemalloc.start()
        await make(count)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return held / count


class Steps(trio.abc.Instrument):
    """Counts the steps of Trio's tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def idle(file: str, seconds: float) -> None:
    looks = 0

    class Counted(SqliteStores):
        async def claim_tasks(self, tools: Collection[str], *, lease: float, most: int) -> Sequence[Claim]:
            nonlocal looks
            looks += 1
            return await super().claim_tasks(tools, lease=lease, most=most)

    steps = Steps()
    server = build_server(MemoryStores() if file == "memory" else Counted(file))
    async with Client(server) as client:
        await client.list_tools()
        await trio.sleep(6)  # until the client's session has seen that no call is under way
        looks = 0
        trio.lowlevel.add_instrument(steps)
        await trio.sleep(seconds)
        trio.lowlevel.remove_instrument(steps)
    print((steps.count - 1) / seconds, looks / seconds, flush=True)  # the last step is the one that goes on from here


if __name__ == "__main__":
    if sys.argv[2] == "idle":
        trio.run(idle, sys.argv[1], float(sys.argv[3]))
    else:
        file, count = Path(sys.argv[1]), int(sys.argv[2])
        held = trio.run(waiting, file, count)
        # Closing the stores has moved what the log held into the file.
        print(held, file.stat().st_size / (WARM_UP + count), flush=True)
