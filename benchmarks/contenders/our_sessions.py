"""trio_mcp's sessions alone; the difference to `Client` and `Server` is the cost of the layers above."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from typing_extensions import TypedDict  # pydantic needs this one before Python 3.12

from trio_mcp.eras.server_negotiation import ServerIdentity
from trio_mcp.low_level import ClientSession, ServerSession, memory_link_pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from trio_mcp.low_level import RequestContext


class AddArguments(TypedDict):
    a: int
    b: int


ADD_ARGUMENTS: TypeAdapter[AddArguments] = TypeAdapter(AddArguments)


IDENTITY = ServerIdentity({"name": "benchmark", "version": "1.0.0"}, lambda revision: {"tools": {}})


async def add(a: int, b: int) -> int:
    return a + b


async def _call_tool(params: dict[str, Any], context: RequestContext) -> dict[str, Any]:
    del context
    value = await add(**ADD_ARGUMENTS.validate_python(params["arguments"]))
    text = {"type": "text", "text": str(value)}
    return {"content": [text], "structuredContent": {"result": value}, "isError": False}


@asynccontextmanager
async def connect(variant: str) -> AsyncIterator[Callable[[int, int], Awaitable[int]]]:
    """Yield a function that calls ``add`` through a pair of sessions; `variant` is the era."""
    async with (
        memory_link_pair(encode=True) as (client_end, server_end),
        ServerSession(*server_end, identity=IDENTITY) as server,
        ClientSession(*client_end) as client,
    ):
        server.add_request_handler("tools/call", _call_tool)
        await (client.initialize() if variant == "legacy" else client.discover())

        async def call(a: int, b: int) -> int:
            result = await client.send_request("tools/call", {"name": "add", "arguments": {"a": a, "b": b}})
            return result["structuredContent"]["result"]  # type: ignore[no-any-return]

        yield call
