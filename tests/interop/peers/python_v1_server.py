"""A server on the official Python SDK below 2 over WebSocket, on uvicorn. Prints its URL."""

from __future__ import annotations

import base64
import socket
import warnings
from collections import defaultdict

import anyio
import uvicorn
from mcp import types
from mcp.server.fastmcp import Context, FastMCP, Image
from mcp.server.fastmcp.exceptions import ToolError
from pydantic import AnyUrl, BaseModel

warnings.simplefilter("ignore", DeprecationWarning)  # it gives up WebSocket in its version 2
from mcp.server.websocket import websocket_server  # noqa: E402 - after the filter

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")

server = FastMCP("official-peer", instructions="Call any tool.", log_level="CRITICAL")
events: list[str] = []
recorded: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)


class Weather(BaseModel):
    city: str
    celsius: float


class Colour(BaseModel):
    colour: str


def record(event: str) -> None:
    events.append(event)
    recorded[event].set()


@server.tool(annotations=types.ToolAnnotations(readOnlyHint=True))
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool()
async def echo(text: str) -> str:
    """Return the text unchanged."""
    return text


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Report that the work began, sleep, and record a cancellation."""
    await ctx.report_progress(1, 2, "started")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        record("slow cancelled")
        raise
    return "slept"


@server.tool(name="events", structured_output=False)
async def recorded_events(until: str) -> str:
    """Wait until the named event has been recorded, then return all of them."""
    await recorded[until].wait()
    return ", ".join(events)


@server.tool()
async def progress(n: int, ctx: Context) -> str:
    """Report n steps."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n, f"step {step}")
    return f"{n} steps"


@server.tool()
async def fail() -> str:
    """Fail with a message for the caller."""
    raise ToolError("this tool always fails")


@server.tool()
async def crash() -> str:
    """Fail by accident."""
    raise ZeroDivisionError("a secret of the server")


@server.tool()
async def weather(city: str) -> Weather:
    """Return structured content."""
    return Weather(city=city, celsius=21.5)


@server.tool()
async def picture() -> Image:
    """Return a one-pixel PNG."""
    return Image(data=PIXEL, format="png")


@server.tool()
async def chatty(words: list[str], ctx: Context) -> str:
    """Log each word at level info."""
    for word in words:
        await ctx.info(word, logger_name="chatty")
    return "logged"


@server.tool()
async def announce(uri: str, ctx: Context) -> str:
    """Say that the list of tools and one resource have changed."""
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_resource_updated(AnyUrl(uri))
    return "announced"


@server.tool()
async def ask(ctx: Context) -> str:
    """Ask the user a question."""
    answer = await ctx.elicit("Which colour?", Colour)
    if answer.action != "accept":
        raise ToolError(answer.action)
    return f"painted {answer.data.colour}"


async def app(scope, receive, send):  # type: ignore[no-untyped-def]
    if scope["type"] != "websocket":
        return
    low = server._mcp_server  # noqa: SLF001 - there is no other way to give it a transport
    low.version = "1-peer"
    async with websocket_server(scope, receive, send) as streams:
        await low.run(*streams, low.create_initialization_options())


if __name__ == "__main__":
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"ws://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])
