"""Calls that end early: cancellation is the scope, ours reaches the peer, the peer's reaches the handler; time limits.

See docs/explanation/sessions.md, and `basic/patterns/cancellation`.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.peer import Peer
from tests.session.harness import client_on_wire, server_on_wire
from trio_mcp import CallOptions, RequestTimeout, SessionOptions
from trio_mcp.jsonrpc.messages import Notification, Request, Response
from trio_mcp.low_level import RequestContext


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


async def test_nothing_more_is_sent_by_a_handler_that_finishes_despite_its_cancellation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither progress nor an answer; and that is not a fault."""

    async def answer(context: RequestContext) -> dict[str, Any]:
        with trio.CancelScope(shield=True):
            await release.wait()
            await context.report_progress(1)
        return {}

    release = trio.Event()
    async with server_on_wire(answer) as (server, wire):
        await wire.send(Request(1, "tools/call", {"name": "x", "_meta": {"progressToken": "t"}}))
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


# --- time limits ---------------------------------------------------------------------------------------------------


async def test_a_call_times_out_and_the_peer_is_told(autojump_clock: trio.testing.MockClock) -> None:
    async with client_on_wire() as (client, wire):
        started = trio.current_time()
        with pytest.raises(RequestTimeout, match=r"tools/call.*timeout=5") as caught:
            await client.send_request("tools/call", {"name": "x"}, timeout=5)
        assert trio.current_time() - started == pytest.approx(5)
        assert (caught.value.method, caught.value.seconds, caught.value.limit) == ("tools/call", 5, "timeout")
        assert isinstance(caught.value, TimeoutError)
        request = await wire.expect(Request)
        notice = await wire.receive()
        assert isinstance(notice, Notification)
        assert notice.method == "notifications/cancelled"
        assert notice.params is not None
        assert notice.params["requestId"] == request.id
        assert notice.params["reason"]


async def test_a_call_that_says_nothing_has_the_sessions_timeout_and_a_ping_may_have_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with client_on_wire(options=SessionOptions(calls=CallOptions(timeout=2))) as (client, _):
        with pytest.raises(RequestTimeout) as caught:
            await client.send_request("tools/call", {"name": "x"})
        assert caught.value.seconds == 2
        with pytest.raises(RequestTimeout) as caught:
            await client.ping(timeout=3)
        assert caught.value.seconds == 3


async def test_a_timeout_of_none_waits_forever(autojump_clock: trio.testing.MockClock) -> None:
    async with client_on_wire() as (client, wire), trio.open_nursery() as nursery:
        nursery.start_soon(progress_every, wire, 80_000, 0)
        assert await client.send_request("tools/call", {"name": "x"}, timeout=None) == {"done": True}


async def progress_every(wire: Any, seconds: float, times: int) -> None:
    request = await wire.expect(Request)
    for number in range(1, times + 1):
        await trio.sleep(seconds)
        await wire.send(Notification("notifications/progress", {"progressToken": request.id, "progress": number}))
    await trio.sleep(seconds)
    await wire.send(Response(request.id, {"done": True}))


def ignore(event: object) -> None:
    pass


@pytest.mark.parametrize(
    ("times", "options", "limit"),
    [
        pytest.param(10, {"reset_on_progress": True, "on_progress": ignore}, None, id="asked for"),
        pytest.param(3, {"reset_on_progress": True}, None, id="without a callback"),
        pytest.param(10, {"on_progress": ignore}, ("timeout", 5), id="not asked for"),
        pytest.param(
            100,
            {"reset_on_progress": True, "on_progress": ignore, "total_timeout": 20},
            ("total_timeout", 20),
            id="never the total",
        ),
    ],
)
async def test_progress_resets_the_idle_timeout_when_asked(
    times: int, options: dict[str, Any], limit: tuple[str, float] | None, autojump_clock: trio.testing.MockClock
) -> None:
    async with client_on_wire() as (client, wire), trio.open_nursery() as nursery:
        nursery.start_soon(progress_every, wire, 3, times)
        started = trio.current_time()
        outcome = None
        try:
            assert await client.send_request("tools/call", {"name": "x"}, timeout=5, **options) == {"done": True}
        except RequestTimeout as exc:
            outcome = exc.limit, trio.current_time() - started
        assert outcome == limit
        nursery.cancel_scope.cancel()


async def test_a_timeout_counts_the_wait_for_a_peer_that_does_not_read(autojump_clock: trio.testing.MockClock) -> None:
    async with client_on_wire(options=SessionOptions(max_outgoing_messages=4)) as (client, _):
        async with trio.open_nursery() as nursery:
            for _n in range(60):  # more than the link and the outbox hold
                nursery.start_soon(_expect_timeout, client)
        assert client.statistics().outgoing == 0


async def _expect_timeout(client: Any) -> None:
    with pytest.raises(RequestTimeout):
        await client.send_request("tools/call", {"name": "x"}, timeout=3)


async def test_a_surrounding_scope_is_not_a_request_timeout(autojump_clock: trio.testing.MockClock) -> None:
    async with client_on_wire() as (client, _):
        with trio.move_on_after(1) as scope:
            await client.send_request("tools/call", {"name": "x"}, timeout=5)
        assert scope.cancelled_caught


async def test_the_session_goes_on_after_a_timeout_and_the_late_answer_is_ignored(
    autojump_clock: trio.testing.MockClock,
) -> None:
    faults: list[Exception] = []
    async with client_on_wire(options=SessionOptions(on_error=faults.append)) as (client, wire):
        with pytest.raises(RequestTimeout):
            await client.send_request("tools/call", {"name": "x"}, timeout=1)
        late = await wire.expect(Request)
        await wire.receive()
        await wire.send(Response(late.id, {"late": True}))
        async with trio.open_nursery() as nursery:

            async def answer() -> None:
                await wire.send(Response((await wire.expect(Request)).id, {"ok": True}))

            nursery.start_soon(answer)
            assert await client.send_request("tools/call", {"name": "x"}, timeout=1) == {"ok": True}
    assert faults == []
