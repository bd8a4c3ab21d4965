"""Requests and their answers, both ways, and their progress (`basic/patterns/progress`)."""

from __future__ import annotations

import gc
import logging
import weakref
from typing import Any

import pytest
import trio
import trio.lowlevel
import trio.testing
from pydantic import BaseModel

from tests.peer import Peer
from tests.session.harness import client_on_wire, server_on_wire, session_pair
from trio_mcp import McpError, RemoteProtocolError, RequestTimeout, SessionOptions, TraceContext
from trio_mcp.jsonrpc.messages import ErrorResponse, Notification, Request, Response
from trio_mcp.link import BUFFER
from trio_mcp.low_level import BaseSession, RequestContext, memory_link_pair
from trio_mcp.types.notices import ProgressNotificationParams
from trio_mcp.types.tool_messages import CallToolResult


async def test_a_result_of_the_wrong_shape_is_the_peers_fault_and_costs_one_call() -> None:
    async with client_on_wire() as (client, wire), trio.open_nursery() as nursery:

        async def answer_badly_then_well() -> None:
            await wire.send(Response((await wire.expect(Request)).id, {"content": 7}))
            await wire.send(Response((await wire.expect(Request)).id, {"content": []}))

        nursery.start_soon(answer_badly_then_well)
        with pytest.raises(RemoteProtocolError, match=r"tools/call.*CallToolResult.*content"):
            await client.send_request("tools/call", {"name": "x"}, CallToolResult)
        assert (await client.send_request("tools/call", {"name": "x"}, CallToolResult)).content == []


@pytest.mark.parametrize(
    ("outcome", "logged"),
    [
        (ZeroDivisionError("the secret reason"), "ZeroDivisionError: the secret reason"),
        ("the secret", "must be a model or a mapping"),
    ],
)
async def test_what_a_handler_does_wrong_is_an_internal_error_and_is_told_to_the_log_only(
    outcome: Any, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def answer(context: RequestContext) -> Any:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async with session_pair(answer) as (client, _):
        with pytest.raises(McpError, match="internal error") as caught:
            await client.send_request("tools/call", {"name": "x"})
        assert caught.value.code == -32603
        assert "secret" not in str(caught.value)
        await client.ping()  # and the session goes on
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert logged in caplog.text


async def test_ping_is_answered_by_either_side_without_a_handler() -> None:
    async with session_pair() as (client, server):
        await client.ping()
        await server.send_request("ping")


async def test_a_servers_requests_to_its_client_carry_the_current_trace_and_only_that() -> None:
    """Those of a client do, too: tests/server/test_trace_context.py."""
    trace = TraceContext("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01", None, "user=alice")
    seen: list[dict[str, Any]] = []

    async def roots(params: Any, context: RequestContext) -> dict[str, Any]:
        seen.append(context.meta)
        return {"roots": []}

    async with session_pair() as (client, server):
        client.add_request_handler("roots/list", roots)
        with trace.use():
            await server.send_request("roots/list")
        await server.send_request("roots/list")
    assert seen == [trace.to_meta(), {}]


class Params(BaseModel):
    left: int
    right: int


class Total(BaseModel):
    total: int


async def test_custom_methods_have_their_own_models() -> None:
    async def add(params: Params, context: RequestContext) -> Total:
        return Total(total=params.left + params.right)

    async with memory_link_pair() as (ours, theirs), BaseSession(*theirs) as server:
        wire = Peer(ours)
        server.add_request_handler("acme/add", add, Params)
        await wire.send(Request(1, "acme/add", {"left": 1, "right": 2}))
        assert await wire.receive() == Response(1, {"total": 3})
        await wire.send(Request(2, "acme/add", {"left": "one"}))
        refused = await wire.receive()
        assert isinstance(refused, ErrorResponse)
        assert refused.error.code == -32602
        assert "left" in refused.error.message
        await wire.send(Request(3, "acme/unknown"))
        unknown = await wire.receive()
        assert isinstance(unknown, ErrorResponse)
        assert unknown.error.code == -32601
        with pytest.raises(ValueError, match="already"):
            server.add_request_handler("acme/add", add)


async def test_custom_methods_can_be_sent_with_models() -> None:
    async with client_on_wire() as (client, wire), trio.open_nursery() as nursery:

        async def serve() -> None:
            request = await wire.expect(Request)
            assert (request.method, request.params) == ("acme/add", {"left": 1, "right": 2})
            await wire.send(Response(request.id, {"total": 3}))

        nursery.start_soon(serve)
        assert await client.send_request("acme/add", Params(left=1, right=2), Total) == Total(total=3)


async def test_wrong_types_are_refused_before_anything_is_sent() -> None:
    async with client_on_wire() as (client, wire):
        with pytest.raises(TypeError, match="params must be"):
            await client.send_request("tools/call", 7)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="timeout must be a number"):
            await client.send_request("tools/call", timeout="soon")  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="timeout must be more than 0"):
            await client.send_request("tools/call", timeout=-1)
        with pytest.raises(TypeError, match="on_progress must be callable"):
            await client.send_request("tools/call", on_progress=7)  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="urgent must be True or False, got 1"):
            await client.send_request("tools/call", urgent=1)  # type: ignore[call-overload]
        await trio.testing.wait_all_tasks_blocked()
        assert wire.arrived() == []


async def test_notifications_arrive_in_order_and_a_failing_handler_costs_one(caplog: pytest.LogCaptureFixture) -> None:
    got: list[str] = []
    async with server_on_wire() as (server, wire):

        async def received_notification(notification: Notification) -> None:
            got.append(notification.method)
            if notification.method == "acme/2":
                raise ValueError("no")

        server.received_notification = received_notification  # type: ignore[method-assign]
        for number in range(1, 4):
            await wire.send(Notification(f"acme/{number}"))
        await trio.testing.wait_all_tasks_blocked()
    assert got == ["acme/1", "acme/2", "acme/3"]
    assert "ValueError" in caplog.text


@pytest.mark.parametrize("ended_by", ["peer", "session", "itself"])
async def test_a_nursery_that_fails_in_a_cancelled_handler_affects_no_other_request(
    ended_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_on_the_way_out() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError("on the way out")

    async def answer(context: RequestContext) -> dict[str, Any]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_on_the_way_out)
            nursery.start_soon(trio.sleep_forever)
            if ended_by == "itself":
                context.cancel_scope.cancel()
        raise AssertionError

    async with server_on_wire(answer) as (server, wire):
        await wire.send(Request(1, "tools/call", {"name": "x"}))
        await trio.testing.wait_all_tasks_blocked()
        if ended_by == "session":
            await server.aclose()
        else:
            if ended_by == "peer":
                await wire.send(Notification("notifications/cancelled", {"requestId": 1}))
            else:
                refused = await wire.receive()
                assert isinstance(refused, ErrorResponse)
                assert (refused.id, refused.error.code) == (1, -32603)
            await wire.send(Request(2, "ping"))
            assert await wire.receive() == Response(2, {})
    assert "on the way out" in caplog.text


# --- progress ------------------------------------------------------------------------------------------------------


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


async def test_calls_without_room_are_sent_in_their_order_without_those_that_have_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """They wait together: one that times out or is cancelled meanwhile is never sent, and holds up no other."""
    options = SessionOptions(max_outgoing_messages=1)
    async with client_on_wire(options=options) as (client, wire), trio.open_nursery() as nursery:
        given_up: list[trio.CancelScope] = []

        async def call(number: int) -> None:
            if number % 3 == 1:
                with trio.CancelScope() as scope:
                    given_up.append(scope)
                    await client.send_request("tools/call", {"n": number})
            elif number % 3 == 2:
                with pytest.raises(RequestTimeout):
                    await client.send_request("tools/call", {"n": number}, timeout=10)
            else:
                await client.send_request("tools/call", {"n": number})

        # The link and the queue are full before the first of them.
        for _ in range(BUFFER + 2):
            nursery.start_soon(client.send_request, "tools/call", {"n": -1})
        await trio.testing.wait_all_tasks_blocked()
        for number in range(30):
            nursery.start_soon(call, number)
            await trio.testing.wait_all_tasks_blocked()
        for scope in given_up:
            scope.cancel()
        await trio.sleep(11)
        assert client.statistics().outgoing == BUFFER + 2 + 10
        seen: list[int] = []
        while len(seen) < BUFFER + 2 + 10:
            request = await wire.expect(Request)
            assert request.params
            seen.append(request.params["n"])
            await wire.send(Response(request.id, {}))
        await trio.testing.wait_all_tasks_blocked()
        assert wire.arrived() == []
    assert [number for number in seen if number >= 0] == list(range(0, 30, 3))


async def test_a_call_that_has_returned_is_not_kept() -> None:
    """Its arguments may be large, and its time limit may be hours away."""

    class Argument:
        pass

    argument = Argument()
    kept = weakref.ref(argument)
    async with session_pair(answer=nothing, encode=False) as (client, _):
        await client.send_request("tools/call", {"name": "x", "large": argument})
        del argument
        gc.collect()
        assert kept() is None


async def nothing(context: RequestContext) -> dict[str, Any]:
    return {}
