"""A stdio server on FastMCP whose tools run as tasks, with their state in its own memory."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp_types
from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension

server = FastMCP("tasks")
server.add_extension(TasksExtension())
FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@server.tool(task=True)
async def add(a: int, b: int) -> int:
    await asyncio.sleep(0.1)
    return a + b


@server.tool(task=True)
async def fails() -> int:
    raise ValueError("no film")


@server.tool(task=True)
async def forever() -> None:
    await asyncio.sleep(1000)


@server.tool(task=True)
async def greet(ctx: Context) -> Any:
    if ctx.input_responses is None:
        asked = mcp_types.ElicitRequestFormParams(message="Your name?", requested_schema=FORM)
        return mcp_types.InputRequiredResult(
            input_requests={"name": mcp_types.ElicitRequest(params=asked)}, request_state="asked"
        )
    return f"hello {ctx.input_responses['name'].content['name']}"


server.run(show_banner=False, log_level="CRITICAL")
