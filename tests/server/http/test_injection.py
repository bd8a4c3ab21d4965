"""A cancellation at every step of an HTTP server: nothing is left behind, and the next exchange works."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from pydantic_core import from_json, to_json

from tests.http_peer import LATEST, http_request, request
from tests.injection import cancel_everywhere
from tests.server.http.asgi_client import Connection
from tests.server.http.harness import Made
from tests.server.http.runners import chosen
from trio_mcp.http.server.app import HttpApp
from trio_mcp.http.server.options import HttpOptions

HELLO = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
COUNT = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": 1}}
NOTHING = {"name": "wait", "arguments": {"progress": 1}, "_meta": {"progressToken": 1}}


def modern(method: str, params: dict[str, Any]) -> tuple[dict[str, str], Any]:
    fields = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if "name" in params:
        fields["mcp-name"] = params["name"]
    meta = {**META, **params.get("_meta", {})}
    return fields, request(method, {**params, "_meta": meta}, 1)


class Client:
    """A client that makes exchanges with an application; cancelling it is a disconnect in the middle of one."""

    def __init__(self, app: HttpApp) -> None:
        self.app = app
        self.sessions: list[str] = []  # whose id it has learnt
        self.ending = ""  # the one that it has asked to end

    async def exchange(
        self, method: str, fields: dict[str, str], message: Any = None, path: str = "/mcp"
    ) -> Connection:
        connection = self.made(method, fields, message, path)
        try:
            await connection.run(self.app)
        finally:
            self.sessions += [value for name, value in connection.headers.items() if name == "mcp-session-id"]
        return connection

    def made(self, method: str, fields: dict[str, str], message: Any = None, path: str = "/mcp") -> Connection:
        return Connection(method, fields, b"" if message is None else to_json(message), path)

    async def open(self) -> dict[str, str]:
        opened = await self.exchange("POST", {}, request("initialize", HELLO, 0))
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        await self.exchange("POST", session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return session

    async def left(self, connection: Connection) -> None:
        """Begin an exchange, and disconnect when all tasks are blocked."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run, self.app)
            await trio.testing.wait_all_tasks_blocked()
            connection.left.set()


async def a_modern_call(client: Client) -> None:
    answered = await client.exchange("POST", *modern("tools/call", COUNT))
    assert [b"result" in event.data for event in answered.events()] == [False, False, True]


async def a_modern_call_that_is_left(client: Client) -> None:
    await client.left(client.made("POST", *modern("tools/call", NOTHING)))


async def listening(client: Client) -> None:
    params = {"notifications": {"toolsListChanged": True}}
    await client.left(client.made("POST", *modern("subscriptions/listen", params)))


async def a_stateless_call(client: Client) -> None:
    answered = await client.exchange("POST", {"mcp-protocol-version": LATEST}, request("tools/call", COUNT, 1))
    assert len([event for event in answered.events() if event.data]) == 3


async def a_session(client: Client) -> None:
    session = await client.open()
    await client.exchange("POST", session, request("tools/call", COUNT, 1))
    await client.left(client.made("GET", session))
    client.ending = session["mcp-session-id"]
    await client.exchange("DELETE", session)


async def replay(client: Client) -> None:
    session = await client.open()
    answered = await client.exchange("POST", session, request("tools/call", COUNT, 1))
    assert answered.status == 200
    replayed = await client.exchange("GET", {**session, "last-event-id": "1-1"})
    assert [
        from_json(event.data)["id" if index else "method"] for index, event in enumerate(replayed.events()[1:])
    ] == [
        "notifications/progress",
        1,
    ]
    await client.exchange("DELETE", session)


async def resumption(client: Client) -> None:
    session = await client.open()
    await client.left(client.made("POST", session, request("tools/call", NOTHING, 1)))
    await client.left(client.made("GET", {**session, "last-event-id": "1-0"}))
    await client.exchange("DELETE", session)


async def http_and_sse(client: Client) -> None:
    stream = client.made("GET", {}, path="/sse")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stream.run, client.app)
        while not stream.events():
            await trio.lowlevel.checkpoint()
        path = stream.events()[0].data.decode()
        await client.exchange("POST", {}, request("initialize", {**HELLO, "protocolVersion": "2024-11-05"}, 0), path)
        await client.exchange("POST", {}, {"jsonrpc": "2.0", "method": "notifications/initialized"}, path)
        await client.exchange("POST", {}, request("tools/call", COUNT, 1), path)
        while len(stream.events()) < 5:  # the endpoint, two answers, and progress in between
            await trio.lowlevel.checkpoint()
        stream.left.set()


STATELESS = HttpOptions(stateless=True)
SSE = HttpOptions(sse_path="/sse")


def stored() -> HttpOptions:
    from trio_mcp import MemoryEventStore

    return HttpOptions(event_store=MemoryEventStore())


@pytest.mark.parametrize(
    ("act", "make_options"),
    [
        (a_modern_call, HttpOptions),
        (a_modern_call_that_is_left, HttpOptions),
        (listening, HttpOptions),
        pytest.param(a_stateless_call, lambda: STATELESS, marks=pytest.mark.legacy),
        pytest.param(a_session, HttpOptions, marks=pytest.mark.legacy),
        pytest.param(a_session, stored, marks=pytest.mark.legacy),
        pytest.param(replay, stored, marks=pytest.mark.legacy),
        pytest.param(resumption, stored, marks=pytest.mark.legacy),
        pytest.param(http_and_sse, lambda: SSE, marks=pytest.mark.legacy),
    ],
)
async def test_an_exchange_cancelled_anywhere_leaves_nothing_behind(
    act: Callable[[Client], Awaitable[None]],
    make_options: Callable[[], HttpOptions],
    autojump_clock: trio.testing.MockClock,
) -> None:
    """No task, no connection, no stream; what is left of a session can be ended, and ends by itself."""
    made, options = Made(), make_options()
    with trio.fail_after(1e9):  # the clock jumps
        async with made.server.asgi_app(options) as app:
            client = Client(app)
            await trio.testing.wait_all_tasks_blocked()
            tasks = trio.lowlevel.current_statistics().tasks_living

            async def check() -> None:
                await trio.testing.wait_all_tasks_blocked()
                left = app.statistics()
                # A request that its client has left counts on until its handler is over: its session may be alive.
                assert (left.bodies, left.exchanges, left.listening) == (0, 0, 0)
                assert left.idle_sessions == left.sessions
                while client.sessions:
                    session = {"mcp-session-id": client.sessions.pop()}
                    if act is a_session and session["mcp-session-id"] != client.ending:  # then it works
                        again = await client.exchange("POST", session, request("tools/call", COUNT, 2))
                        assert again.status == 200
                        assert b'"result"' in again.body
                    ended = await client.exchange("DELETE", session)
                    assert ended.status in (204, 404)
                await trio.sleep(
                    2 * options.settings["session_timeout"]
                )  # for a session whose id never reached the client
                left = app.statistics()
                assert (left.sessions, left.sse_sessions, made.server.statistics().sessions) == (0, 0, 0)
                assert (left.requests, left.request_bytes, left.body_bytes) == (0, 0, 0)
                assert trio.lowlevel.current_statistics().tasks_living == tasks
                if options.settings["event_store"] is not None:
                    assert len(options.settings["event_store"]) == 0  # type: ignore[arg-type]

            async def scenario() -> None:
                await act(client)

            assert await cancel_everywhere(scenario, check) > 3
            await act(client)


@pytest.mark.again
@pytest.mark.legacy
@pytest.mark.parametrize("graceful", [True, False], ids=["told to end", "cancelled"])
async def test_a_server_cancelled_anywhere_between_its_start_and_its_end_leaves_nothing_behind(graceful: bool) -> None:
    """No task, no socket, no run of the server: whatever it was doing, for a session, a call and a listener."""
    made = Made()
    options = HttpOptions(stored(), grace=0.02, runner=chosen.runner())
    tasks = trio.lowlevel.current_statistics().tasks_living
    files = len(os.listdir("/proc/self/fd"))

    def post(fields: dict[str, str], message: Any) -> bytes:
        return http_request("POST", message, **fields)

    async def ask(stack: contextlib.AsyncExitStack, port: int, data: bytes, until: bytes) -> bytes:
        stream = await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
        await stream.send_all(data)
        got = b""
        while until not in got:
            got += await stream.receive_some()
        return got

    async def scenario() -> None:
        stop = trio.Event()
        async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
            serve = partial(made.server.serve_http, port=0, options=options, shutdown=stop)
            url: str = await nursery.start(serve)
            port = int(url.removesuffix("/mcp").rpartition(":")[2])
            opened = await ask(stack, port, post({}, request("initialize", HELLO, 0)), b'"result"')
            session = opened.partition(b"mcp-session-id: ")[2].partition(b"\r\n")[0].decode()
            call = post({"mcp-session-id": session}, request("tools/call", NOTHING, 1))
            await ask(stack, port, call, b'"progress":')
            params = {"notifications": {"toolsListChanged": True}}
            await ask(stack, port, post(*modern("subscriptions/listen", params)), b"acknowledged")
            if graceful:
                stop.set()
            else:
                nursery.cancel_scope.cancel()

    async def check() -> None:
        assert made.server.statistics().runs == 0
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        assert len(os.listdir("/proc/self/fd")) == files

    with trio.fail_after(120):
        assert await cancel_everywhere(scenario, check) > 20


async def test_no_response_is_cut_off_by_the_end_of_its_own_exchange() -> None:
    """However slowly its client reads what comes before it."""

    class Slow(Connection):
        slowness = 0

        async def _send(self, event: dict[str, Any]) -> None:
            for _ in range(self.slowness * len(self.events())):
                await trio.lowlevel.checkpoint()
            await super()._send(event)

    async with Made().server.asgi_app() as app:
        for slowness in [*range(10)] * 5:
            fields, message = modern("tools/call", COUNT)
            connection = Slow("POST", fields, to_json(message))
            connection.slowness = slowness
            await connection.run(app)
            assert [b"result" in event.data for event in connection.events()] == [False, False, True]
