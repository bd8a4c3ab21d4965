"""The modern era over HTTP, as any HTTP client sees it (2026-07-28 `basic/transports/streamable-http`)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import trio
from pydantic_core import from_json

from tests.http_peer import Events
from trio_mcp import Context, Server
from trio_mcp.types import error_codes

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def post(client: httpx.AsyncClient, method: str, params: dict[str, Any] | None = None, **meta: Any) -> Any:
    """Send a request of the modern era; the response is a stream."""
    params = {**(params or {}), "_meta": {**META, **meta}}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
    }
    for name in ("name", "uri"):
        if name in params:
            headers["mcp-name"] = params[name]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return client.stream("POST", "/mcp", json=body, headers=headers)


class Made:
    """A server whose handlers tell what happens to them."""

    def __init__(self) -> None:
        self.server = Server("test", version="1.0")
        self.started, self.cancelled = trio.Event(), trio.Event()
        self.reason: str | None = None

        @self.server.tool
        async def add(a: int, b: int) -> int:
            return a + b

        @self.server.tool
        async def count(to: int, ctx: Context) -> int:
            for number in range(to):
                await ctx.report_progress(number + 1, to)
            return to

        @self.server.tool
        async def endless(stream: bool, ctx: Context) -> None:
            if stream:
                await ctx.report_progress(1)
            self.started.set()
            try:
                await trio.sleep_forever()
            except trio.Cancelled as exc:
                self.reason = str(exc)
                self.cancelled.set()
                raise


@contextlib.asynccontextmanager
async def served(**arguments: Any) -> AsyncIterator[tuple[Made, httpx.AsyncClient, trio.Event]]:
    made, stop = Made(), trio.Event()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(made.server.serve_http, port=0, shutdown=stop, **arguments))
            async with httpx.AsyncClient(base_url=url.removesuffix("/mcp")) as client:
                yield made, client, stop
            nursery.cancel_scope.cancel()


async def test_a_response_that_needs_no_stream_is_one_json_text() -> None:
    """Sending Messages, 6."""
    async with (
        served() as (_, client, _),
        post(client, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}) as r,
    ):
        assert (r.status_code, r.headers["content-type"]) == (200, "application/json")
        assert from_json(await r.aread())["result"]["structuredContent"] == {"result": 3}


async def test_a_notification_before_the_response_makes_it_a_stream_that_the_response_ends() -> None:
    """Receiving Messages: the response SHOULD terminate the stream; proxies are told not to hold it back."""
    async with (
        served() as (_, client, _),
        post(client, "tools/call", {"name": "count", "arguments": {"to": 3}}, progressToken=7) as r,
    ):
        assert (r.status_code, r.headers["content-type"]) == (200, "text/event-stream")
        assert r.headers["x-accel-buffering"] == "no"
        *progress, answer = await Events(r).messages()
    assert [message["params"]["progress"] for message in progress] == [1, 2, 3]
    assert answer["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("stream", [True, False])
async def test_the_end_of_the_response_stream_cancels_the_handler(stream: bool) -> None:
    """Cancellation: closing the response stream MUST be treated as cancellation, before and after it has begun."""
    async with served() as (made, client, _):
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                arguments = {"name": "endless", "arguments": {"stream": stream}}
                async with post(client, "tools/call", arguments, progressToken=1) as r:
                    await r.aread()

            nursery.start_soon(call)
            await made.started.wait()
            nursery.cancel_scope.cancel()
        await made.cancelled.wait()
        assert made.reason is not None
        assert "closed the response stream" in made.reason


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    """Earlier Streamable HTTP Revisions: GET and DELETE have no meaning in this revision."""
    async with served() as (_, client, _):
        r = await client.request(method, "/mcp", headers={"mcp-protocol-version": "2026-07-28"})
    assert r.status_code == 405
    assert "POST" in r.headers["allow"]


async def test_a_notification_is_accepted_without_a_body() -> None:
    """Sending Messages, 5."""
    async with served() as (_, client, _):
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        r = await client.post("/mcp", json=body, headers=headers)
    assert (r.status_code, r.content) == (202, b"")


async def test_a_tool_with_an_invalid_header_annotation_is_served_and_its_author_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """2026-07-28 `basic/transports/streamable-http`, Schema Extension: which headers its calls have can't be known."""
    server = Server("test")

    @server.tool(input_schema={"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "A"}}})
    async def wrong(a: Any = None) -> str:
        return "served"

    async with (
        server.asgi_app() as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client,
    ):
        for _ in range(2):
            async with post(client, "tools/call", {"name": "wrong", "arguments": {}}) as response:
                assert response.status_code == 200
                assert from_json(await response.aread())["result"]["structuredContent"] == {"result": "served"}
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "'wrong'" in record.getMessage()
    assert "only for the types string, integer, boolean" in record.getMessage()


async def test_an_unknown_method_is_404_with_its_code() -> None:
    """Protocol Version Header: 404 and -32601."""
    async with served() as (_, client, _), post(client, "com.example/nothing") as r:
        error = from_json(await r.aread())["error"]
    assert (r.status_code, error["code"]) == (404, error_codes.METHOD_NOT_FOUND)


async def test_a_body_that_is_too_large_is_refused_and_the_server_lives_on() -> None:
    """Hostile input costs other clients nothing."""
    from trio_mcp.http.server.options import HttpOptions

    async with served(options=HttpOptions(max_message_size=1000)) as (_, client, _):
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        r = await client.post("/mcp", content=b"x" * 200_000, headers=headers)
        assert r.status_code == 413
        assert "max_message_size=1000" in r.text

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(50):
                yield b"x" * 1000

        r = await client.post("/mcp", content=chunks(), headers=headers)
        assert r.status_code == 413
        async with post(client, "tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}) as r:
            assert r.status_code == 200


async def test_a_foreign_host_is_refused_with_its_name_and_the_setting() -> None:
    """Security & Endpoint, 1: against DNS rebinding."""
    async with served() as (_, client, _):
        r = await client.post("/mcp", json={}, headers={"host": "evil.example"})
    assert r.status_code == 403
    assert "evil.example" in r.text
    assert "allowed_hosts" in r.text


async def test_listening_ends_with_a_result_when_the_server_ends() -> None:
    """`basic/patterns/subscriptions`, Graceful Closure."""
    async with (
        served() as (made, client, stop),
        post(client, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}) as r,
    ):
        stream = Events(r)
        assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        made.server.remove_tool("add")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        stop.set()
        last = await stream.message()
        assert last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
        assert await stream.messages() == []


async def test_the_health_endpoint_tells_whether_work_is_taken() -> None:
    """A load balancer asks it before it sends requests."""
    async with served() as (_, client, _):
        r = await client.get("/health")
        assert (r.status_code, r.json()) == (200, {"status": "ok"})
