"""A stream ends with the token that opened it: in order, and not before what is under way has its response."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from pydantic_core import from_json, to_json
from trio.testing import MockClock

from tests.auth.server.guarded import META, Exchange, Legacy, Table, ask, modern, person, protected, under_way
from tests.http_peer import LATEST, request
from tests.injection import cancel_everywhere
from tests.peer import ME
from tests.websocket.test_asgi import CONNECT, SCOPE, Driver
from trio_mcp import Client, Context, HttpServerParameters, McpError, MemoryEventStore, Server, TransportError
from trio_mcp.auth import BearerToken, Claims, ResourceServer
from trio_mcp.http.server import gate
from trio_mcp.http.server.gate import LEEWAY

LIFE = 100.0
"""Seconds from now at which the short token expires."""

END = LIFE + LEEWAY

BEGAN = 1e9
"""When the tests begin, in seconds since the epoch: by the server's clock, which is years behind the machine's."""

ISSUER = "https://id.example.com"


def made() -> tuple[Server, trio.Event]:
    server, go = Server("made"), trio.Event()

    @server.tool
    async def wait(ctx: Context[Any]) -> str:
        await ctx.info("begun")
        await go.wait()
        return "done"

    return server, go


def table(**tokens: float) -> Table:
    ann, start = person("ann"), trio.current_time()
    given = {"short": LIFE, "long": 10 * LIFE, "past": -5.0, **tokens}
    known = {name: attrs.evolve(ann, expires_at=BEGAN + seconds) for name, seconds in given.items()}
    return Table({"lasting": ann, **known}, clock=lambda: BEGAN + trio.current_time() - start)


def is_now(seconds: float) -> bool:
    """Return whether it is that time now."""
    return trio.current_time() == pytest.approx(seconds)


LISTEN = {"notifications": {"toolsListChanged": True}}


@pytest.mark.parametrize(("token", "end"), [("short", END), ("long", 10 * LIFE + LEEWAY), ("past", LEEWAY - 5)])
async def test_listening_ends_with_a_result_when_the_token_does(
    token: str, end: float, autojump_clock: MockClock
) -> None:
    """The client sees the same as at the end of the server, and comes back."""
    server, _ = made()
    async with protected(server, table()) as app:
        stream = modern(token, "subscriptions/listen", **LISTEN)
        async with under_way(app, stream):
            await stream.over.wait()
        assert is_now(end)
        acknowledged, result = [from_json(event.data) for event in stream.events()]
        assert acknowledged["method"] == "notifications/subscriptions/acknowledged"
        assert result["id"] == 1
        assert "result" in result
        assert not server.statistics().listening


@pytest.mark.parametrize("ahead", [0.0, 20.0, -1e9], ids=["its clock is right", "ahead", "stands at the epoch"])
async def test_a_resource_server_ends_streams_by_the_clock_that_it_judges_tokens_by(
    ahead: float, autojump_clock: MockClock
) -> None:
    """A token that is accepted in the last second of its 30 opens a stream of one second, not one of 30 more."""

    async def verify(token: str) -> Claims:
        return Claims(ISSUER, "ann", Table.resource, clock() - LEEWAY + 1)

    def clock() -> float:
        return BEGAN + ahead + trio.current_time()

    auth = ResourceServer(Table.resource, issuers=[ISSUER], verifier=verify, dpop="off", clock=clock)
    async with protected(made()[0], auth) as app:
        stream = modern("any", "subscriptions/listen", **LISTEN)
        async with under_way(app, stream):
            await stream.over.wait()
        assert stream.status == 200
        assert is_now(1)


async def test_without_an_expiry_it_goes_on(autojump_clock: MockClock) -> None:
    async with protected(made()[0], table()) as app:
        stream = modern("lasting", "subscriptions/listen", **LISTEN)
        async with under_way(app, stream):
            await trio.sleep(3000)
            assert not stream.over.is_set()


class Slow(Exchange):
    """A client that reads nothing after the head."""

    async def _send(self, event: dict[str, Any]) -> None:
        await super()._send(event)
        if event["type"] == "http.response.body":
            await trio.sleep_forever()


async def test_a_listener_that_reads_nothing_is_cut_off(autojump_clock: MockClock) -> None:
    async with protected(made()[0], table()) as app, trio.open_nursery() as nursery:
        fields = {"mcp_protocol_version": "2026-07-28", "mcp_method": "subscriptions/listen"}
        stream = Slow("POST", "short", request("subscriptions/listen", {**LISTEN, "_meta": META}, 1), **fields)
        nursery.start_soon(stream.run, app)
        await trio.sleep(END + 60)
        assert app.statistics().requests == 1  # the runner's own deadline ends the connection
        nursery.cancel_scope.cancel()


async def test_a_request_to_listen_that_a_middleware_holds_up_is_cut_off(autojump_clock: MockClock) -> None:
    async def hold(context: Context[Any], call_next: Any) -> dict[str, Any]:
        await trio.sleep_forever()
        raise AssertionError

    async with protected(Server("held", middleware=[hold]), table()) as app:
        r = await ask(app, modern("short", "subscriptions/listen", **LISTEN))
        # After `close_grace`, in which it could still be answered.
        assert (is_now(END + 1.0), r.status, "expired" in r.json["error"]["message"]) == (True, 503, True)


@pytest.mark.parametrize("era", ["modern", pytest.param("legacy", marks=pytest.mark.legacy)])
async def test_the_response_to_a_request_is_not_cut_off(era: str, autojump_clock: MockClock) -> None:
    """It was judged when it came, and its client could not send it again with another token."""
    server, go = made()
    async with protected(server, table()) as app:
        if era == "modern":
            call = modern(
                "short", "tools/call", {"io.modelcontextprotocol/logLevel": "info"}, name="wait", arguments={}
            )
        else:
            session = Legacy(app, "short")
            await session.initialize()
            call = session.made("POST", request("tools/call", {"name": "wait", "arguments": {}}, 5))
        async with under_way(app, call):
            await trio.sleep(END + 60)
            assert not call.over.is_set()
            go.set()
            await call.over.wait()
        assert b"done" in call.body


@pytest.mark.legacy
async def test_the_stream_of_a_session_ends_30_s_after_a_token_that_had_expired_before(
    autojump_clock: MockClock,
) -> None:
    async with protected(made()[0], table()) as app:
        session = Legacy(app, "past")
        await session.initialize()
        stream = session.made("GET")
        async with under_way(app, stream):
            await stream.over.wait()
        assert is_now(LEEWAY - 5)


@pytest.mark.legacy
@pytest.mark.parametrize("store", [False, True])
async def test_the_stream_of_a_session_ends_and_loses_nothing(store: bool, autojump_clock: MockClock) -> None:
    server, _ = made()
    async with protected(server, table(), event_store=MemoryEventStore() if store else None) as app:
        session = Legacy(app, "short")
        await session.initialize()
        first = session.made("GET")
        async with under_way(app, first):
            server.notify_tools_changed()
            await first.over.wait()
        assert is_now(END)
        assert b"list_changed" in first.body
        server.notify_tools_changed()  # while no stream is open
        session.token = "long"
        second = session.made("GET")
        async with under_way(app, second):
            await trio.sleep(1)
            assert second.body.count(b"list_changed") == 1
            assert not second.over.is_set()
        assert (await session.call("tools/list")).status == 200


@pytest.mark.legacy
async def test_a_resumed_stream_ends_with_its_new_token(autojump_clock: MockClock) -> None:
    server, go = made()
    async with protected(server, table(), event_store=MemoryEventStore()) as app:
        session = Legacy(app, "short")
        await session.initialize()
        call = session.made("POST", request("tools/call", {"name": "wait", "arguments": {}}, 5))
        async with under_way(app, call):
            pass  # the client leaves
        resumed = session.made("GET", last_event_id=call.events()[-1].id or "")
        async with under_way(app, resumed):
            await resumed.over.wait()
        assert is_now(END)
        go.set()
        session.token = "long"
        again = await ask(app, session.made("GET", last_event_id=resumed.events()[-1].id or ""))
        assert b"done" in again.body


@pytest.mark.legacy
async def test_http_sse_ends_once_it_is_idle_unless_a_newer_token_is_seen(autojump_clock: MockClock) -> None:
    server, go = made()
    async with protected(server, table(medium=3 * LIFE), path=None, sse_path="/sse") as app:
        stream = Exchange("GET", "short", b"", "/sse")
        hello = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": ME}
        async with under_way(app, stream):
            path = stream.events()[0].data.decode()

            async def post(token: str, body: Any) -> int | None:
                return (await ask(app, Exchange("POST", token, body, path))).status

            await post("short", request("initialize", hello, 0))
            await post("short", {"jsonrpc": "2.0", "method": "notifications/initialized"})
            await trio.sleep(LIFE)
            assert await post("medium", request("ping", None, 7)) == 202
            await trio.sleep(LIFE)
            assert not stream.over.is_set()
            assert await post("medium", request("tools/call", {"name": "wait", "arguments": {}}, 1)) == 202
            await trio.sleep(3 * LIFE)
            assert not stream.over.is_set()  # a request is under way
            assert await post("mallory", request("ping", None, 2)) == 401
            go.set()
            await stream.over.wait()
        assert b"done" in stream.events()[-1].data


@pytest.mark.legacy
async def test_http_sse_ends_with_its_only_token(autojump_clock: MockClock) -> None:
    async with protected(made()[0], table(), path=None, sse_path="/sse") as app:
        stream = Exchange("GET", "short", b"", "/sse")
        async with under_way(app, stream):
            await stream.over.wait()
        assert is_now(END)
        assert app.statistics().sse_sessions == 0


async def test_a_websocket_ends_once_its_requests_have_their_responses(autojump_clock: MockClock) -> None:
    server, go = made()
    headers = [*SCOPE["headers"], (b"authorization", b"Bearer short")]
    async with protected(server, table(), path=None, websocket_path="/ws") as app, trio.open_nursery() as nursery:
        driver = Driver()
        driver.put(CONNECT)
        nursery.start_soon(driver.run, app, {"path": "/ws", "headers": headers})
        call = request("tools/call", {"name": "wait", "arguments": {}, "_meta": META}, 1)
        driver.put({"type": "websocket.receive", "text": to_json(call).decode()})
        await trio.sleep(END + 10)
        assert len(driver.sent) == 1
        driver.put({"type": "websocket.receive", "text": to_json({**call, "id": 2}).decode()})
        await trio.testing.wait_all_tasks_blocked()
        assert '"ending":true' in driver.sent[1]["text"]
        go.set()
        await driver.over.wait()
        assert "done" in driver.sent[2]["text"]
        assert driver.sent[3] == {
            "type": "websocket.close",
            "code": 3000,
            "reason": "the token has expired; reconnect with a new one",
        }
        assert app.statistics().websockets == 0


async def test_over_a_socket_the_client_of_a_websocket_is_told_why_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LEEWAY", 0.2)
    server, go = made()
    async with trio.open_nursery() as nursery:

        async def serve(task_status: trio.TaskStatus[str]) -> None:
            await server.serve_websocket(port=0, auth=table(now=0.0), task_status=task_status)

        url = await nursery.start(serve)
        target = HttpServerParameters(url, kind="ws", auth=BearerToken("now"))
        with trio.fail_after(10):
            async with Client(target) as client:
                go.set()
                with pytest.raises(TransportError, match="3000: the token has expired"):
                    while True:
                        with contextlib.suppress(McpError):  # for a moment it only refuses requests
                            await client.call_tool("wait")
                        await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


async def test_a_listener_that_is_cancelled_anywhere_leaves_nothing(autojump_clock: MockClock) -> None:
    server, _ = made()
    async with trio.open_nursery() as nursery, server.asgi_app(auth=table()) as app:

        async def scenario() -> None:
            await ask(app, modern("past", "subscriptions/listen", **LISTEN))

        async def check() -> None:
            assert (app.statistics().requests, server.statistics().listening, server.statistics().topics) == (0, 0, 0)

        assert await cancel_everywhere(scenario, check) > 5
        assert not nursery.child_tasks
