"""What type checkers must refuse. Each line names the error of mypy and the one of pyright; where one of them reports
none, the comment itself is an error (`warn_unused_ignores`, `reportUnnecessaryTypeIgnoreComment`). Never run.
"""

# ruff: noqa: F401 -- to import a name that does not exist is one of the errors
from __future__ import annotations

import httpx

from trio_mcp import CallOptions, Client, ClientGroup, Context, HttpOptions, Server, SessionOptions
from trio_mcp.low_level import streamable_http_client
from trio_mcp.types import Tool

server = Server("typed")

# --- Misspelt names, which a visible `__getattr__` would let pass ----------------------------------------------------


def names() -> None:
    from trio_mcp import Clientt  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    from trio_mcp.auth import OAuht  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    from trio_mcp.client import Client  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    from trio_mcp.conformance import check_sever  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    from trio_mcp.server import Server  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    from trio_mcp.testing import FaultProxi  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    from trio_mcp.types import Tol  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# --- Keywords that do not exist: a bundle's, a class's, and those that a TypedDict lists ---------------------------

CallOptions(timout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
SessionOptions(timeout=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
HttpOptions(adress="::1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
server.add_tool(len, titel="Length")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


@server.tool(titel="Add")  # type: ignore[call-overload, untyped-decorator]  # pyright: ignore[reportCallIssue]
def add(a: int) -> int:
    return a


async def keywords(client: Client, group: ClientGroup, ctx: Context) -> None:
    await client.call_tool("add", {"a": 1}, time_out=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await group.call_tool("a__add", time_out=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    ClientGroup.from_config("mcp.json", max_wai=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    server.run("http", bort=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await client.read_resource("x://a", limit=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await ctx.report_progress(1, totl=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --- Values of a wrong type ---------------------------------------------------------------------------------------

CallOptions(timeout="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Client(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
streamable_http_client("https://x", http_client=httpx.Client())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
server.tool("add")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


async def values(client: Client, ctx: Context) -> None:
    await client.call_tool("add", [1])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await client.call_tool("add", timeout="5")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    await ctx.sample("?", max_tokens=1, tols=[len])  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    await ctx.user_state(dict)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await ctx.update_user_state(Tool, lambda tool: None)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
    await ctx.log("loud", "text")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# --- Results are what they are ------------------------------------------------------------------------------------


async def results(client: Client) -> None:
    result = await client.call_tool("add", {"a": 1})
    print(result.structured)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    print(client.instructions.upper())  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    tools: list[Tool] = await client.list_tools()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(tools)
    client.call_tool("add")  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
