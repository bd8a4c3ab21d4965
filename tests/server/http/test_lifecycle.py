"""The life of a session: a cancellation at any step leaves nothing behind, and an idle session costs little."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
import trio
import trio.testing
from pydantic_core import to_json

from tests.injection import cancel_everywhere
from tests.server.http.asgi_client import Connection
from trio_mcp import Context, HttpOptions, MemoryEventStore, Server
from trio_mcp.http.server.app import HttpApp

pytestmark = pytest.mark.legacy

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}


async def exchange(app: HttpApp, method: str, session: str | None, message: Any = None) -> Connection:
    body = b"" if message is None else to_json({"jsonrpc": "2.0", **message})
    connection = Connection(method, {} if session is None else {"mcp-session-id": session}, body)
    await connection.run(app)
    return connection


async def opened(app: HttpApp) -> str:
    connection = await exchange(app, "POST", None, {"id": 0, "method": "initialize", "params": HELLO})
    session = connection.headers["mcp-session-id"]
    await exchange(app, "POST", session, {"method": "notifications/initialized"})
    return session


def server() -> Server:
    made = Server("test")

    @made.tool
    async def count(to: int, ctx: Context) -> int:
        for number in range(to):
            await ctx.report_progress(number)
        return to

    return made


@pytest.mark.parametrize("stored", [False, True], ids=["no store", "store"])
async def test_a_cancelled_exchange_leaves_either_a_working_session_or_none(
    stored: bool, autojump_clock: trio.testing.MockClock
) -> None:
    options = HttpOptions(event_store=MemoryEventStore() if stored else None)
    params = {"name": "count", "arguments": {"to": 2}, "_meta": {"progressToken": 1}}
    call = {"id": 1, "method": "tools/call", "params": params}
    made, known = server(), ""
    async with made.asgi_app(options) as app:

        async def scenario() -> None:
            nonlocal known
            session = known = await opened(app)
            await exchange(app, "POST", session, call)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(exchange, app, "GET", session)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            known = ""
            await exchange(app, "DELETE", session)

        async def check() -> None:
            nonlocal known
            await trio.testing.wait_all_tasks_blocked()
            left = app.statistics()
            assert (left.requests, left.exchanges, left.listening, left.streams) == (0, 0, 0, 0)
            assert left.idle_sessions == left.sessions
            served = made.statistics()
            assert (served.incoming, served.running) == (0, 0)
            if known:
                again = await exchange(app, "POST", known, {**call, "id": 2})
                assert again.status == 200
                assert b'"result"' in again.body
                await exchange(app, "DELETE", known)
                known = ""
            await trio.sleep(2 * app.options.session_timeout)  # for a session whose id never reached the client
            assert (app.statistics().sessions, made.statistics().sessions) == (0, 0)
            if isinstance(options.event_store, MemoryEventStore):
                assert len(options.event_store) == 0

        with trio.fail_after(1e9):  # the clock jumps
            assert await cancel_everywhere(scenario, check) > 5


async def test_an_idle_session_costs_at_most_20_kib() -> None:
    count = 200
    async with server().asgi_app() as app:
        for _ in range(5):
            await opened(app)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(count):
                await opened(app)
            await trio.testing.wait_all_tasks_blocked()
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / count
        finally:
            tracemalloc.stop()
    assert each <= 20 * 1024, f"{each / 1024:.1f} KiB"
