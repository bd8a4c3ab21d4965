"""The tasks that run handlers are used again; no request may see anything of the one before."""

from __future__ import annotations

import contextvars
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.session.harness import server_on_wire
from trio_mcp.jsonrpc.messages import Notification, Request, Response
from trio_mcp.session.handlers import RequestContext
from trio_mcp.session.workers import MAX_IDLE

SEEN: contextvars.ContextVar[Any] = contextvars.ContextVar("SEEN", default=None)


def request(number: int) -> Request:
    return Request(number, "tools/call", {"name": "x"})


async def test_requests_one_after_the_other_run_in_the_same_task_under_their_own_names() -> None:
    tasks: list[trio.lowlevel.Task] = []
    names: list[str] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        tasks.append(trio.lowlevel.current_task())
        names.append(trio.lowlevel.current_task().name)
        await trio.lowlevel.checkpoint()
        return {}

    async with server_on_wire(answer) as (_, wire):
        await wire.send(request(1))
        assert await wire.receive() == Response(1, {})
        await wire.send(Request(2, "tools/list"))
        assert await wire.receive() == Response(2, {})
    assert tasks[0] is tasks[1]
    assert names == ["request tools/call", "request tools/list"]


async def test_a_request_does_not_see_context_variables_of_the_one_before() -> None:
    seen: list[Any] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        seen.append(SEEN.get())
        SEEN.set(context.request_id)
        await trio.lowlevel.checkpoint()
        seen.append(SEEN.get())
        return {}

    async with server_on_wire(answer) as (_, wire):
        for number in (1, 2):
            await wire.send(request(number))
            await wire.receive()
    assert seen == [None, 1, None, 2]


async def test_what_a_request_held_is_free_although_its_task_waits_for_the_next() -> None:
    class Big:
        """Can be referred to weakly."""

    held: list[weakref.ref[object]] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        big = Big()
        SEEN.set((big, context))
        held.extend([weakref.ref(big), weakref.ref(context.request)])
        return {}

    async with server_on_wire(answer) as (_, wire):
        await wire.send(request(1))
        await wire.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert [each() for each in held] == [None, None]


def cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


def expire(scope: trio.CancelScope) -> None:
    scope.deadline = trio.current_time()


@pytest.mark.parametrize("end", [cancel, expire])
@pytest.mark.parametrize("when", ["during the request", "after the request"])
async def test_what_has_the_scope_of_one_request_can_not_cancel_the_next(
    when: str, end: Callable[[trio.CancelScope], None]
) -> None:
    contexts: list[RequestContext] = []
    scopes: list[trio.CancelScope] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        contexts.append(context)
        if when == "during the request":
            scopes.append(context.cancel_scope)
        if context.request_id == 2:
            scope = scopes[0] if scopes else contexts[0].cancel_scope
            end(scope)
        await trio.sleep(0.01)
        return {}

    async with server_on_wire(answer) as (_, wire):
        for number in (1, 2, 3):
            await wire.send(request(number))
            assert await wire.receive() == Response(number, {})


async def test_a_request_after_one_that_was_cancelled_is_answered() -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        if context.request_id == 1:
            await trio.sleep_forever()
        await trio.sleep(0.01)
        return {}

    async with server_on_wire(answer) as (_, wire):
        for wait in (True, False):  # before and after its handler has begun
            await wire.send(request(1))
            if wait:
                await trio.testing.wait_all_tasks_blocked()
            await wire.send(Notification("notifications/cancelled", {"requestId": 1}))
            await wire.send(request(2))
            assert await wire.receive() == Response(2, {})


async def test_a_cancellation_that_the_handler_did_not_notice_does_not_reach_the_next_request() -> None:
    async def answer(context: RequestContext) -> dict[str, Any]:
        with trio.CancelScope(shield=context.request_id == 1):
            await trio.sleep(0.01)
        return {}

    async with server_on_wire(answer) as (_, wire):
        await wire.send(request(1))
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(Notification("notifications/cancelled", {"requestId": 1}))
        await trio.sleep(0.02)
        await wire.send(request(2))
        assert await wire.receive() == Response(2, {})


async def test_the_scope_of_a_request_that_has_ended_says_whether_it_was_cancelled() -> None:
    contexts: list[RequestContext] = []

    async def answer(context: RequestContext) -> dict[str, Any]:
        contexts.append(context)
        if context.request_id == 1:
            await trio.sleep_forever()
        return {}

    async with server_on_wire(answer) as (_, wire):
        await wire.send(request(1))
        await trio.testing.wait_all_tasks_blocked()
        await wire.send(Notification("notifications/cancelled", {"requestId": 1}))
        await wire.send(request(2))
        await wire.receive()
        assert [each.cancel_scope.cancel_called for each in contexts] == [True, False]


async def test_the_tasks_that_wait_are_bounded_and_end_with_the_session() -> None:
    release = trio.Event()

    async def answer(context: RequestContext) -> dict[str, Any]:
        await release.wait()
        return {}

    living = trio.lowlevel.current_statistics().tasks_living
    async with server_on_wire(answer) as (_, wire):
        before = trio.lowlevel.current_statistics().tasks_living
        for number in range(MAX_IDLE + 20):
            await wire.send(request(number))
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before + MAX_IDLE + 20
        release.set()
        for _ in range(MAX_IDLE + 20):
            await wire.receive()
        await trio.testing.wait_all_tasks_blocked()
        assert trio.lowlevel.current_statistics().tasks_living == before + MAX_IDLE
    assert trio.lowlevel.current_statistics().tasks_living == living
