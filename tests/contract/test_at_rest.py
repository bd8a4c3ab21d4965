"""A link at rest holds none of the long messages that have gone through it: a thousand such would fill the memory."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from tests.waiting import eventually
from tests.ways import over_tcp
from tests.websocket.ways import serving
from trio_mcp import Answers, Client, Context, HttpServerParameters, Server, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.types import ElicitResult

SIZE = 300_000


class Name(BaseModel):
    """What the user is asked for."""

    name: str


def make_server() -> Server:
    server = Server("long messages")

    @server.resource("long://text")
    def text() -> str:
        return "x" * SIZE

    @server.prompt
    def review(what: str) -> str:
        return str(len(what))

    @server.tool
    async def tell_and_wait(ctx: Context) -> None:
        await ctx.log("info", "x" * SIZE)
        await trio.sleep_forever()

    @server.tool
    async def ask(ctx: Context) -> None:
        await ctx.elicit("x" * SIZE, Name)

    return server


@contextlib.asynccontextmanager
async def in_memory(server: Server) -> AsyncIterator[Any]:
    yield server


@contextlib.asynccontextmanager
async def over_stdio(server: Server) -> AsyncIterator[Any]:
    program = f"import trio; from {__name__} import make_server; trio.run(make_server().serve_stdio)"
    yield StdioServerParameters(sys.executable, ["-c", program])


@contextlib.asynccontextmanager
async def over_http(server: Server) -> AsyncIterator[Any]:
    async with background_nursery() as nursery:
        yield await nursery.start(partial(server.serve_http, port=0))


@contextlib.asynccontextmanager
async def over_sse(server: Server) -> AsyncIterator[Any]:
    async with background_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, port=0, sse_path="/sse"))
        yield HttpServerParameters(url.replace("/mcp", "/sse"), kind="sse")


WAYS = {
    "memory": in_memory,
    "stdio": over_stdio,
    "TCP": over_tcp,
    "WebSocket": serving,
    "HTTP": over_http,
    "HTTP+SSE": over_sse,
}
# HTTP+SSE belongs to the legacy era alone.
LINKS = [
    pytest.param(way, mode, marks=pytest.mark.legacy if (way.startswith("HTTP") and mode == "legacy") else ())
    for way in WAYS
    for mode in ("2026-07-28", "legacy")
    if (way, mode) != ("HTTP+SSE", "2026-07-28")
]


class Watch:
    """A look at what has been made since: which of it refers to long texts."""

    def __init__(self) -> None:
        gc.collect()
        self._before = set(map(id, gc.get_objects()))

    def holders(self) -> list[str]:
        """Tell what refers to long texts, frames of waiting tasks included."""
        gc.collect()
        found: list[str] = []
        level: list[object] = [each for each in gc.get_objects() if id(each) not in self._before]
        seen: set[int] = set()
        while level:
            below: list[object] = []
            for holder in level:
                for each in gc.get_referents(holder):
                    if isinstance(each, (str, bytes, bytearray)) and len(each) >= SIZE:
                        found.append(f"{type(holder).__qualname__}: {str(holder)[:100]}")
                    # The collector does not know of those that hold nothing but texts and numbers.
                    elif isinstance(each, (dict, tuple)) and not gc.is_tracked(each) and id(each) not in seen:
                        seen.add(id(each))
                        below.append(each)
            level = below
        return found

    async def assert_at_rest(self) -> None:
        with trio.move_on_after(5) as limit:
            await eventually(lambda: not self.holders())
        assert not limit.cancelled_caught, self.holders()


def connected(target: Any, mode: str, **settings: Any) -> Client:
    async def answer(question: object) -> ElicitResult:
        return ElicitResult(action="accept", content={"name": "x" * SIZE})

    return Client(target, mode=mode, answers=Answers(elicitation=answer), **settings)


@pytest.mark.parametrize(("way", "mode"), LINKS)
async def test_a_link_at_rest_holds_no_message(way: str, mode: str) -> None:
    watch = Watch()
    async with WAYS[way](make_server()) as target, connected(target, mode) as client:
        await client.read_resource("long://text")  # a long result
        await watch.assert_at_rest()
        await client.get_prompt("review", {"what": "x" * SIZE})  # long parameters
        await watch.assert_at_rest()
        await client.call_tool("ask")  # a long question, and a long answer
        await watch.assert_at_rest()


@pytest.mark.again
@pytest.mark.parametrize(("way", "mode"), LINKS)
async def test_a_call_under_way_holds_no_notification(way: str, mode: str) -> None:
    heard = trio.Event()

    def on_log(notice: object) -> None:
        heard.set()

    watch = Watch()
    async with (
        WAYS[way](make_server()) as target,
        connected(target, mode, log_level="info", on_log=on_log) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.call_tool, "tell_and_wait")
        await heard.wait()
        await watch.assert_at_rest()
        nursery.cancel_scope.cancel()
