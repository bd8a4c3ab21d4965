"""What a server writes for a step: ``transactions.py FILE SECONDS`` prints it as JSON.

For each operation it prints the transactions of the SQLite file that one takes, at the median, and the milliseconds
that 99 of 100 take.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio
from pydantic import BaseModel

from trio_mcp import Client, Context, Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.stores import UserStateOptions

MOST = 2000  # operations of a kind, because the journal of a task has a bound

begun = 0
"""How many transactions have begun."""


def _note(statement: str) -> None:
    global begun
    begun += statement.startswith("BEGIN")


class Counted(sqlite3.Connection):
    """A connection whose transactions are counted."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.set_trace_callback(_note)


class Count(BaseModel):
    value: int = 0


def one_more(count: Count) -> Count:
    return Count(value=count.value + 1)


async def measured(step: Callable[[int], Awaitable[Any]], seconds: float) -> tuple[float, float]:
    """Return the transactions of a step at the median, and the milliseconds of it at the 99th percentile."""
    transactions, times = [], []
    await step(-1)  # the first one in a process or a task may have to find out more
    end = time.perf_counter() + seconds
    for number in range(MOST):
        before, started = begun, time.perf_counter()
        await step(number)
        now = time.perf_counter()
        transactions.append(begun - before)
        times.append(now - started)
        if now > end:
            break
    times.sort()
    return statistics.median(transactions), times[len(times) * 99 // 100] * 1000


async def main(file: str, seconds: float) -> None:
    found: dict[str, tuple[float, float]] = {}
    server = Server(
        "benchmark",
        stores=file,
        extensions=[Tasks()],
        principal=lambda ctx: "ann",
        user_state=UserStateOptions(trust_principal=True),
    )

    @server.tool
    async def states(ctx: Context) -> None:
        async def read(_: int) -> Count:
            return await ctx.user_state(Count)

        async def change(_: int) -> Count:
            return await ctx.update_user_state(Count, one_more)

        for step in (read, change):
            found[f"{step.__name__} the state of a user"] = await measured(step, seconds)

    @server.tool(task=TaskPolicy(after=0))
    async def remember(ctx: Context) -> None:
        found["once in a task"] = await measured(lambda number: ctx.once(str(number), lambda: number), seconds)

    @server.tool(task=TaskPolicy(after=0))
    async def wait() -> None:
        await trio.sleep_forever()

    async with Client(server, extensions=[Tasks()]) as client:
        await client.call_tool("states")
        await client.call_tool("remember")
        task = await Tasks.of(client).start("wait")
        found["a poll of a task"] = await measured(lambda _: task.get(), seconds)
        await task.cancel()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    sqlite3.connect = partial(sqlite3.connect, factory=Counted)  # type: ignore[assignment]
    trio.run(main, sys.argv[1], float(sys.argv[2]))
