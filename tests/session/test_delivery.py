"""A call returns after the callbacks of what arrived before its answer: docs/explanation/sessions.md."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.peer import Peer
from tests.session.harness import client_on_wire, server_on_wire
from trio_mcp import CallOptions, Client, Context, McpError, Server, SessionOptions, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response
from trio_mcp.low_level import BaseSession, HandlerOptions, websocket_client
from trio_mcp.session.notices import DELIVERY_TIME, Notices

# --- over every link -------------------------------------------------------------------------------------------------

server = Server("talkative")


@server.tool
async def talk(ctx: Context) -> str:
    for number in range(5):
        await ctx.log("info", number)
        await ctx.notify("acme/note", {"number": number})
    return "done"


Open = Callable[[trio.Nursery], Awaitable[Any]]


def served_by(serve: Callable[..., Awaitable[object]], client: Callable[[str], Any] | None = None) -> Open:
    """Return what opens a port; a client's target is its URL, or ``client`` of it."""

    async def open_it(nursery: trio.Nursery) -> Any:
        url = await nursery.start(partial(serve, port=0))
        return url if client is None else partial(client, url)

    return open_it


async def memory(nursery: trio.Nursery) -> Server:
    return server


async def child(nursery: trio.Nursery) -> StdioServerParameters:
    code = "from tests.session.test_delivery import server; server.run()"
    return StdioServerParameters(sys.executable, ["-c", code])


LINKS: dict[str, tuple[Open, str]] = {
    "memory": (memory, "auto"),
    "stdio": (child, "auto"),
    "TCP": (served_by(server.serve_tcp), "auto"),
    "WebSocket": (served_by(server.serve_websocket, websocket_client), "auto"),
    "modern HTTP": (served_by(server.serve_http), "auto"),
    "legacy HTTP": (served_by(server.serve_http), "legacy"),
    "HTTP+SSE": (served_by(server.serve_sse), "legacy"),
}


@pytest.mark.parametrize(
    "link",
    [pytest.param(link, marks=pytest.mark.legacy) if mode == "legacy" else link for link, (_, mode) in LINKS.items()],
)
async def test_what_a_tool_sends_has_been_handed_over_when_its_call_returns(link: str) -> None:
    logged: list[Any] = []
    noted: list[Any] = []

    async def on_log(message: Any) -> None:
        await trio.sleep(0.001)
        logged.append(message.data)

    async def on_message(notification: Notification) -> None:
        await trio.sleep(0.001)
        if notification.method == "acme/note" and notification.params is not None:
            noted.append(notification.params["number"])

    connect, mode = LINKS[link]
    async with trio.open_nursery() as nursery:
        target = await connect(nursery)
        async with Client(target, mode=mode, log_level="info", on_log=on_log, on_message=on_message) as client:
            for _ in range(3):
                await client.call_tool("talk")
                assert (logged, noted) == ([*range(5)], [*range(5)])
                logged.clear()
                noted.clear()
        nursery.cancel_scope.cancel()


# --- the rule, and its limits ----------------------------------------------------------------------------------------

NOTE = Notification("acme/note")
Step = float | Notification | dict[str, Any] | ErrorData


class Calling:
    """A session whose callback is the test's, and the other end of its link."""

    def __init__(self, session: BaseSession, wire: Peer) -> None:
        self.session, self.wire = session, wire

    async def serve(self, *steps: Step) -> None:
        """Once a request has come, send notifications and its answer; a number is a pause."""
        request = await self.wire.expect(Request)
        for step in steps:
            match step:
                case float():
                    await trio.sleep(step)
                case Notification():
                    await self.wire.send(step)
                case ErrorData():
                    await self.wire.send(ErrorResponse(request.id, step))
                case _:
                    await self.wire.send(Response(request.id, step))

    async def call(self, *steps: Step, **limits: Any) -> dict[str, Any]:
        async with background_nursery() as nursery:
            nursery.start_soon(self.serve, *steps)
            result: dict[str, Any] = await self.session.send_request("ping", **limits)
            return result


@contextlib.asynccontextmanager
async def calling(
    callback: Callable[..., Awaitable[object]], side: Any = client_on_wire, **options: Any
) -> AsyncIterator[Calling]:
    async with side(options=SessionOptions(close_grace=0, **options)) as (session, wire):
        session.received_notification = callback
        yield Calling(session, wire)


@pytest.mark.parametrize("side", [client_on_wire, server_on_wire])
@pytest.mark.parametrize("limits", [{}, {"on_progress": print}, {"urgent": True}, {"timeout": None}])
async def test_a_call_waits_for_callbacks_of_what_came_first_and_for_no_others(
    side: Any, limits: Any, autojump_clock: trio.testing.MockClock
) -> None:
    done: list[float] = []

    async def callback(notification: Notification) -> None:
        await trio.sleep(0.3)
        done.append(trio.current_time())

    async with calling(callback, side) as it:
        started = trio.current_time()
        assert await it.call(NOTE, NOTE, {"n": 1}, NOTE, NOTE, **limits) == {"n": 1}
        assert [when - started for when in done] == pytest.approx([0.3, 0.6])
        with pytest.raises(McpError):
            await it.call(NOTE, ErrorData(1, "no"), **limits)
        assert trio.current_time() == done[-1]
        assert len(done) == 5


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({}, 0.3 + DELIVERY_TIME),
        ({"timeout": None}, 0.3 + DELIVERY_TIME),
        ({"timeout": 0.5}, 0.5),
        ({"timeout": 0.5, "on_progress": print}, 0.5),
        ({"timeout": 0.5, "reset_on_progress": True}, 0.3 + 0.5),
        ({"timeout": 5, "total_timeout": 0.4, "reset_on_progress": True}, 0.4),
    ],
)
async def test_a_slow_callback_holds_up_a_call_for_no_longer_than_its_bound_or_its_timeout(
    limits: Any, seconds: float, autojump_clock: trio.testing.MockClock
) -> None:
    async def callback(notification: Notification) -> None:
        await trio.sleep_forever()

    async with calling(callback) as it:
        for notes in (1, 0, 2):
            started = trio.current_time()
            assert await it.call(0.3, *[NOTE] * notes, {"n": 1}, **limits) == {"n": 1}
            assert trio.current_time() - started == pytest.approx(seconds)


async def test_a_call_that_is_cancelled_while_it_waits_returns_its_result_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The answer is there, and would be lost."""

    async def callback(notification: Notification) -> None:
        await trio.sleep_forever()

    async with calling(callback) as it, trio.open_nursery() as nursery:
        nursery.start_soon(it.serve, NOTE, {"n": 1})
        started = trio.current_time()
        with trio.move_on_after(0.1) as scope:
            result = await it.session.send_request("ping")
            assert trio.current_time() - started == pytest.approx(0.1)
            await trio.lowlevel.checkpoint()
        assert scope.cancelled_caught
        assert result == {"n": 1}
        assert it.wire.arrived() == []


async def test_a_call_whose_session_ends_while_it_waits_returns_its_result(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def callback(notification: Notification) -> None:
        await trio.sleep_forever()

    async with calling(callback) as it, trio.open_nursery() as nursery:

        async def close() -> None:
            await trio.sleep(0.1)
            await it.session.aclose()

        nursery.start_soon(close)
        started = trio.current_time()
        assert await it.call(NOTE, {"n": 1}) == {"n": 1}
        assert trio.current_time() - started == pytest.approx(0.1)


async def test_a_callback_that_fails_holds_up_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = [ValueError("no"), RemoteProtocolError("the peer's fault")]
    told: list[RemoteProtocolError] = []

    async def callback(notification: Notification) -> None:
        await trio.lowlevel.checkpoint()
        raise failures.pop(0)

    async with calling(callback, on_error=told.append) as it:
        assert await it.call(NOTE, NOTE, {"n": 1}) == {"n": 1}
        assert not failures
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def directly(call: Callable[[], Awaitable[object]]) -> None:
    await call()


async def in_a_nursery(call: Callable[[], Awaitable[object]]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(call)


async def from_a_thread(call: Callable[[], Awaitable[object]]) -> None:
    await trio.to_thread.run_sync(trio.from_thread.run, call)


@pytest.mark.parametrize("way", [directly, in_a_nursery, from_a_thread])
async def test_a_callback_may_wait_for_a_call(way: Any, autojump_clock: trio.testing.MockClock) -> None:
    """It doesn't wait for itself, not even for the time that a call waits for callbacks."""
    order: list[str] = []
    waits: list[float] = []
    handled = trio.Event()

    async def ping() -> None:
        started = trio.current_time()
        # Without a timeout, so that the clock has nothing to jump to while a thread starts.
        await it.session.send_request("ping")
        waits.append(trio.current_time() - started)

    async def callback(notification: Notification) -> None:
        if notification == NOTE:
            await way(ping)
        order.append(notification.method)
        if len(order) == 3:
            handled.set()

    async with calling(callback, calls=CallOptions(timeout=None)) as it:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(it.session.send_request, "ping")
            first = await it.wire.expect(Request)
            await it.wire.send(NOTE)
            second = await it.wire.expect(Request)
            for request in (second, first):
                await it.wire.send(Notification("acme/other"))
                await it.wire.send(Response(request.id, {}))
        await handled.wait()  # the clock may have jumped while a thread ended
        assert waits == [0]
        assert order == ["acme/note", "acme/other", "acme/other"]


async def test_a_task_that_outlives_its_callback_waits_like_any_other(autojump_clock: trio.testing.MockClock) -> None:
    handled: list[str] = []
    results: list[Any] = []
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(1)
            results.append(await it.call(Notification("acme/second"), {"n": 1}))
            handled.append("returned")

        async def callback(notification: Notification) -> None:
            if notification == NOTE:
                nursery.start_soon(later)
            else:
                await trio.sleep(0.5)
            handled.append(notification.method)

        async with calling(callback) as it:
            await it.wire.send(NOTE)
            await trio.sleep(5)
    assert handled == ["acme/note", "acme/second", "returned"]
    assert results == [{"n": 1}]


async def test_an_urgent_notification_does_not_overtake_an_answer(autojump_clock: trio.testing.MockClock) -> None:
    handled: list[str] = []

    async def callback(notification: Notification) -> None:
        handled.append(notification.method)
        await trio.sleep(0.1)

    urgent = Notification("acme/now")
    async with calling(callback, handlers=HandlerOptions(urgent={"acme/now"})) as it:
        started = trio.current_time()
        await it.call(NOTE, NOTE, urgent, {}, NOTE, urgent)
        assert trio.current_time() - started == pytest.approx(0.3)
        await trio.sleep(1)
        # What came before the answer was handled before the call returned. Whether the first notification had begun
        # when the urgent one came is Trio's to choose.
        assert sorted(handled[:3]) == ["acme/note", "acme/note", "acme/now"]
        assert handled[3:] == ["acme/now", "acme/note"]


def test_answers_that_wait_for_the_same_callbacks_share_a_place() -> None:
    """Otherwise a callback that never ends would let them pile up."""
    notices: Any = Notices(None, HandlerOptions(), lambda function: None)  # type: ignore[arg-type]
    notices.put(NOTE)
    first = notices.mark()
    assert notices.mark() is first
    notices.put(NOTE)
    assert notices.mark() is not first
    assert len(notices) == 2
    notices.clear()
    assert len(notices) == 0
