"""Our own server with something of everything, over each transport: ``python -m tests.kit.own --examples 5000``."""

from __future__ import annotations

import argparse
import base64
import contextlib
import logging
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import trio
from pydantic import BaseModel, Field

from tests import forks
from tests.kit.mutants.protected import OwnJobs, Protected
from tests.kit.mutants.server import LEGACY, MODERN, Twin
from tests.kit.mutants.targets import in_memory, over_sockets, process
from tests.listening import on_held_port
from trio_mcp import (
    Context,
    HttpServerParameters,
    ListOptions,
    McpError,
    MemoryEventStore,
    Server,
    StdioServerParameters,
    ToolError,
    types,
)
from trio_mcp._nursery import background_nursery
from trio_mcp.auth import ResourceServer
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.conformance.credentials import credentials_for
from trio_mcp.conformance.engine import check_server
from trio_mcp.conformance.outcomes import CheckReport
from trio_mcp.conformance.wires.targets import WireTarget, open_wire_for
from trio_mcp.extensions import Apps, Csp, Skills, TaskPolicy, Tasks

PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=")
FOLDER = Path(__file__).parents[2] / "examples" / "skills"
SUM = "ui://own/sum"
READS = types.ToolAnnotations(read_only_hint=True)


class Sum(BaseModel):
    """Structured content."""

    total: int


class Colour(BaseModel):
    """A form."""

    colour: Literal["red", "green"]


def make_server() -> Server:
    """Make a server of everything."""
    apps = Apps()
    server = Server(
        "own",
        version="1",
        instructions="Call anything.",
        lists=ListOptions(page_size=3),
        extensions=[Tasks(), apps, Skills(FOLDER)],
    )
    tool = partial(server.tool, annotations=READS)

    @apps.page(SUM, csp=Csp(connect=["https://own.example"]), permissions=["camera"], prefers_border=True)
    def page() -> str:
        """Show a sum."""
        return "<!doctype html><p>A sum"

    @tool(app=SUM)
    async def add(a: int, b: int) -> Sum:
        """Add two integers."""
        return Sum(total=a + b)

    @tool()
    async def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})] = "none") -> str:
        """Take an argument that is a header, too."""
        return region

    @tool()
    async def slow(steps: Annotated[int, Field(ge=1, le=4)], ctx: Context) -> str:
        """Report progress, and log."""
        for step in range(steps):
            await trio.sleep(0.02)
            await ctx.report_progress(step + 1, steps)
            await ctx.log("info", f"step {step}")
        return "done"

    @tool()
    async def fail() -> str:
        """Fail."""
        raise ToolError("it failed")

    @tool()
    def picture() -> types.ImageContent:
        """Return a picture, from a thread."""
        return types.ImageContent(data=base64.b64encode(PIXEL).decode(), mime_type="image/png")

    @tool()
    async def touch(name: Literal["one", "two"]) -> str:
        """Tell that a resource has changed."""
        server.notify_resource_updated(f"memo://{name}")
        return name

    @tool()
    async def change() -> str:
        """Tell that the lists have changed."""
        server.notify_tools_changed()
        server.notify_prompts_changed()
        server.notify_resources_changed()
        return "changed"

    @tool()
    async def ask(ctx: Context) -> str:
        """Ask the user."""
        return (await ctx.elicit("Which colour?", Colour)).action

    _add_texts(server)
    _add_tasks(server)
    return server


def _add_tasks(server: Server) -> None:
    at_once = TaskPolicy(after=0, poll=0.05)
    tool = partial(server.tool, annotations=READS)

    @tool(task=at_once)
    async def count(steps: Annotated[int, Field(ge=1, le=3)], ctx: Context) -> str:
        """Report progress, as a task."""
        for step in range(steps):
            await ctx.report_progress(step + 1, steps, "counting")
            await trio.sleep(0.01)
        return "done"

    @tool(task=attrs.evolve(at_once, mode="required"))
    async def choose(ctx: Context) -> str:
        """Ask the user twice, as a task."""
        first = await ctx.elicit("Which colour?", Colour)
        return f"{first.action}, {(await ctx.elicit('And which else?', Colour)).action}"

    @tool(task=attrs.evolve(at_once, mode="required"))
    async def stumble() -> str:
        """Fail, as a task."""
        raise ToolError("it failed")

    @tool(task=at_once)
    async def collapse() -> str:
        """Fail by a JSON-RPC error, as a task."""
        raise McpError(7, "it collapsed")

    @tool(task="manual")
    async def order(ctx: Context) -> str:
        """Ask in a round of the call, and become a task then."""
        wanted = await ctx.elicit("Which colour?", Colour)
        await ctx.detach()
        return wanted.action


def _add_texts(server: Server) -> None:
    for name in ("one", "two", "three"):
        server.add_resource(f"memo://{name}", _memo(name), name=name)

    @server.resource("memo://picture", mime_type="image/png")
    async def picture_resource() -> bytes:
        """A picture."""
        return PIXEL

    @server.resource("note://{name}")
    async def note(name: str) -> str:
        """A note of any name."""
        return name

    @server.prompt
    async def greet(name: str) -> str:
        """Greet a person."""
        return f"Greet {name}."

    @server.prompt
    async def hello() -> str:
        """Say hello."""
        return "Say hello."

    @server.completion(prompt="greet", argument="name")
    def names(value: str) -> list[str]:
        return [f"name{number}" for number in range(150) if f"name{number}".startswith(value)]


def _memo(text: str) -> Callable[[], Awaitable[str]]:
    async def memo() -> str:
        return text

    return memo


@attrs.frozen
class Place:
    """A server over a transport.

    Attributes:
        opened: Serves, and yields what `check_server` takes.
        revisions: What is spoken there.
    """

    opened: Callable[[], contextlib.AbstractAsyncContextManager[Any]]
    revisions: tuple[str, ...] = (LEGACY[-1], MODERN)


@contextlib.asynccontextmanager
async def _here(target: Any) -> AsyncIterator[Any]:
    await trio.lowlevel.checkpoint()
    yield target


@contextlib.asynccontextmanager
async def _served(serve: Callable[..., Awaitable[None]], target: Callable[[str], Any] = str) -> AsyncIterator[Any]:
    async with background_nursery() as nursery:
        yield target(await nursery.start(partial(serve, make_server())))


@contextlib.asynccontextmanager
async def _unix() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        async with background_nursery() as nursery:
            yield await nursery.start(partial(make_server().serve_unix, f"{folder}/socket"))


@contextlib.asynccontextmanager
async def _protected() -> AsyncIterator[WireTarget]:
    """Serve a server that wants tokens, and an authorization server that makes them."""
    server, authority = make_server(), AuthorizationServer()

    @server.tool(annotations=READS, scopes=["write"])
    async def write(text: str) -> str:
        """Need another scope than all the others."""
        return text

    with on_held_port() as (port, config):
        url = f"http://127.0.0.1:{port}/mcp"
        async with authority.served() as issuer, background_nursery() as nursery:
            auth = ResourceServer(url, issuers=[issuer], scopes=["read"])
            serve = partial(server.serve_http, config=config, auth=auth, event_store=MemoryEventStore())
            await nursery.start(serve)
            yield WireTarget(url, open_wire_for(url, credentials=credentials_for({}, authority)))


def _stdio() -> StdioServerParameters:
    command, *arguments = forks.command("tests.kit.own", "tests.kit.own")
    return StdioServerParameters(command, [*arguments, "--serve"])


OWN: dict[str, Place] = {
    "memory": Place(lambda: _here(make_server())),
    "stdio": Place(lambda: _here(_stdio())),
    "tcp": Place(partial(_served, partial(Server.serve_tcp, port=0))),
    "unix": Place(_unix),
    "websocket": Place(partial(_served, partial(Server.serve_websocket, port=0))),
    "http": Place(partial(_served, partial(Server.serve_http, port=0))),
    "http with tokens": Place(_protected),
    "http by hypercorn": Place(partial(_served, partial(Server.serve_http, port=0, runner="hypercorn"))),
    "sse": Place(
        partial(_served, partial(Server.serve_sse, port=0), partial(HttpServerParameters, kind="sse")), LEGACY[:1]
    ),
}
"""Our own server, by transport."""

TWINS: dict[str, Place] = {
    "twin over lines in memory": Place(lambda: in_memory(Twin(), "lines")),
    "twin over HTTP in memory": Place(lambda: in_memory(Twin(), "http")),
    "protected twin over HTTP in memory": Place(lambda: in_memory(Twin(OwnJobs, web=Protected), "http")),
    "twin over stdio": Place(lambda: _here(process())),
    "twin over TCP": Place(lambda: over_sockets(Twin(), "tcp")),
    "twin over HTTP": Place(lambda: over_sockets(Twin(), "http")),
    "twin over WebSocket": Place(lambda: over_sockets(Twin(), "ws")),
}
"""The healthy twins of the mutants."""


async def check(place: Place, examples: int, *, time: float = 600.0, seed: int = 0) -> CheckReport:
    """Check a server with every rule."""
    async with place.opened() as target:
        return await check_server(
            target, revisions=place.revisions, examples=examples, time=time, seed=seed, allow_writes=True
        )


async def main(examples: int, seed: int) -> int:
    """Check all of them, print what came of it, and return how many rules were broken."""
    broken = 0
    for name, place in (OWN | TWINS).items():
        report = await check(place, examples, time=3600.0, seed=seed)
        held = sum(outcome.status == "held" for outcome in report.outcomes)
        figures = f"{report.examples} examples, {report.requests} requests, {report.seconds:.0f} s, {report.ended}"
        print(f"{name}: {held} rules held; {figures}", *report.notes, sep="\n  ")
        for outcome in report.broken:
            print(f"  BROKEN {outcome.rule.id}: {outcome.failure and outcome.failure.problem}")
        broken += len(report.broken) + (report.ended != "complete")
    return broken


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve", action="store_true", help="serve over standard input and output")
    parser.add_argument("--examples", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)  # of what the kit sends
    if chosen.serve:
        make_server().run()
    else:
        sys.exit(bool(trio.run(main, chosen.examples, chosen.seed)))
