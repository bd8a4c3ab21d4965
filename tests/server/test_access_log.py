"""The access log: one line for each exchange, whatever speaks HTTP, and nothing in it that may be a secret."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import trio

from trio_mcp import Client, Server
from trio_mcp.http.server.access import ACCESS
from trio_mcp.low_level import websocket_client

RUNNERS = ("hypercorn", "h11", "httptools")


class Lines(logging.Handler):
    """What was logged, without the durations."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._more = trio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        line, found = re.subn(r" \d+\.\d ms", "", record.getMessage())
        assert found == 1, line
        self.lines.append(line)
        self._more.set()
        self._more = trio.Event()

    async def more(self) -> None:
        await self._more.wait()


@pytest.fixture
async def access() -> AsyncIterator[Lines]:
    handler = Lines()
    ACCESS.addHandler(handler)
    ACCESS.setLevel(logging.INFO)
    yield handler
    ACCESS.setLevel(logging.NOTSET)
    ACCESS.removeHandler(handler)


def _server() -> Server:
    server = Server("s")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def _serve(nursery: trio.Nursery, server: Server | None = None, **settings: Any) -> str:
    url: str = await nursery.start(partial((server or _server()).serve_http, port=0, **settings))
    return url


@pytest.mark.parametrize("runner", RUNNERS)
async def test_each_exchange_is_a_line_with_its_method_and_tool(access: Lines, runner: str) -> None:
    async with trio.open_nursery() as nursery:
        url = await _serve(nursery, runner=runner)
        async with Client(url, mode="2026-07-28") as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        nursery.cancel_scope.cancel()
    # The call's arguments are not there.
    assert "127.0.0.1 POST /mcp 200 tools/call 'add'" in access.lines
    assert not [line for line in access.lines if '"a"' in line or "1," in line]


@pytest.mark.legacy
@pytest.mark.parametrize("runner", RUNNERS)
async def test_a_legacy_session_is_a_line_for_each_exchange_without_its_id(access: Lines, runner: str) -> None:
    async with trio.open_nursery() as nursery:
        url = await _serve(nursery, runner=runner, sse_path="/sse")
        async with Client(url, mode="legacy") as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        async with Client(f"{url.removesuffix('/mcp')}/sse", mode="legacy") as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        nursery.cancel_scope.cancel()
    for line in (
        "127.0.0.1 POST /mcp 200 initialize",
        "127.0.0.1 POST /mcp 202 notifications/initialized",
        "127.0.0.1 POST /mcp 200 tools/call 'add'",
        "127.0.0.1 GET /mcp 200",
        "127.0.0.1 DELETE /mcp 204",
        "127.0.0.1 GET /sse 200",
    ):
        assert line in access.lines, access.lines
    # The path of HTTP+SSE for messages is followed by the session's id, in the query.
    assert "127.0.0.1 POST /messages 202 tools/call 'add'" in access.lines, access.lines


@pytest.mark.legacy
@pytest.mark.parametrize("runner", RUNNERS)
async def test_a_websocket_is_one_line(access: Lines, runner: str) -> None:
    async with trio.open_nursery() as nursery:
        url = await _serve(nursery, runner=runner, websocket_path="/ws")
        address = f"ws{url.removeprefix('http').removesuffix('/mcp')}/ws"
        async with Client(lambda: websocket_client(address)) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        nursery.cancel_scope.cancel()
    assert access.lines == ["127.0.0.1 GET /ws 101"]


HOSTILE = (
    ("a query", "GET", "/x?token=secret", {}, b"", "127.0.0.1 GET /x 404"),
    ("a line break", "GET", "/x%0a127.0.0.1%20DELETE", {}, b"", "127.0.0.1 GET /x%0A127.0.0.1%20DELETE 404"),
    ("a long path", "GET", "/" + "x" * 3000, {}, b"", f"127.0.0.1 GET /{'x' * 199} 404"),
    ("a foreign page", "POST", "/mcp", {"origin": "https://evil.example"}, b"{}", "127.0.0.1 POST /mcp 403"),
    ("no JSON", "POST", "/mcp", {}, b"{", "127.0.0.1 POST /mcp 400 malformed"),
    (
        "a method with a line break",
        *("POST", "/mcp", {}, b'{"jsonrpc": "2.0", "id": 1, "method": "a\\nb", "params": {"name": "c\\nd"}}'),
        r"127.0.0.1 POST /mcp 4\d\d a%0Ab 'c\\nd'",
    ),
    (
        "half of a surrogate pair",
        *("POST", "/mcp", {}, b'{"jsonrpc": "2.0", "id": 1, "method": "a\\udfff"}'),
        r"127.0.0.1 POST /mcp 400 (malformed|a%5Cudfff)",
    ),
    ("bytes that are not UTF-8", "GET", "/%ff%fe", {}, b"", r"127.0.0.1 GET /\S+ 404"),
)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "line"), [row[1:] for row in HOSTILE], ids=[row[0] for row in HOSTILE]
)
async def test_what_a_client_sends_forges_no_line_and_leaks_no_secret(
    access: Lines, method: str, path: str, headers: dict[str, str], body: bytes, line: str
) -> None:
    """A line has a known form, whatever the path, the method and the name are (CWE-117)."""
    given = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    async with trio.open_nursery() as nursery:
        url = await _serve(nursery)
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.request(method, url.removesuffix("/mcp") + path, headers=given, content=body)
        nursery.cancel_scope.cancel()
    assert len(access.lines) == 1
    assert re.fullmatch(line, access.lines[0]), access.lines


async def test_a_client_that_leaves_is_a_line_without_a_status(access: Lines) -> None:
    started = trio.Event()
    server = _server()

    @server.tool
    async def wait() -> None:
        started.set()
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        url = await _serve(nursery, server)
        async with Client(url, mode="2026-07-28") as client, trio.open_nursery() as calling:
            calling.start_soon(client.call_tool, "wait")
            await started.wait()
            calling.cancel_scope.cancel()
        with trio.fail_after(20):
            while "127.0.0.1 POST /mcp - tools/call 'wait'" not in access.lines:
                await access.more()
        nursery.cancel_scope.cancel()


async def test_an_application_under_another_asgi_server_logs_alike(access: Lines) -> None:
    async with _server().asgi_app(allowed_hosts=["test"]) as app:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await client.get("/nowhere")
    assert [line.split(" ", 1)[1] for line in access.lines] == ["GET /nowhere 404"]
