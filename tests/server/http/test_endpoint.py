"""The endpoint around the sessions: browsers, mounting, expiry, the end of the server."""

from __future__ import annotations

import gc
import socket
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.http_peer import ACCEPT, LATEST, Events, Raw, request
from tests.server.http.harness import Made, served
from tests.server.http.runners import chosen
from trio_mcp import Context, Server, TransportError, types
from trio_mcp.http.headers import Headers
from trio_mcp.http.server.options import HttpOptions

PAGE = "https://app.example.com"
OPEN = HttpOptions(cors=True, allowed_origins=[PAGE])


@pytest.mark.legacy
async def test_a_browser_may_call_from_an_allowed_page_and_read_the_session_id() -> None:
    async with served(OPEN) as (_, http, _):
        asks = {
            "origin": PAGE,
            "access-control-request-method": "POST",
            "access-control-request-headers": "content-type, mcp-session-id, mcp-param-city",
        }
        r = await http.request("OPTIONS", "/mcp", headers=asks)
        assert (r.status_code, r.headers["access-control-allow-origin"]) == (204, PAGE)
        allowed = {name.strip().lower() for name in r.headers["access-control-allow-headers"].split(",")}
        assert {"content-type", "mcp-session-id", "last-event-id", "mcp-param-city"} <= allowed
        params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
        r = await http.post("/mcp", json=request("initialize", params, 1), headers={"accept": ACCEPT, "origin": PAGE})
        assert r.headers["access-control-allow-origin"] == PAGE
        assert "mcp-session-id" in r.headers["access-control-expose-headers"].lower()
        assert r.headers["vary"] == "Origin"


async def test_other_pages_are_told_nothing() -> None:
    async with served(OPEN) as (_, http, _):
        asks = {"origin": "https://evil.example", "access-control-request-method": "POST"}
        r = await http.request("OPTIONS", "/mcp", headers=asks)
        assert r.status_code == 403
        assert not [name for name in r.headers if name.startswith("access-control")]


async def test_without_cors_no_page_is_told_anything() -> None:
    async with served(HttpOptions(allowed_origins=[PAGE])) as (_, http, _):
        asks = {"origin": PAGE, "access-control-request-method": "POST"}
        r = await http.request("OPTIONS", "/mcp", headers=asks)
        assert r.status_code == 405
        assert "access-control-allow-origin" not in r.headers


# --- mounting -----------------------------------------------------------------------------------------------------


@pytest.mark.legacy
async def test_mounted_under_a_prefix() -> None:
    async with Made().server.asgi_app() as app:
        transport = httpx.ASGITransport(app, root_path="/tools")
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            raw = Raw(http, "/tools/mcp")
            await raw.initialize()
            assert (await raw.post("ping")).json()["result"] == {}
            r = await http.get("/tools/other")
            assert (r.status_code, "/tools/mcp" in r.text) == (404, True)


@pytest.mark.legacy
@pytest.mark.parametrize("path", ["/tools", "/tools/"])
async def test_mounted_as_the_endpoint_itself(path: str) -> None:
    async with Made().server.asgi_app(HttpOptions(path="/")) as app:
        transport = httpx.ASGITransport(app, root_path="/tools")
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            await Raw(http, path).initialize()


@pytest.mark.legacy
@pytest.mark.parametrize("options", [HttpOptions(path="/a"), HttpOptions(path="/a/")])
async def test_a_slash_at_the_end_makes_no_difference(options: HttpOptions) -> None:
    async with served(options) as (_, http, _):
        for path in ("/a", "/a/"):
            await Raw(http, path).initialize()
        assert (await http.get("/health/")).json() == {"status": "ok"}
        r = await http.post("/ab", json={})
        assert (r.status_code, r.text) == (404, "nothing is served at this path; the endpoint is /a")


async def test_the_application_declines_a_websocket() -> None:
    """The client asked for it, so it is not the server's fault; closing before accepting means 403."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async with Made().server.asgi_app() as app:
        await app({"type": "websocket"}, None, send)  # type: ignore[arg-type]
    assert sent == [{"type": "websocket.close"}]


@pytest.mark.legacy
async def test_over_a_unix_socket(tmp_path: Path) -> None:
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"unix:{tmp_path / 'mcp.sock'}"]
    config.errorlog = None
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(Made().server.serve_http, config=config, runner=chosen.runner()))
            assert url.startswith("http+unix://")
            transport = httpx.AsyncHTTPTransport(uds=str(tmp_path / "mcp.sock"))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
                raw = Raw(http)
                await raw.initialize()
                assert (await raw.post("ping")).json()["result"] == {}
            nursery.cancel_scope.cancel()
    assert not (tmp_path / "mcp.sock").exists()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"path": "mcp"}, ValueError),
        ({"path": 5}, TypeError),
        ({"path": None}, ValueError),
        ({"path": "/health"}, ValueError),
        ({"sse_path": "/messages"}, ValueError),
        ({"max_sessions": 0}, ValueError),
        ({"max_sessions": 0.5}, TypeError),
        ({"retry": float("inf")}, ValueError),
        ({"retry": -1}, ValueError),
        ({"session_timeout": "x"}, TypeError),
        ({"session_timeout": float("nan")}, ValueError),
        ({"allowed_hosts": "example.com"}, TypeError),
        ({"allowed_origins": [5]}, TypeError),
    ],
)
def test_options_are_checked(wrong: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"path|max_sessions|retry|session_timeout|allowed_"):
        HttpOptions(**wrong)


@pytest.mark.parametrize(
    ("hosts", "local", "passes"),
    [
        (None, True, False),
        (None, False, True),
        (["*"], True, True),
        (["a.example", "*"], True, True),
        (["a.example"], False, False),
    ],
)
def test_which_hosts_are_served(hosts: list[str] | None, local: bool, passes: bool) -> None:
    fault = HttpOptions(allowed_hosts=hosts).guard(local=local).check(Headers([(b"host", b"evil.example")]))
    assert (fault is None) == passes


async def test_keywords_replace_what_the_options_say() -> None:
    async with Server("test").asgi_app(HttpOptions(path="/a", cors=True), path="/b") as app:
        assert app.options == HttpOptions(path="/b", cors=True)


# --- expiry -------------------------------------------------------------------------------------------------------


@pytest.mark.legacy
async def test_an_unused_session_expires(autojump_clock: MockClock) -> None:
    from trio_mcp import MemoryEventStore

    made, store = Made(), MemoryEventStore()
    options = HttpOptions(session_timeout=60, event_store=store)
    async with made.server.asgi_app(options) as app:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            raw, other = Raw(http), Raw(http)
            await raw.initialize()
            await trio.sleep(50)
            await other.initialize()
            assert (await raw.post("tools/call", {"name": "add", "arguments": {"a": 1, "b": 1}})).status_code == 200
            await trio.sleep(50)
            assert (await raw.post("ping")).status_code == 200  # used meanwhile
            await trio.sleep(40)
            assert (await other.post("ping")).status_code == 404
            await trio.sleep(30)
            assert (await raw.post("ping")).status_code == 404
            assert (app.statistics().sessions, len(store)) == (0, 0)


@pytest.mark.legacy
async def test_a_request_under_way_keeps_its_session(autojump_clock: MockClock) -> None:
    made = Made()
    async with made.server.asgi_app(HttpOptions(session_timeout=60)) as app, trio.open_nursery() as nursery:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            raw = Raw(http)
            await raw.initialize()
            with trio.move_on_after(1):
                await raw.post("tools/call", {"name": "wait", "arguments": {}})
            await trio.sleep(200)
            made.go.set()
            assert (await raw.post("ping", id=2)).status_code == 200
        nursery.cancel_scope.cancel()


@pytest.mark.legacy
async def test_a_question_to_a_client_that_is_not_heard_from_fails(autojump_clock: MockClock) -> None:
    """Its handler would keep the session forever: with an event store, the client could still come back for it."""
    from trio_mcp import MemoryEventStore

    server, failures = Server("test"), []

    @server.tool
    async def ask(ctx: Context) -> str:
        try:
            return str(await ctx.session.send_request("elicitation/create", {"message": "?"}, timeout=None))
        except TransportError as exc:
            failures.append(str(exc))
            raise

    async with (
        server.asgi_app(session_timeout=60, event_store=MemoryEventStore()) as app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http,
    ):
        raw = Raw(http)
        await raw.initialize(elicitation={})
        with trio.move_on_after(1):
            await raw.post("tools/call", {"name": "ask", "arguments": {}})
        await trio.sleep(50)
        assert (await raw.post("ping", id=2)).status_code == 200  # it is there, and may come back
        await trio.sleep(50)
        assert (failures, app.statistics().sessions) == ([], 1)
        await trio.sleep(100)
        assert failures == ["the client has sent no HTTP request for 60 seconds"]
        assert app.statistics().sessions == 0


# --- the end ------------------------------------------------------------------------------------------------------


@pytest.mark.legacy
async def test_open_streams_of_both_eras_end_cleanly_when_the_server_ends() -> None:
    """Each one is ended on the wire: httpx would raise for a body that breaks off."""
    modern = {
        "accept": ACCEPT,
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "subscriptions/listen",
    }
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"notifications": {"toolsListChanged": True}, "_meta": meta}
    calls = {**modern, "mcp-method": "tools/call", "mcp-name": "wait"}
    call = {"name": "wait", "arguments": {"progress": 1}, "_meta": {**meta, "progressToken": 1}}
    ended: list[str] = []
    async with served(HttpOptions(grace=0.3)) as (made, http, stop), trio.open_nursery() as nursery:

        async def read(kind: str, response: Any, task_status: trio.TaskStatus[None]) -> None:
            async with response as r:
                events = Events(r)
                await events.next() if kind != "legacy rest" else None
                task_status.started()
                await events.messages()
                ended.append(kind)

        for _ in range(5):
            raw = Raw(http)
            await raw.initialize()
            body = request("subscriptions/listen", params, 1)
            await nursery.start(read, "modern listen", http.stream("POST", "/mcp", json=body, headers=modern))
            body = request("tools/call", call, 1)
            await nursery.start(read, "modern call", http.stream("POST", "/mcp", json=body, headers=calls))
            await nursery.start(read, "legacy rest", raw.listen())
            await nursery.start(read, "legacy call", raw.call("wait", {"progress": 1}))
        stop.set()
    assert sorted(ended) == sorted(["modern listen", "modern call", "legacy rest", "legacy call"] * 5)
    assert "ended" in str(made.reason)


@pytest.mark.legacy
async def test_a_closing_server_refuses_new_work_and_takes_responses() -> None:
    """A handler that has asked its client something could never end otherwise; the answer comes on any connection."""
    async with served(HttpOptions(grace=20)) as (_, http, stop):
        raw = Raw(http)
        await raw.initialize(elicitation={})
        async with raw.call("greet") as r:
            events = Events(r)
            asked = await events.message()
            stop.set()
            while (await http.get("/health")).status_code == 200:
                pass
            assert (await http.get("/health")).json() == {"status": "ending"}
            refused = await raw.post("tools/list", id=2)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, types.OVERLOADED)
            assert refused.headers["retry-after"] == "1"
            async with raw.listen() as listening:
                assert listening.status_code == 503
            answer = {"action": "accept", "content": {"name": "Ann"}}
            assert (await raw.send({"jsonrpc": "2.0", "id": asked["id"], "result": answer})).status_code == 202
            assert (await events.message())["result"]["structuredContent"] == {"result": "Hello, Ann"}
        with pytest.raises(httpx.TransportError):  # when the last handler has ended, the server no longer listens
            while True:
                await http.get("/health")


@pytest.mark.legacy
async def test_a_client_that_polls_a_closing_server_gets_its_response() -> None:
    from trio_mcp import MemoryEventStore

    async with served(HttpOptions(grace=20, event_store=MemoryEventStore())) as (made, http, stop):
        raw = Raw(http)
        await raw.initialize()
        async with raw.call("poll") as r:
            events = Events(r)
            await events.messages()
        stop.set()
        while (await http.get("/health")).status_code == 200:
            pass
        async with raw.listen(events.decoder.last_event_id) as r:
            made.go.set()
            assert (await Events(r).messages())[-1]["result"]["structuredContent"] == {"result": "polled"}


async def test_an_address_in_use_raises_an_oserror_that_names_it() -> None:
    """As `serve_http` says: no group, whatever nurseries it has."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=rf"can't listen on 127\.0\.0\.1:{port}"):
            await Made().server.serve_http(port=port, runner=chosen.runner())
    gc.collect()  # a socket that was left open would be a warning, and so a failure, here
