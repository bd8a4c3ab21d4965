"""trio_mcp's client and server with tasks: calls that become tasks, and calls of servers that only declare them."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.contenders.our_memory import MODERN_VERSION, encoded_link
from trio_mcp import Client, Server
from trio_mcp.extensions import Apps, Skills, TaskPolicy, Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

# The interval is the shortest that a client keeps. No call here needs to wait for it.
AT_ONCE = TaskPolicy(after=0, poll=0.05)


def build_server(kind: str = "none", *file: str) -> Server:
    """Return a server without extensions, with a page and a skill that no client asks for (``extensions``), or with
    tasks in stores: ``memory``, or ``sqlite`` with a file.
    """
    has_tasks = kind in ("memory", "sqlite")
    if kind == "none":
        server = Server("benchmark", version="1.0.0")
    elif kind == "extensions":
        apps, skills = Apps(), Skills()
        apps.page("ui://clock/face")(lambda: "<!doctype html>")
        skills.dynamic("skill://daily/SKILL.md", description="What is new today")(lambda: "Nothing.")
        server = Server("benchmark", version="1.0.0", extensions=[apps, skills])
    else:
        from trio_mcp.stores import MemoryStores, SqliteStores

        stores = SqliteStores(*file, durable="process") if kind == "sqlite" else MemoryStores()
        server = Server("benchmark", version="1.0.0", stores=stores, extensions=[Tasks()])

    async def add(a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    # Both tools are the same; a server without tasks offers as many, so that the lists are as long.
    server.add_tool(add)
    server.add_tool(add, name="add_task", task=AT_ONCE if has_tasks else None)
    return server


@asynccontextmanager
async def connect(variant: str, target: str, *stores: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that adds two numbers.

    Args:
        variant: ``call``, ``list`` (which lists the tools and adds by itself), ``idle`` (which calls the tool that may
            become a task, by a client without the extension) or ``task``.
        target: The URL of a server, or ``memory``.
        stores: The arguments of `build_server`, for a server in memory.
    """
    tool = "add_task" if variant in ("idle", "task") else "add"
    extensions: list[Any] = [Tasks()] if variant == "task" else []
    async with AsyncExitStack() as stack:
        where: Any = target
        if target == "memory":
            server = build_server(*stores)
            where = lambda: encoded_link(server)  # noqa: E731
        client = await stack.enter_async_context(Client(where, mode=MODERN_VERSION, extensions=extensions))

        async def call(a: int, b: int) -> int:
            if variant == "list":
                await client.request("tools/list", {})
                return a + b
            result = await client.call_tool(tool, {"a": a, "b": b})
            return result.data  # type: ignore[no-any-return]

        yield call
