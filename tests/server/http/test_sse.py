"""HTTP+SSE, the transport of 2024-11-05."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import trio
from mcp.client.session import ClientSession as OfficialSession
from mcp.client.sse import sse_client
from pydantic_core import from_json

from tests.http_peer import Events, Raw, request
from tests.server.http.harness import Made, served
from tests.server.http.runners import chosen
from trio_mcp.http.server.options import HttpOptions

pytestmark = pytest.mark.legacy

BOTH = HttpOptions(sse_path="/sse")
INITIALIZE = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "raw", "version": "1"},
}


@contextlib.asynccontextmanager
async def opened(http: httpx.AsyncClient) -> AsyncIterator[tuple[Raw, Events]]:
    async with http.stream("GET", "/sse", headers={"accept": "text/event-stream"}) as r:
        events = Events(r)
        first = await events.next()
        assert first.event == "endpoint"
        raw = Raw(http, first.data.decode())
        assert (await raw.post("initialize", INITIALIZE, id=0)).status_code == 202
        assert (await events.message())["result"]["protocolVersion"] == "2024-11-05"
        await raw.notify("notifications/initialized")
        yield raw, events


async def test_everything_comes_on_the_one_stream() -> None:
    async with served(BOTH) as (made, http, _), opened(http) as (raw, events):
        call = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": 1}}
        assert (await raw.post("tools/call", call, id=5)).status_code == 202
        assert [(await events.message())["params"]["progress"] for _ in range(2)] == [1, 2]
        assert (await events.message())["id"] == 5
        made.server.remove_tool("add")
        assert (await events.message())["method"] == "notifications/tools/list_changed"


async def test_the_end_of_the_stream_is_the_end_of_the_session() -> None:
    async with served(BOTH) as (made, http, _):
        async with opened(http) as (raw, _):
            await raw.post("tools/call", {"name": "wait", "arguments": {}}, id=5)
            await made.started.wait()
        await made.cancelled.wait()
        assert (await raw.post("ping")).status_code == 404


@pytest.mark.parametrize("path", ["/messages", "/messages?session_id=x", "/messages?" + "a=b&" * 500])
async def test_a_message_without_a_session_is_404(path: str) -> None:
    async with served(BOTH) as (_, http, _):
        assert (await Raw(http, path).post("ping")).status_code == 404


async def test_a_malformed_message_is_400_and_the_session_lives_on() -> None:
    async with served(BOTH) as (_, http, _), opened(http) as (raw, events):
        headers = {"content-type": "application/json"}
        assert (await http.post(raw.path, content=b"{", headers=headers)).status_code == 400
        assert (await http.post(raw.path, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
        assert (await http.post(raw.path, content=b"x" * 5_000_000, headers=headers)).status_code == 413
        assert (await events.message())["error"]["code"] == -32700
        await raw.post("ping", id=9)
        assert (await events.message())["id"] == 9


async def test_a_client_that_answers_each_error_with_garbage_loses_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The errors come on the stream, which ends with the session."""
    monkeypatch.setattr("trio_mcp.session.session.BaseSession.max_faults", 20)
    headers, errors = {"content-type": "application/json"}, 0
    async with served(BOTH) as (_, http, _), opened(http) as (raw, events):
        for _ in range(19):
            assert (await http.post(raw.path, content=b"{", headers=headers)).status_code == 400
        await http.post(raw.path, content=b"{", headers=headers)
        async for event in events:
            errors += b"-32700" in event.data
        assert errors == 19
        assert (await http.post(raw.path, content=b"{", headers=headers)).status_code == 404


async def test_other_methods_are_refused() -> None:
    """To a client of later revisions 405 means "not supported"."""
    async with served(BOTH) as (_, http, _):
        assert (await http.post("/sse", json={})).status_code == 405
        assert (await http.get("/messages")).status_code == 405


async def test_sessions_are_bounded() -> None:
    async with served(HttpOptions(sse_path="/sse", max_sessions=1)) as (_, http, _), opened(http):
        assert (await http.get("/sse")).status_code == 503


async def test_serve_sse_serves_nothing_else_and_the_official_client_knows_it() -> None:
    made = Made()
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(made.server.serve_sse, port=0, runner=chosen.runner()))
            assert url.endswith("/sse")
            async with httpx.AsyncClient() as http:
                body = request("ping", None, 1)
                assert (await http.post(url.replace("/sse", "/mcp"), json=body)).status_code == 404
            async with sse_client(url) as (read, write), OfficialSession(read, write) as official:
                await official.initialize()
                result: Any = await official.call_tool("add", {"a": 1, "b": 2})
                assert from_json(result.content[0].text) == 3
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("serve", ["serve_sse", "serve_websocket"])
async def test_the_only_endpoint_is_at_path(serve: str) -> None:
    """Or under the name that it has beside others; not at both."""
    own = {"serve_sse": "sse_path", "serve_websocket": "websocket_path"}[serve]
    made = Made()
    for given in ({"path": "/a"}, {own: "/a"}, {"path": "/a", own: "/a"}, {"path": None, own: "/a"}):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(getattr(made.server, serve), port=0, runner=chosen.runner(), **given))
            assert url.endswith("/a"), given
            nursery.cancel_scope.cancel()
    with pytest.raises(ValueError, match=f"path='/b' and {own}='/a' are given"):
        await getattr(made.server, serve)(port=0, **{"path": "/b", own: "/a"})


async def test_sessions_at_rest_end_at_once_when_the_server_ends_and_busy_ones_when_they_are_done() -> None:
    async with (
        served(HttpOptions(sse_path="/sse", grace=20)) as (made, http, stop),
        opened(http) as (_, resting),
        opened(http) as (raw, busy),
    ):
        await raw.post("tools/call", {"name": "wait", "arguments": {}}, id=5)
        await made.started.wait()
        stop.set()
        assert await resting.messages() == []
        refused = await raw.post("ping", id=6)
        assert (refused.status_code, refused.json()["error"]["message"]) == (503, "the server is ending")
        made.go.set()
        (answer,) = await busy.messages()
        assert answer["id"] == 5
