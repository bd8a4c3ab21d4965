"""A stdio server on the official Python SDK, for our client. It serves both eras."""

from __future__ import annotations

import base64
import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Any

import anyio
from mcp import MCPDeprecationWarning
from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import (
    Context,
    Elicit,
    Image,
    ListRoots,
    MCPServer,
    Resolve,
    Sample,
    require_client_extension,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import (
    CreateMessageResult,
    ListRootsResult,
    RequestParams,
    SamplingMessage,
    TextContent,
    ToolAnnotations,
)
from pydantic import BaseModel

# Log notifications are deprecated by the 2026-07-28 revision, and peers still send them.
warnings.simplefilter("ignore", MCPDeprecationWarning)

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")


class DoubleParams(RequestParams):
    number: int


async def double(ctx: ServerRequestContext[Any, Any], params: DoubleParams) -> dict[str, Any]:
    require_client_extension(ctx, Doubling.identifier)
    return {"doubled": 2 * params.number}


class Doubling(Extension):
    identifier = "com.example/doubling"

    def settings(self) -> dict[str, Any]:
        return {"limit": 100}

    def methods(self) -> Sequence[MethodBinding]:
        return [MethodBinding("com.example/double", DoubleParams, double)]


server = MCPServer(
    "official-peer",
    version="2.3-peer",
    instructions="Call any tool.",
    log_level="CRITICAL",
    extensions=[Doubling()],
)
events: list[str] = []
recorded: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)


def record(event: str) -> None:
    events.append(event)
    recorded[event].set()


class Weather(BaseModel):
    city: str
    celsius: float


class Colour(BaseModel):
    colour: str


async def which_colour() -> Elicit[Colour]:
    return Elicit("Which colour?", Colour)


async def a_word() -> Sample:
    content = TextContent(type="text", text="Say a word.")
    return Sample([SamplingMessage(role="user", content=content)], max_tokens=5)


async def which_roots() -> ListRoots:
    return ListRoots()


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
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
    record("slow finished")
    return "slept"


@server.tool(name="events")
async def recorded_events(until: str) -> list[str]:
    """Wait until the named event has been recorded, then return all of them."""
    await recorded[until].wait()
    return events


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
    """Say that the lists of tools and of prompts and one resource have changed (to those who listen)."""
    await ctx.notify_tools_changed()
    await ctx.notify_prompts_changed()
    await ctx.notify_resource_updated(uri)
    return "announced"


@server.tool()
async def ask(answer: Annotated[Colour, Resolve(which_colour)]) -> str:
    """Ask the user a question: a request in the legacy era, an input round in the stateless one."""
    return f"painted {answer.colour}"


@server.tool()
async def ask_everything(
    answer: Annotated[Colour, Resolve(which_colour)],
    said: Annotated[CreateMessageResult, Resolve(a_word)],
    roots: Annotated[ListRootsResult, Resolve(which_roots)],
) -> str:
    """Ask the user, the model, and for the roots."""
    return f"{answer.colour}, {said.content.text}, {roots.roots[0].uri}"


if __name__ == "__main__":
    server.run()
