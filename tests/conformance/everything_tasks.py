"""The tools that the suite calls as tasks (SEP-2663); each becomes one at once, so that no scenario waits."""

from __future__ import annotations

import trio
from pydantic import BaseModel

from trio_mcp import Context, McpError, Server, ToolError
from trio_mcp.extensions import TaskPolicy

AT_ONCE = TaskPolicy(after=0, poll=0.2)


class Confirmation(BaseModel):
    confirm: bool


class Name(BaseModel):
    name: str


class Signature(BaseModel):
    name: str
    confirm: bool


def add_tasks(server: Server) -> None:
    """Add the tools."""

    @server.tool
    async def greet(name: str = "world") -> str:
        """Return a greeting, at once."""
        return f"Hello, {name}!"

    @server.tool(task=AT_ONCE)
    async def slow_compute(seconds: float = 1.0, label: str = "") -> str:
        """Take some time."""
        await trio.sleep(seconds)
        return f"{label} took {seconds:g} s"

    @server.tool(task=TaskPolicy(mode="required", after=0, poll=0.2))
    async def failing_job() -> str:
        """Fail after a second, as a tool does."""
        await trio.sleep(1)
        raise ToolError("the job failed, as it always does")

    @server.tool(task=AT_ONCE)
    async def protocol_error_job() -> str:
        """Fail with a JSON-RPC error."""
        await trio.sleep(0.1)
        raise McpError(-32603, "the job failed with a JSON-RPC error, as it always does")

    @server.tool(task=AT_ONCE)
    async def confirm_delete(filename: str, ctx: Context) -> str:
        """Ask before deleting."""
        answer = await ctx.elicit(f"Delete {filename}?", Confirmation)
        return f"{filename} deleted" if answer.data is not None and answer.data.confirm else f"{filename} kept"

    @server.tool(task=AT_ONCE)
    async def multi_input(ctx: Context) -> str:
        """Ask two questions at once."""
        first, second = await ctx.gather(ctx.elicit("Your name?", Signature), ctx.elicit("A witness?", Signature))
        return f"{first.data} and {second.data}"

    @server.tool(task="manual")
    async def test_tool_with_task(ctx: Context) -> str:
        """Ask in a round of the call, then go on as a task."""
        user = await ctx.elicit("Your name?", Name, key="user_name")
        await ctx.detach()
        return f"done for {user.data}"
