"""A server on trio_mcp whose tools run as tasks, for the clients of others.

Run as a program, it serves stdio, or HTTP as one of several processes behind nginx.
"""

from __future__ import annotations

import trio
from pydantic import BaseModel

from tests.round_robin import shared
from trio_mcp import Context, McpError, Server, ToolError
from trio_mcp.extensions import TaskPolicy, Tasks

AT_ONCE = TaskPolicy(after=0, poll=0.05)

server = Server("tasks", extensions=[Tasks()], **(SHARED := shared()))


class Trip(BaseModel):
    city: str


def city(answer: object) -> str:
    return answer.city if isinstance(answer, Trip) else "nowhere"


@server.tool
def plain(a: int, b: int) -> int:
    return a + b


@server.tool(task=AT_ONCE)
async def add(a: int, b: int) -> int:
    await trio.sleep(0.1)
    return a + b


@server.tool(task=AT_ONCE)
async def travel(ctx: Context) -> str:
    start = await ctx.elicit("From where?", Trip)
    end = await ctx.elicit("Where to?", Trip)
    return f"{city(start.data)} to {city(end.data)}"


@server.tool(task=TaskPolicy(mode="manual", poll=0.05))
async def order(ctx: Context) -> str:
    start = await ctx.elicit("From where?", Trip, key="from")  # in a round of the call
    detached = await ctx.detach()
    end = await ctx.elicit("Where to?", Trip, key="to")
    return f"{city(start.data)} to {city(end.data)}, {'as a task' if detached else 'at once'}"


@server.tool(task=AT_ONCE)
async def refuse() -> str:
    await trio.sleep(0.1)
    raise McpError(-32050, "closed on Sundays")


@server.tool(task=AT_ONCE)
async def fail() -> str:
    await trio.sleep(0.1)
    raise ToolError("no film")


@server.tool(task=AT_ONCE)
async def wait(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "waiting")
    await trio.sleep_forever()
    return "never"


if __name__ == "__main__":
    if SHARED:
        server.run("http", port=0)
    else:
        server.run()
