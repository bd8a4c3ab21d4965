"""Progress of calls (`basic/patterns/progress`)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing

from tests.peer import Peer
from tests.session.harness import client_on_wire, session_pair
from trio_mcp import BaseSession, RequestContext, SessionOptions, memory_link_pair
from trio_mcp.jsonrpc.messages import Notification, Request, Response
from trio_mcp.types.notices import ProgressNotificationParams


async def test_reporting_unrequested_progress_is_a_checkpoint() -> None:
    """The caller did not ask for progress, and the handler awaits nothing else."""
    rounds = 0

    async def answer(context: RequestContext) -> dict[str, Any]:
        nonlocal rounds
        for _ in range(10_000):  # forever, but for this test's sake
            await context.report_progress(1)
            rounds += 1
        return {}

    async with session_pair(answer) as (client, server), trio.open_nursery() as nursery:
        nursery.start_soon(client.send_request, "tools/call", {"name": "x"})
        while not rounds:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
        await trio.lowlevel.cancel_shielded_checkpoint()
        with trio.CancelScope(shield=True):
            await server.wait_idle()
    assert rounds < 1000


async def test_what_a_callback_raises_is_raised_by_the_call_which_is_cancelled() -> None:
    failure = ZeroDivisionError("in the callback")
    async with client_on_wire() as (client, wire), trio.open_nursery() as nursery:

        async def serve() -> None:
            request = await wire.expect(Request)
            await wire.send(Notification("notifications/progress", {"progressToken": request.id, "progress": 1}))
            notice = await wire.receive()
            assert isinstance(notice, Notification)
            assert notice.params is not None
            assert notice.params["requestId"] == request.id

        def fail(event: ProgressNotificationParams) -> None:
            raise failure

        nursery.start_soon(serve)
        with pytest.raises(ZeroDivisionError) as caught:
            await client.send_request("tools/call", {"name": "x"}, on_progress=fail)
        assert caught.value is failure


@pytest.mark.parametrize(("times", "size", "most"), [(5000, 1, 400), (100, 400_000, 3)])
async def test_a_slow_callback_loses_the_oldest_progress_not_memory(times: int, size: int, most: int) -> None:
    """It is bounded in number, and in bytes: a server may say a megabyte with each."""
    seen: list[float] = []
    release = trio.Event()

    async def slow(event: ProgressNotificationParams) -> None:
        await release.wait()
        seen.append(event.progress)

    async with memory_link_pair(encode=True) as (ours, theirs), trio.open_nursery() as nursery:
        wire = Peer(theirs)

        async def flood() -> None:
            request = await wire.expect(Request)
            for number in range(times):
                params = {"progressToken": request.id, "progress": number, "message": "x" * size}
                await wire.send(Notification("notifications/progress", params))
            await wire.send(Response(request.id, {}))
            await trio.testing.wait_all_tasks_blocked()
            release.set()

        nursery.start_soon(flood)
        async with BaseSession(*ours) as session:
            await session.send_request("tools/call", {"name": "x"}, on_progress=slow)
    assert seen[-2:] == [times - 2, times - 1]
    assert seen == sorted(seen)
    assert len(seen) <= most


async def test_malformed_progress_of_a_running_call_is_reported_and_skipped() -> None:
    faults: list[Exception] = []
    seen: list[Any] = []
    async with (
        client_on_wire(options=SessionOptions(on_error=faults.append)) as (client, wire),
        trio.open_nursery() as nursery,
    ):

        async def serve() -> None:
            request = await wire.expect(Request)
            for total in ("many", 2):
                params = {"progressToken": request.id, "progress": 1, "total": total}
                await wire.send(Notification("notifications/progress", params))
            await wire.send(Response(request.id, {}))

        nursery.start_soon(serve)
        await client.send_request("tools/call", {"name": "x"}, on_progress=lambda event: seen.append(event.total))
    assert seen == [2]
    assert len(faults) == 1
