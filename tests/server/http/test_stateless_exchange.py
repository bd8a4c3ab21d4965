"""2025-06-18 without sessions, byte by byte: the exchange of an ordinary client with a small server, replayed."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio

from trio_mcp import Context, HttpOptions, Server, ToolError

pytestmark = pytest.mark.legacy

BOTH = {"accept": "application/json, text/event-stream"}
LATER = {**BOTH, "mcp-protocol-version": "2025-06-18"}
STREAM = {**LATER, "accept": "text/event-stream"}


def small_server() -> Server:
    server = Server("small", version="1.0.0")

    @server.tool
    async def echo(message: str) -> str:
        """Say it again."""
        return f"hello {message}"

    @server.tool
    async def count(n: int, ctx: Context) -> str:
        """Count up."""
        for step in range(1, n + 1):
            await ctx.report_progress(step, n, f"step {step}")
        return f"counted to {n}"

    @server.tool
    async def throw() -> str:
        """Fail."""
        raise ToolError("it broke")

    return server


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


def request(id: int, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def call(id: int, name: str, token: Any = None, **arguments: Any) -> dict[str, Any]:
    fields = {} if token is None else {"_meta": {"progressToken": token}}
    return request(id, "tools/call", name=name, arguments=arguments, **fields)


def result(id: int, **content: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "result": content}


def text(id: int, text: str) -> dict[str, Any]:
    return result(id, content=[{"type": "text", "text": text}], structuredContent={"result": text})


def schema(**properties: str) -> dict[str, Any]:
    fields = {name: {"type": type} for name, type in properties.items()}
    found: dict[str, Any] = {"type": "object", "properties": fields, "additionalProperties": False}
    return {**found, "required": list(properties)} if properties else found


def refused(method: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "error": {"code": -32600, "message": f"the method {method!r} is not allowed in '2025-06-18', only POST"},
    }


TEXT_RESULT = {"type": "object", "properties": {"result": {"type": "string"}}, "required": ["result"]}

EXCHANGE = (
    Step(
        "initialize",
        request(
            1,
            "initialize",
            protocolVersion="2025-06-18",
            capabilities={"sampling": {}},
            clientInfo={"name": "client", "version": "1.0.0"},
        ),
        200,
        result(
            1,
            protocolVersion="2025-06-18",
            capabilities={"tools": {}, "logging": {}},
            serverInfo={"name": "small", "version": "1.0.0"},
        ),
        sent=BOTH,
    ),
    Step("initialized", {"jsonrpc": "2.0", "method": "notifications/initialized"}, 202),
    Step("no stream of the server's own", None, 405, refused("GET"), "GET", STREAM, {"allow": "POST"}),
    Step(
        "tools/list",
        request(2, "tools/list"),
        200,
        result(
            2,
            tools=[
                {
                    "name": "echo",
                    "description": "Say it again.",
                    "inputSchema": schema(message="string"),
                    "outputSchema": TEXT_RESULT,
                },
                {
                    "name": "count",
                    "description": "Count up.",
                    "inputSchema": schema(n="integer"),
                    "outputSchema": TEXT_RESULT,
                },
                {"name": "throw", "description": "Fail.", "inputSchema": schema(), "outputSchema": TEXT_RESULT},
            ],
        ),
    ),
    Step("a call", call(3, "echo", message="world"), 200, text(3, "hello world")),
    Step(
        "a call that reports progress",
        call(4, "count", token="4", n=5),
        200,
        [
            {
                "jsonrpc": "2.0",
                "method": "notifications/progress",
                "params": {"progressToken": "4", "progress": step, "total": 5, "message": f"step {step}"},
            }
            for step in (1, 2, 3, 4, 5)
        ]
        + [text(4, "counted to 5")],
        headers={"cache-control": "no-cache, no-transform", "x-accel-buffering": "no", "transfer-encoding": "chunked"},
    ),
    Step("the same without a token", call(5, "count", n=5), 200, text(5, "counted to 5")),
    Step(
        "a call that fails",
        call(6, "throw"),
        200,
        result(6, content=[{"type": "text", "text": "it broke"}], isError=True),
    ),
    Step(
        "an unknown tool",
        call(7, "nothing"),
        200,
        {"jsonrpc": "2.0", "id": 7, "error": {"code": -32602, "message": "unknown tool: 'nothing'"}},
    ),
    Step("no session to end", None, 405, refused("DELETE"), "DELETE", LATER, {"allow": "POST"}),
)


def expected(step: Step, body: bytes) -> dict[str, str]:
    """Return the headers that the response must have."""
    headers = {"keep-alive": "timeout=5", **step.headers}
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
    serve = partial(small_server().serve_http, port=0, options=HttpOptions(stateless=True))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve)
            async with httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=int(kept))) as http:
                for step in EXCHANGE:
                    r = await http.request(step.method, url, json=step.message, headers=step.sent)
                    found = {name: value for name, value in r.headers.items() if name != "date"}
                    assert "date" in r.headers, step.name
                    assert (r.status_code, found) == (step.status, expected(step, r.content)), step.name
                    assert read(r.content) == step.answer, step.name
            nursery.cancel_scope.cancel()
