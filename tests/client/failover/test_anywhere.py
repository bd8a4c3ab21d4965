"""Cancellation at every checkpoint, and links that can do no more than they must."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.failover.fakes import Broken, ExchangeWay, Way
from tests.client.failover.test_switch import BOTH, LEGACY, connected, scene
from tests.injection import cancel_everywhere
from tests.waiting import eventually
from trio_mcp import Client, OutcomeUnknown, TransportError
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response, TransportFailure
from trio_mcp.link import BUFFER
from trio_mcp.low_level import Link, SessionMessage, failover_client


@pytest.mark.again
@BOTH
async def test_a_list_that_is_cancelled_anywhere_leaves_no_link(
    mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    first = made.ways[0]

    async def scenario() -> None:
        first.accept()
        async with connected(made, mode, settle=1) as client, trio.open_nursery() as nursery:
            await client.list_tools()
            nursery.start_soon(client.call_tool, "look", {"text": "x", "seconds": 3})
            await trio.sleep(0.1)
            first.down()
            await client.call_tool("buy", {"text": "y"}, retry=True)

    async def check() -> None:
        assert [way.open for way in made.ways] == [0, 0]

    assert await cancel_everywhere(scenario, check) > 100


@pytest.mark.again
@BOTH
async def test_a_call_that_is_cancelled_anywhere_costs_nothing_else(
    mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    async with connected(made, mode, settle=1) as client:
        await client.list_tools()

        async def scenario() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(client.call_tool, "look", {"text": "x", "seconds": 1})
                await trio.sleep(0.1)
                carrier = next(way for way in made.ways if way.name == client.transport.carrier)
                carrier.cut()
                await trio.sleep(0.1)

        async def check() -> None:
            await eventually(lambda: client.transport.carrier is not None)
            assert (await client.call_tool("look", {"text": "y"})).data == "y"
            assert client.session.statistics().outgoing == 0

        assert await cancel_everywhere(scenario, check) > 20


class PlainWay(Way):
    """A way whose channels have no more than they must, and allow one task at a time each."""

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        async with super().__call__() as link:
            yield Link(PlainReader(link.read), PlainWriter(link.write))


class BusyWay(Way):
    """A way whose first exchange of a call fails, while the server's session goes on with it for a second."""

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        async with super().__call__() as link:
            yield Link(BusyReader(link.read), PlainWriter(link.write))


class BusyReader(trio.abc.ReceiveChannel[Any]):
    def __init__(self, inner: trio.abc.ReceiveChannel[Any]) -> None:
        self.inner = inner
        self.until: float | None = None

    async def receive(self) -> Any:
        item = await self.inner.receive()
        if isinstance(item.message, Response) and "structuredContent" in item.message.result:
            if self.until is None:
                self.until = trio.current_time() + 1
                return SessionMessage(TransportFailure(TransportError("the exchange broke"), item.message.id))
            if trio.current_time() < self.until:
                refusal = ErrorData(-32600, "the id of the request is already in use")
                return SessionMessage(ErrorResponse(item.message.id, refusal))
        return item

    async def aclose(self) -> None:
        await self.inner.aclose()


class PlainReader(trio.abc.ReceiveChannel[Any]):
    def __init__(self, inner: trio.abc.ReceiveChannel[Any]) -> None:
        self.inner = inner
        self.busy = False

    async def receive(self) -> Any:
        assert not self.busy
        self.busy = True
        try:
            return await self.inner.receive()
        finally:
            self.busy = False

    async def aclose(self) -> None:
        await self.inner.aclose()


class PlainWriter(trio.abc.SendChannel[Any]):
    def __init__(self, inner: trio.abc.SendChannel[Any]) -> None:
        self.inner = inner
        self.busy = False

    async def send(self, value: Any) -> None:
        assert not self.busy
        self.busy = True
        try:
            await self.inner.send(value)
        finally:
            self.busy = False

    async def aclose(self) -> None:
        await self.inner.aclose()


@BOTH
async def test_links_that_can_do_no_more_than_they_must(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    made.ways = [PlainWay(way.server, way.name) for way in made.ways]
    first, second = made.ways
    results = []

    async def call(client: Client, number: int) -> None:
        results.append((await client.call_tool("look", {"text": str(number), "seconds": 3})).data)

    async with connected(made, mode, settle=1) as client:
        await client.list_tools()
        for fault in (Way.down, Way.stall):
            async with trio.open_nursery() as nursery:
                for number in range(200):
                    nursery.start_soon(call, client, number)
                await trio.sleep(1)
                fault(first)
                await eventually(lambda: client.transport.carrier == "b")
                first.accept()
                first.resume()
                await eventually(lambda: client.transport.carrier == "a")
            await eventually(lambda: not second.open)
        assert len(results) == 400
        await trio.sleep(30)
        assert client.transport.carrier == "a"
        assert client.transport.switches == 4


class LateWriter(PlainWriter):
    """A writer that is told of its success only after the link has failed."""

    def __init__(self, inner: trio.abc.SendChannel[Any], way: Way) -> None:
        super().__init__(inner)
        self.way = way

    async def send(self, value: Any) -> None:
        await super().send(value)
        if getattr(value.message, "method", None) == "tools/call":
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1)
                self.way.cut()
                await trio.sleep(0.1)


class LateWay(Way):
    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        async with super().__call__() as link:
            yield Link(link.read, LateWriter(link.write, self))


@BOTH
async def test_a_link_that_fails_as_it_takes_a_request(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    made.ways[0] = LateWay(made.ways[0].server, "a")
    async with connected(made, mode, settle=0.5) as client:
        await client.list_tools()
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("buy", {"text": "x", "wait": True})
        await eventually(lambda: client.transport.carrier == "a")
        made.hold.set()
        assert (await client.call_tool("look", {"text": "y", "seconds": 1})).data == "y"
    assert made.ran == ["x", "y", "y"]


@BOTH
@pytest.mark.parametrize(
    ("tool", "failing", "reached", "ends"),
    [
        ("look", 2, True, "well"),
        ("look", 3, True, "well"),
        ("look", 4, True, Broken),
        ("buy", 3, False, "well"),
        ("buy", 4, False, Broken),
        ("buy", 1, True, OutcomeUnknown),
    ],
)
async def test_a_single_exchange_that_fails(
    mode: str, tool: str, failing: int, reached: bool, ends: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """The call is sent again on the same way, which is checked and found to work."""
    made = scene()
    first = made.ways[0] = ExchangeWay(made.ways[0].server, "a")
    async with connected(made, mode) as client:
        await client.list_tools()
        first.failing, first.reached = failing, reached
        if ends == "well":
            assert (await client.call_tool(tool, {"text": "x"}, timeout=30)).data == "x"
        else:
            with pytest.raises(ends):
                await client.call_tool(tool, {"text": "x"}, timeout=30)
        assert (await client.call_tool(tool, {"text": "y"})).data == "y"
        assert client.transport.carrier == "a"
        assert made.switches == []


@BOTH
async def test_calls_whose_exchanges_fail_go_elsewhere_with_their_way(
    mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    first = made.ways[0] = ExchangeWay(made.ways[0].server, "a")
    async with connected(made, mode) as client:
        await client.list_tools()
        first.failing = 1000
        first.stall()
        assert (await client.call_tool("look", {"text": "x"}, timeout=30)).data == "x"
        assert client.transport.carrier == "b"


async def test_a_call_whose_first_try_still_runs_is_sent_again_later(autojump_clock: trio.testing.MockClock) -> None:
    """A session of the legacy era refuses a second request with an id that is in use."""
    made = scene()
    made.ways = [BusyWay(way.server, way.name) for way in made.ways]
    async with connected(made, LEGACY) as client:
        await client.list_tools()
        assert (await client.call_tool("look", {"text": "x"})).data == "x"
        assert client.transport.switches == 0


async def test_a_response_that_waits_to_be_handed_over_is_not_lost_with_its_link(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A link that drains waits for a session that does not read; the response in hand has settled its call."""
    made = scene()
    first, second = made.ways
    first.down()
    async with failover_client([first, second], settle=1) as link:

        async def ask(request_id: int, method: str, **params: Any) -> None:
            await link.write.send(SessionMessage(Request(request_id, method, params)))

        client = {"name": "test", "version": "1"}
        await ask(1, "initialize", protocolVersion=LEGACY, capabilities={}, clientInfo=client)
        assert isinstance((await link.read.receive()).message, Response)
        await link.write.send(SessionMessage(Notification("notifications/initialized")))
        calls = range(2, 2 + BUFFER + 20)
        for number in calls:
            await ask(number, "tools/call", name="buy", arguments={"text": str(number), "wait": True})
        await eventually(lambda: len(made.ran) == len(calls))
        first.accept()
        await eventually(lambda: first.open == 1)
        await trio.sleep(10)  # the first way carries now, and the second drains
        made.hold.set()
        await trio.testing.wait_all_tasks_blocked()
        second.cut()
        await trio.testing.wait_all_tasks_blocked()
        # Sending finds out that the link is lost, while the task that reads it waits with a response in its hand.
        for number in calls:
            await link.write.send(SessionMessage(Notification("notifications/cancelled", {"requestId": number})))
        told: list[Any] = []
        with trio.move_on_after(60):
            while True:
                message = (await link.read.receive()).message
                if isinstance(message, TransportFailure):
                    told.append(message.request_id)
                elif isinstance(message, (Response, ErrorResponse)):
                    told.append(message.id)
    assert sorted(told) == [*calls]
