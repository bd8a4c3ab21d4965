"""Cancelling a call closes its connection and leaves nothing behind.

S: 2026-07-28 `basic/transports/streamable-http`.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.http_peer import Asked, event, peer, result
from tests.transports.http_calls import (
    TEXT,
    discovered,
    endless_stream,
    modern,
    never,
    works,
)
from trio_mcp import (
    Client,
    RequestTimeout,
    TransportError,
)
from trio_mcp.http.client import streamable as http_link

pytestmark = pytest.mark.usefixtures("every_sender")


@pytest.mark.parametrize("answer", [never, endless_stream])
async def test_cancelling_a_call_closes_its_stream_and_sends_no_notice(answer: Any) -> None:
    """S, Cancellation: before and after the answer has begun."""
    async with modern(t=answer) as (server, client):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.call_tool, "t")
            await server.until("tools/call")
            before = server.live
            nursery.cancel_scope.cancel()
        await server.until_live(before - 1)
        with pytest.raises(RequestTimeout):
            await client.call_tool("t", timeout=0.01)
        await works(client)
        assert "notifications/cancelled" not in server.methods()


async def test_calls_beyond_the_connections_wait_and_can_be_cancelled_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancellation is never behind the calls that wait."""
    monkeypatch.setattr(http_link, "MAX_CONNECTIONS", 2)
    async with modern(t=never) as (server, client), trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(300)]

        async def call(number: int) -> None:
            with scopes[number]:
                await client.call_tool("t", {"number": number})

        for number in range(len(scopes)):
            nursery.start_soon(call, number)
        await server.until("tools/call", 2)
        await trio.testing.wait_all_tasks_blocked()
        calls = [asked.body["params"] for asked in server.asked if asked.rpc == "tools/call"]
        under_way = {params["arguments"]["number"] for params in calls}
        assert len(under_way) == 2
        for number in set(range(len(scopes))) - under_way:
            scopes[number].cancel()
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(works, client)
        await trio.testing.wait_all_tasks_blocked()
        for number in under_way:
            scopes[number].cancel()
    assert server.methods().count("tools/call") == 3


async def test_requests_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_link, "MAX_EXCHANGES", 3)
    async with modern(t=never) as (server, client), trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(client.call_tool, "t")
        await server.until("tools/call", 3)
        with pytest.raises(TransportError, match="'tools/call' was not sent: 3 requests"):
            await client.call_tool("t")
        nursery.cancel_scope.cancel()


async def test_a_stream_that_goes_on_after_its_answer_is_closed(autojump_clock: MockClock) -> None:
    """It holds a place; that more and more comes does not keep it."""
    closed = trio.Event()

    async def talkative(asked: Asked) -> None:
        await asked.begin_events()
        await asked.chunk(event(result(asked.id, TEXT)))
        try:
            while True:
                await asked.chunk(event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}))
                await trio.sleep(0.5)
        finally:
            closed.set()

    async with peer({"server/discover": discovered, "tools/call": talkative}) as server, Client(server.url) as client:
        await client.call_tool("t")
        await closed.wait()


async def test_an_unread_stream_does_not_stall_the_session() -> None:
    """Thousands of progress notifications for a slow callback: other calls go on."""

    async def flood(asked: Asked) -> None:
        token = asked.body["params"]["_meta"]["progressToken"]
        await asked.begin_events()
        for number in range(3000):
            params = {"progressToken": token, "progress": number}
            await asked.chunk(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}))
        await asked.chunk(event(result(asked.id, TEXT)))
        await asked.end_events()

    blocked = trio.Event()

    async def on_progress(progress: object) -> None:
        await blocked.wait()

    async def call(client: Client) -> None:
        await client.call_tool("flood", on_progress=on_progress)

    async with modern(flood=flood) as (server, client), trio.open_nursery() as nursery:
        nursery.start_soon(call, client)
        await server.until("tools/call")
        for _ in range(20):
            await works(client)
        blocked.set()
