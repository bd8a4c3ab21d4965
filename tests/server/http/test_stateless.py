"""The legacy era without sessions: every POST stands alone; and its whole exchange, byte by byte."""

from __future__ import annotations

import json
from typing import Any

import attrs
import httpx
import pytest

from tests.http_peer import ACCEPT, Events, Raw, request, result
from tests.peer import ME
from tests.server.http.harness import Made, served
from trio_mcp import types
from trio_mcp.http.server.options import HttpOptions

pytestmark = pytest.mark.legacy

STATELESS = HttpOptions(stateless=True)


def client(http: httpx.AsyncClient) -> Raw:
    raw = Raw(http)
    raw.revision = "2025-06-18"
    return raw


async def test_a_server_without_sessions_declares_no_notifications() -> None:
    """`server/tools`, Capabilities: a server that declares ``listChanged`` will notify; without sessions it can't."""
    made = Made()

    @made.server.resource("config://app")
    async def config() -> str:
        return "it"

    made.server.prompt(name="ask")(config)
    async with served(STATELESS, made) as (_, http, _):
        raw = client(http)
        opened = await raw.initialize("2025-06-18")
        assert opened["capabilities"] == {"tools": {}, "resources": {}, "prompts": {}, "logging": {}}
        r = await raw.post("resources/subscribe", {"uri": "config://app"})
        assert (r.status_code, r.json()["error"]["code"]) == (200, types.METHOD_NOT_FOUND)
        r = await raw.post("resources/read", {"uri": "config://app"})
        assert r.json()["result"]["contents"][0]["text"] == "it"


async def test_without_a_version_header_it_is_2025_03_26_which_has_batches() -> None:
    """Protocol Version Header: the server SHOULD assume 2025-03-26."""
    async with served(STATELESS) as (_, http, _):
        raw = Raw(http)
        r = await raw.send([request("ping", None, 1), request("tools/list", {}, 2)])
        assert {each["id"] for each in r.json()} == {1, 2}


async def test_a_server_without_sessions_asks_nothing() -> None:
    async with served(STATELESS) as (_, http, _):
        r = await client(http).post("tools/call", {"name": "greet", "arguments": {}})
        assert r.json()["error"]["code"] == types.MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_a_disconnect_cancels_a_request_that_cannot_be_resumed() -> None:
    """There is no session to return to, nor one to send a cancellation in."""
    async with served(STATELESS) as (made, http, _):
        async with client(http).call("wait", {"progress": 1}) as r:
            await Events(r).message()
        await made.cancelled.wait()


# --- an ordinary client with a server of 2025-06-18, replayed ----------------------------------------------------

BOTH = {"accept": ACCEPT}
LATER = {**BOTH, "mcp-protocol-version": "2025-06-18"}
STREAM = {**LATER, "accept": "text/event-stream"}


@attrs.frozen
class Step:
    """A request, and the whole expected response: exactly these headers, apart from the date.

    A JSON body is its message; a stream of events its messages, in order.
    """

    name: str
    message: dict[str, Any] | None
    status: int
    answer: Any = None
    method: str = "POST"
    sent: dict[str, str] = LATER
    headers: dict[str, str] = attrs.Factory(dict)


def call(id: int, name: str, arguments: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments, "_meta": meta}, id)


def value(id: int, value: int) -> dict[str, Any]:
    return result(id, {"content": [{"type": "text", "text": f"{value}"}], "structuredContent": {"result": value}})


def refused(method: str) -> dict[str, Any]:
    text = f"the method {method!r} is not allowed in '2025-06-18'; allowed: POST"
    return {"jsonrpc": "2.0", "error": {"code": -32600, "message": text}}


def progress(step: int) -> dict[str, Any]:
    params = {"progressToken": "4", "progress": step, "total": 5}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"sampling": {}}, "clientInfo": ME}
OPENED = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "logging": {}},
    "serverInfo": {"name": "test", "version": "1.0"},
}
STREAMED = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no", "transfer-encoding": "chunked"}
EVENTS = [*map(progress, range(1, 6)), value(4, 5)]
EXCHANGE = (
    Step("initialize", request("initialize", HELLO, 1), 200, result(1, OPENED), sent=BOTH),
    Step("initialized", {"jsonrpc": "2.0", "method": "notifications/initialized"}, 202),
    Step("no stream of the server's own", None, 405, refused("GET"), "GET", STREAM, {"allow": "POST"}),
    Step("a call", call(3, "add", {"a": 1, "b": 2}), 200, value(3, 3)),
    Step("progress", call(4, "count", {"to": 5}, progressToken="4"), 200, EVENTS, headers=STREAMED),
    Step("the same without a token", call(5, "count", {"to": 5}), 200, value(5, 5)),
    Step("no session to end", None, 405, refused("DELETE"), "DELETE", LATER, {"allow": "POST"}),
)


def expected(step: Step, body: bytes) -> dict[str, str]:
    """Return the headers that the response must have."""
    headers = {"keep-alive": "timeout=75", **step.headers}
    if isinstance(step.answer, list):
        return {"content-type": "text/event-stream", **headers}
    kind = {} if step.answer is None else {"content-type": "application/json"}
    return {**kind, "content-length": str(len(body)), **headers}


def read(body: bytes) -> Any:
    """Parse a body; check that each event is named, has no id, and holds one message in one line."""
    if not body.startswith(b"event: "):
        return json.loads(body) if body else None
    *events, end = body.split(b"\n\n")
    assert end == b""
    messages = []
    for event in events:
        name, data = event.split(b"\n")
        assert name == b"event: message"
        assert data.startswith(b"data: {")
        messages.append(json.loads(data.removeprefix(b"data: ")))
    return messages


@pytest.mark.parametrize("kept", [True, False], ids=["one connection", "a connection each"])
async def test_the_exchange_of_a_stateless_server(kept: bool) -> None:
    """Every status, header, body and event is the same, whichever of several such servers gets the request."""
    async with served(STATELESS) as (_, client, _):
        limits = httpx.Limits(max_keepalive_connections=int(kept))
        async with httpx.AsyncClient(base_url=client.base_url, limits=limits) as http:
            for step in EXCHANGE:
                r = await http.request(step.method, "/mcp", json=step.message, headers=step.sent)
                found = {name: value for name, value in r.headers.items() if name != "date"}
                assert "date" in r.headers, step.name
                assert (r.status_code, found) == (step.status, expected(step, r.content)), step.name
                assert read(r.content) == step.answer, step.name
