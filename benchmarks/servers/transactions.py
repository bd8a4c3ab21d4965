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
from typing import Any

import trio
from pydantic import BaseModel

from trio_mcp import Client, Context, Server
from trio_mcp.extensions import TaskPolicy, Tasks
from trio_mcp.stores import UserStateOptions

MOST = 2000  # operations of a kind, because the journal of a task has a bound

begun = 0
"""How many transactions have begun."""

_connect = sqlite3.connect


def _note(statement: str) -> None:
    global begun
    begun += statement.startswith("BEGIN")


def _connect_counted(*arguments: Any, **settings: Any) -> sqlite3.Connection:
    connection = _connect(*arguments, **settings)
    connection.set_trace_callback(_note)
    return connection


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
        found["reading the state of a user"] = await measured(lambda _: ctx.user_state(Count), seconds)
        found["changing the state of a user"] = await measured(lambda _: ctx.update_user_state(Count, one_more), seconds)

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
    sqlite3.connect = _connect_counted
    trio.run(main, sys.argv[1], float(sys.argv[2]))
