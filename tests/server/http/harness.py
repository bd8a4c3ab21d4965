"""A server on a real socket, and a session with it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import trio
from pydantic import BaseModel

from tests.http_peer import LATEST, Raw
from tests.server.http.runners import chosen
from trio_mcp import Context, Server
from trio_mcp.http.server.options import HttpOptions


class Name(BaseModel):
    name: str


class Made:
    """A server whose handlers do what they are told."""

    def __init__(self, **arguments: Any) -> None:
        self.server = Server("test", version="1.0", **arguments)
        self.started, self.cancelled, self.go = trio.Event(), trio.Event(), trio.Event()
        self.finished = trio.Event()
        self.reason: str | None = None
        self.closed: list[bool] = []

        @self.server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool
        async def count(to: int, ctx: Context) -> int:
            for number in range(to):
                await ctx.report_progress(number + 1, to)
            return to

        @self.server.tool
        async def fails() -> None:
            raise ValueError("no")

        @self.server.tool
        async def wait(ctx: Context, progress: int = 0) -> str:
            for number in range(progress):
                await ctx.report_progress(number + 1)
            self.started.set()
            try:
                await self.go.wait()
            except trio.Cancelled as exc:
                self.reason = str(exc)
                self.cancelled.set()
                raise
            self.finished.set()
            return "done"

        @self.server.tool
        async def poll(ctx: Context) -> str:
            await ctx.report_progress(1)
            self.closed.append(ctx.close_stream(retry=0.25))
            self.started.set()
            await self.go.wait()
            await ctx.report_progress(2)
            return "polled"

        @self.server.tool
        async def greet(ctx: Context) -> str:
            answer = await ctx.elicit("Who?", Name)
            return f"Hello, {answer.data and answer.data.name}"


@contextlib.asynccontextmanager
async def served(
    options: HttpOptions | None = None, made: Made | None = None, **arguments: Any
) -> AsyncIterator[tuple[Made, httpx.AsyncClient, trio.Event]]:
    options = HttpOptions(options, runner=chosen.runner())
    made, stop = made or Made(), trio.Event()
    serve = partial(made.server.serve_http, port=0, options=options, shutdown=stop, **arguments)
    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve)
            base = "/".join(url.split("/")[:3])
            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(base_url=base, limits=limits, timeout=30) as client:
                yield made, client, stop
            nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def session(
    options: HttpOptions | None = None, revision: str = LATEST, **capabilities: Any
) -> AsyncIterator[tuple[Made, Raw]]:
    async with served(options) as (made, http, _):
        raw = Raw(http)
        await raw.initialize(revision, **capabilities)
        yield made, raw
