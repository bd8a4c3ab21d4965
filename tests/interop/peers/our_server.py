"""A server for other people's clients: the tools of official_server.py, with our own public API.

It serves stdio, or HTTP as one of several processes behind nginx.
"""

from __future__ import annotations

import base64
import os
from collections import defaultdict
from pathlib import Path
from typing import Literal

import trio
from pydantic import BaseModel, Field

from tests.round_robin import SHARED, shared
from trio_mcp import Context, Server, ToolError, types

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")

DOUBLING = "com.example/doubling"

server = Server(
    "our-peer",
    version="1-peer",
    instructions="Call any tool.",
    extensions={DOUBLING: {"limit": 100}},
    **shared(),
)
events: list[str] = []
recorded: defaultdict[str, trio.Event] = defaultdict(trio.Event)
ledger = Path(os.environ[SHARED], "events") if SHARED in os.environ else None
"""Where the events of several processes are."""


def record(event: str) -> None:
    events.append(event)
    recorded[event].set()
    if ledger is not None:
        with ledger.open("a") as file:
            file.write(f"{event}\n")


class Weather(BaseModel):
    city: str
    celsius: float


class DoubleParams(BaseModel):
    number: int


@server.method("com.example/double", params=DoubleParams, extension=DOUBLING)
async def double(params: DoubleParams, ctx: Context) -> dict[str, int]:
    return {"doubled": 2 * params.number}


@server.tool(annotations=types.ToolAnnotations(read_only_hint=True))
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool
async def echo(text: str) -> str:
    """Return the text unchanged."""
    return text


@server.tool
async def slow(seconds: float, ctx: Context) -> str:
    """Report that the work began, sleep, and record a cancellation."""
    await ctx.report_progress(1, 2, "started")
    try:
        await trio.sleep(seconds)
    except trio.Cancelled:
        record("slow cancelled")
        raise
    record("slow finished")
    return "slept"


@server.tool(name="events")
async def recorded_events(until: str) -> list[str]:
    """Wait until the named event has been recorded, then return all of them."""
    if ledger is None:
        await recorded[until].wait()
        return events
    while not ledger.exists() or until not in ledger.read_text().splitlines():  # noqa: ASYNC110
        await trio.sleep(0.01)
    return ledger.read_text().splitlines()


@server.tool
async def progress(n: int, ctx: Context) -> str:
    """Report n steps."""
    for step in range(1, n + 1):
        await ctx.report_progress(step, n, f"step {step}")
    return f"{n} steps"


@server.tool
async def fail() -> str:
    """Fail with a message for the caller."""
    raise ToolError("this tool always fails")


@server.tool
async def crash() -> str:
    """Fail by accident."""
    raise ZeroDivisionError("a secret of the server")


@server.tool
async def weather(city: str) -> Weather:
    """Return structured content."""
    return Weather(city=city, celsius=21.5)


@server.tool
async def picture() -> types.ImageContent:
    """Return a one-pixel PNG."""
    return types.ImageContent(data=base64.b64encode(PIXEL).decode(), mime_type="image/png")


@server.tool
async def chatty(words: list[str], ctx: Context) -> str:
    """Log each word at level info."""
    for word in words:
        await ctx.log("info", word, logger="chatty")
    return "logged"


@server.resource("peer://{name}")
def document(name: str) -> str:
    """A text."""
    return name


@server.prompt
def greeting(name: str) -> str:
    """Greet a person."""
    return f"Greet {name}."


@server.completion(prompt="greeting", argument="name")
def names(value: str) -> list[str]:
    return [name for name in ("Ada", "Alan", "Grace") if name.startswith(value)]


@server.tool
async def announce(uri: str) -> str:
    """Say that the lists of tools and of prompts and one resource have changed (to those who listen)."""
    server.notify_tools_changed()
    server.notify_prompts_changed()
    server.notify_resource_updated(uri)
    return "announced"


class Colour(BaseModel):
    colour: Literal["red", "green", "blue"]


class Stay(BaseModel):
    nights: int = Field(ge=1, le=30, title="Nights")
    breakfast: bool = True
    extras: list[Literal["towel", "map"]] = []


@server.tool
async def ask(ctx: Context) -> str:
    """Ask the user a question."""
    answer = await ctx.elicit("Which colour?", Colour)
    return f"painted {answer.data.colour}" if answer.data else answer.action


async def interview(ctx: Context) -> str:
    """Ask the user twice, the model, and for the roots."""
    record("interview")
    colour = await ctx.elicit("Which colour?", Colour)
    stay = await ctx.elicit("How long?", Stay)
    if colour.data is None or stay.data is None:
        return f"{colour.action}, {stay.action}"
    reply, roots = await ctx.gather(ctx.sample("Say hello.", max_tokens=10), ctx.list_roots())
    (block,) = reply.content_as_list
    said = block.text if isinstance(block, types.TextContent) else block.type
    return f"{colour.data.colour}, {stay.data.nights}, {stay.data.extras}, {said}, {roots[0].uri}"


server.add_tool(interview)
server.add_tool(interview, name="parked_interview", park_input=True)


@server.tool
def ask_page(ctx: Context) -> str:
    """Ask the user, from a thread, to visit a page."""
    answer = trio.from_thread.run(lambda: ctx.elicit_url("Sign in", "https://example.com/in", elicitation_id="page-1"))
    return answer.action


if __name__ == "__main__":
    if ledger is not None:
        # The TypeScript client comes back for a call that it has cancelled: it reports that its session is gone if it
        # does so right after its DELETE, and its process does not end before it would do so.
        server.run("http", port=0, retry=5)
    else:
        server.run()
