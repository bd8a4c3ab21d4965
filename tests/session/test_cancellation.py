"""Cancellation is the scope: ours reaches the peer, the peer's reaches the handler (docs/explanation/sessions.md)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.peer import Peer
from tests.session.harness import client_on_wire, server_on_wire
from trio_mcp import RequestContext, SessionOptions
from trio_mcp.jsonrpc.messages import Notification, Request


async def everything(wire: Peer) -> list[Any]:
    """Take what has arrived and what only waited for room, until nothing more comes."""
    messages: list[Any] = []
    await trio.testing.wait_all_tasks_blocked()
    while arrived := wire.arrived():
        messages += arrived
        await trio.testing.wait_all_tasks_blocked()
    return messages


async def test_a_cancelled_caller_returns_at_once_even_if_the_peer_does_not_read() -> None:
    async with client_on_wire(options=SessionOptions(max_outgoing_messages=2)) as (client, wire):
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(client.send_request, "tools/call", {"name": "x"})
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert client.statistics().outgoing == 0
        arrived = await everything(wire)
        sent = [m for m in arrived if isinstance(m, Request)]
        notices = [m.params["requestId"] for m in arrived if isinstance(m, Notification) and m.params]
        # Whatever was sent is taken back, and nothing else is: a request that was never sent needs no notice.
        assert sorted(notices) == sorted(request.id for request in sent)
        assert len(sent) < 100


async def test_a_notice_overtakes_bulk_but_never_its_own_request() -> None:
    async with client_on_wire() as (client, wire), trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def call() -> None:
            with scope:
                await client.send_request("tools/call", {"name": "first"})

        nursery.start_soon(call)
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(180):
            nursery.start_soon(client.send_notification, "acme/bulk")
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        order = [m.method for m in await everything(wire) if isinstance(m, (Request, Notification))]
        assert order[0] == "tools/call"
        assert order.index("notifications/cancelled") < len(order) - 30
        assert order.count("acme/bulk") == 180


async def test_a_handler_that_finishes_despite_its_cancellation_is_not_a_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await release.wait()
        return {}

    release = trio.Event()
    async with server_on_wire(answer) as (server, wire):
        await wire.send(Request(1, "tools/call", {"name": "x"}))
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(Notification("notifications/cancelled", {"requestId": 1}))
        await trio.testing.wait_all_tasks_blocked()
        release.set()
        await trio.testing.wait_all_tasks_blocked()
        assert server.statistics().running == 0
        assert wire.arrived() == []
    assert caplog.text == ""


async def test_the_callers_own_cancellation_counts_even_if_the_session_closed_just_before() -> None:
    """Both happen before the caller's next step. Which is first is up to Trio, so this is done a few times."""

    async def cancel(scope: trio.CancelScope) -> None:
        scope.cancel()

    for _ in range(10):
        async with client_on_wire() as (client, _wire), trio.open_nursery() as others:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(client.send_request, "tools/call", {"name": "x"})
                    await trio.testing.wait_all_tasks_blocked()
                    others.start_soon(client.aclose)
                    others.start_soon(cancel, scope)
            assert scope.cancelled_caught


async def test_progress_stops_with_the_peers_cancellation() -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await context.report_progress(1)
        raise AssertionError

    async with server_on_wire(answer) as (server, wire):
        await wire.send(Request(1, "tools/call", {"name": "x", "_meta": {"progressToken": "t"}}))
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(Notification("notifications/cancelled", {"requestId": 1}))
        while server.statistics().running:
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        assert wire.arrived() == []
