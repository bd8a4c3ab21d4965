"""A server on a real socket, and a raw HTTP client that speaks the handshake era."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import trio
from pydantic import BaseModel
from pydantic_core import from_json

from trio_mcp import Context, Server
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.sse import EventDecoder, ServerSentEvent

LATEST = "2025-11-25"
ACCEPT = "application/json, text/event-stream"


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


class Raw:
    """A client of one session, as any HTTP client could be."""

    def __init__(self, http: httpx.AsyncClient, path: str = "/mcp") -> None:
        self.http = http
        self.path = path
        self.session: str | None = None
        self.revision: str | None = None

    def headers(self, **more: str) -> dict[str, str]:
        headers = {"accept": ACCEPT}
        if self.session is not None:
            headers["mcp-session-id"] = self.session
        if self.revision is not None:
            headers["mcp-protocol-version"] = self.revision
        return headers | {name.replace("_", "-"): value for name, value in more.items()}

    async def initialize(self, revision: str = LATEST, **capabilities: Any) -> dict[str, Any]:
        params = {
            "protocolVersion": revision,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
        r = await self.post("initialize", params, id=0)
        assert r.status_code == 200, r.text
        self.session = r.headers.get("mcp-session-id")
        self.revision = revision if revision != "2025-03-26" else None
        assert (await self.notify("notifications/initialized")).status_code == 202
        result: dict[str, Any] = r.json()["result"]
        return result

    async def post(self, method: str, params: dict[str, Any] | None = None, *, id: int = 1, **more: str) -> Any:
        return await self.send(request(method, params, id), **more)

    async def send(self, body: Any, **more: str) -> httpx.Response:
        return await self.http.post(self.path, json=body, headers=self.headers(**more))

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> httpx.Response:
        body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
        return await self.send(body if params is None else {**body, "params": params})

    def call(self, tool: str, arguments: dict[str, Any] | None = None, *, id: int = 1, token: Any = "t") -> Any:
        params = {"name": tool, "arguments": arguments or {}, "_meta": {"progressToken": token}}
        body = request("tools/call", params, id)
        return self.http.stream("POST", self.path, json=body, headers=self.headers())

    def listen(self, last: str | None = None) -> Any:
        more = {} if last is None else {"last_event_id": last}
        return self.http.stream("GET", self.path, headers={**self.headers(**more), "accept": "text/event-stream"})


def request(method: str, params: dict[str, Any] | None, id: int) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": id, "method": method}
    return body if params is None else {**body, "params": params}


class Events:
    """The events of a response."""

    def __init__(self, response: httpx.Response) -> None:
        self.decoder = EventDecoder()
        self._iterator = self._read(response)

    async def _read(self, response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
        assert response.headers["content-type"] == "text/event-stream", (response.status_code, response.headers)
        async for chunk in response.aiter_bytes():
            for event in self.decoder.feed(chunk):
                assert isinstance(event, ServerSentEvent)
                yield event

    def __aiter__(self) -> AsyncIterator[ServerSentEvent]:
        return self._iterator

    async def next(self) -> ServerSentEvent:
        return await anext(self._iterator)

    async def message(self) -> Any:
        while not (event := await self.next()).data:
            pass
        return from_json(event.data)

    async def messages(self) -> list[Any]:
        return [from_json(event.data) async for event in self._iterator if event.data]


@contextlib.asynccontextmanager
async def served(
    options: HttpOptions | None = None, made: Made | None = None, **arguments: Any
) -> AsyncIterator[tuple[Made, httpx.AsyncClient, trio.Event]]:
    made, stop = made or Made(), trio.Event()
    serve = partial(made.server.serve_http, port=0, options=options, shutdown=stop.wait, **arguments)
    with trio.fail_after(30):
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
