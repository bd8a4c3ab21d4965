"""The modern era over HTTP, as any HTTP client sees it (2026-07-28 `basic/transports/streamable-http`)."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import httpx
import pytest
import trio
from pydantic_core import from_json, to_json

from tests.http_peer import ACCEPT, Events, http_request, request
from tests.server.http.asgi_client import Connection
from tests.server.http.harness import Made, served
from trio_mcp import Context, Entry, Server
from trio_mcp.types.error_codes import HEADER_MISMATCH, INVALID_PARAMS

META: dict[str, Any] = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def post(client: httpx.AsyncClient, method: str, params: dict[str, Any], **meta: Any) -> Any:
    """Send a request of the modern era; the response is a stream."""
    headers = {"accept": ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if "name" in params:
        headers["mcp-name"] = params["name"]
    body = request(method, {**params, "_meta": {**META, **meta}}, 1)
    return client.stream("POST", "/mcp", json=body, headers=headers)


def call(client: httpx.AsyncClient, tool: str, **arguments: Any) -> Any:
    return post(client, "tools/call", {"name": tool, "arguments": arguments}, progressToken=7)


async def test_a_response_that_needs_no_stream_is_one_json_text() -> None:
    """Sending Messages, 6."""
    async with served() as (_, client, _), call(client, "add", a=1, b=2) as r:
        assert (r.status_code, r.headers["content-type"]) == (200, "application/json")
        assert from_json(await r.aread())["result"]["structuredContent"] == {"result": 3}


async def test_a_notification_before_the_response_makes_it_a_stream_that_the_response_ends() -> None:
    """Receiving Messages: the response SHOULD terminate the stream; proxies are told not to hold it back."""
    async with served() as (_, client, _), call(client, "count", to=3) as r:
        assert (r.status_code, r.headers["content-type"]) == (200, "text/event-stream")
        assert r.headers["x-accel-buffering"] == "no"
        *progress, answer = await Events(r).messages()
    assert [message["params"]["progress"] for message in progress] == [1, 2, 3]
    assert answer["result"]["structuredContent"] == {"result": 3}


class SlowReader(Connection):
    """Reads nothing of the response until it may."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reading = trio.Event()

    async def _send(self, event: dict[str, Any]) -> None:
        await self.reading.wait()
        await super()._send(event)


async def test_urgent_notifications_overtake_what_the_client_has_not_read_but_progress_no_earlier_progress() -> None:
    server, sent = Server("busy"), trio.Event()
    later = {"progressToken": 7, "progress": 2}

    @server.tool
    async def work(ctx: Context) -> None:
        await ctx.notify("acme/plain")
        await ctx.report_progress(1)
        await ctx.notify("acme/plain")
        await ctx.send_notification("notifications/progress", later, urgent=True)
        await ctx.notify("acme/now", urgent=True)
        sent.set()

    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "work"}
    body = request("tools/call", {"name": "work", "_meta": {**META, "progressToken": 7}}, 1)
    client = SlowReader("POST", headers, to_json(body))
    with trio.fail_after(30):
        async with server.asgi_app() as app, trio.open_nursery() as nursery:
            nursery.start_soon(client.run, app)
            await sent.wait()
            client.reading.set()
    *messages, _answer = [from_json(event.data) for event in client.events()]
    assert [each["method"].split("/")[1] for each in messages] == ["plain", "progress", "progress", "now", "plain"]


@pytest.mark.parametrize("progress", [1, 0], ids=["after it has begun", "before"])
async def test_the_end_of_the_response_stream_cancels_the_handler(progress: int) -> None:
    """Cancellation: closing the response stream MUST be treated as cancellation."""
    async with served() as (made, client, _):
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                async with call(client, "wait", progress=progress) as r:
                    await r.aread()

            nursery.start_soon(wait)
            await made.started.wait()
            nursery.cancel_scope.cancel()
        await made.cancelled.wait()
        assert "closed the response stream" in str(made.reason)


async def test_a_notification_is_accepted_without_a_body() -> None:
    """Sending Messages, 5."""
    async with served() as (_, client, _):
        headers = {"accept": ACCEPT, "mcp-protocol-version": "2026-07-28"}
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
            async with call(client, "wrong") as response:
                assert from_json(await response.aread())["result"]["structuredContent"] == {"result": "served"}
    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert "'wrong'" in record.getMessage()
    assert "only for the types string, integer, boolean" in record.getMessage()


async def test_a_context_variable_that_a_handler_sets_is_not_seen_by_later_requests_of_the_connection() -> None:
    made, user = Made(), ContextVar("user", default="none")

    @made.server.tool
    async def become(name: str) -> str:
        before = user.get()
        user.set(name)
        return before

    def becoming(name: str) -> bytes:
        params = {"name": "become", "arguments": {"name": name}, "_meta": META}
        named = {"mcp_method": "tools/call", "mcp_name": "become", "mcp_protocol_version": "2026-07-28"}
        return http_request("POST", request("tools/call", params, 1), **named)

    async with served(made=made) as (_, client, _):
        url = client.base_url
        async with await trio.open_tcp_stream(url.host, url.port or 0) as stream:
            got = b""
            # The first two at once: the second is there before the first has been answered.
            for data, answers in ((becoming("Ada") + becoming("Bob"), 2), (becoming("Eve"), 3)):
                await stream.send_all(data)
                while got.count(b'"structuredContent"') < answers:
                    got += await stream.receive_some()
            assert got.count(b'"structuredContent":{"result":"none"}') == 3


async def test_listening_ends_with_a_result_when_the_server_ends() -> None:
    """`basic/patterns/subscriptions`, Graceful Closure."""
    async with (
        served() as (made, client, stop),
        post(client, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}) as r,
    ):
        assert r.headers["connection"] == "close"  # no client uses it again as the server ends
        stream = Events(r)
        assert (await stream.message())["method"] == "notifications/subscriptions/acknowledged"
        made.server.remove_tool("add")
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        stop.set()
        last = await stream.message()
        assert last["result"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == 1
        assert await stream.messages() == []


async def test_a_hidden_tool_is_unknown_even_to_who_leaves_out_its_headers() -> None:
    """Otherwise a missing header is answered before anybody asks whether the client may know the tool."""

    def of_ann(context: Context, entry: Entry[Any]) -> bool:
        return context.headers.get("x-user") == "ann"

    made = Made(visible=of_ann)

    @made.server.tool(input_schema={"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "A"}}})
    async def secret(**arguments: str) -> str:
        return arguments["a"]

    outcomes = {}
    app = made.server.asgi_app(allowed_hosts=["test"])
    async with (
        app as served_app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=served_app), base_url="http://test") as client,
    ):
        for user in ("ann", "bob"):
            for tool in ("secret", "unknown"):
                for header in ("x", "y", None):
                    client.headers = {"x-user": user, **({"mcp-param-a": header} if header else {})}
                    async with call(client, tool, a="x") as r:
                        answer = from_json(await r.aread())
                        told = answer.get("result", {}).get("content") or answer["error"]["code"]
                        outcomes[user, tool, header] = r.status_code, told
    unknown = (200, INVALID_PARAMS)
    mismatch = (400, HEADER_MISMATCH)
    assert outcomes == dict.fromkeys(outcomes, unknown) | {
        ("ann", "secret", "x"): (200, [{"type": "text", "text": "x"}]),
        ("ann", "secret", "y"): mismatch,
        ("ann", "secret", None): mismatch,
    }
