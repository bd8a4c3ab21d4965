"""A list of ways to a server: which one carries, and what becomes of calls when it fails."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.client.failover.fakes import ExchangeWay, Way
from tests.waiting import eventually
from trio_mcp import Client, Context, FailoverParameters, McpError, OutcomeUnknown, Server, Switch
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.types import OVERLOADED

LEGACY, MODERN = "2025-11-25", "2026-07-28"
BOTH = pytest.mark.parametrize("mode", [LEGACY, MODERN])


@attrs.define
class Scene:
    ways: list[Way]
    ran: list[str] = attrs.Factory(list)
    hold: trio.Event = attrs.Factory(trio.Event)
    switches: list[Switch] = attrs.Factory(list)

    @property
    def carrier(self) -> str | None:
        return next((way.name for way in self.ways if way.open), None)


def scene(count: int = 2) -> Scene:
    """Return ways to one server whose tools write down that they ran, and wait if asked to."""
    server = Server("shop")
    made = Scene([Way(server, name) for name in "abc"[:count]])

    async def work(text: str, wait: bool, seconds: float, ctx: Context) -> str:
        made.ran.append(text)
        if wait:
            await made.hold.wait()
        for step in range(3):
            await trio.sleep(seconds / 3)
            await ctx.report_progress(step + 1, 3)
        return text

    @server.tool
    async def buy(text: str, ctx: Context, wait: bool = False, seconds: float = 0) -> str:
        return await work(text, wait, seconds, ctx)

    @server.tool(annotations={"readOnlyHint": True})
    async def look(text: str, ctx: Context, wait: bool = False, seconds: float = 0) -> str:
        return await work(text, wait, seconds, ctx)

    @server.tool(annotations={"idempotentHint": True})
    async def put(text: str, ctx: Context, wait: bool = False, seconds: float = 0) -> str:
        return await work(text, wait, seconds, ctx)

    @server.resource("shop://sign")
    async def sign() -> str:
        return "open"

    return made


@contextlib.asynccontextmanager
async def connected(made: Scene, mode: str = LEGACY, **settings: Any) -> AsyncIterator[Client]:
    target = FailoverParameters(made.ways, on_switch=made.switches.append, **settings)
    async with Client(target, mode=mode) as client:
        yield client


@BOTH
async def test_the_first_way_carries(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made = scene()
    async with connected(made, mode) as client:
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"
        assert client.transport.carrier == "a"
        await trio.sleep(100)  # idle: it is asked for signs of life, and gives them
        assert client.transport.carrier == "a"
        assert [way.opened for way in made.ways] == [1, 0]
    assert [way.open for way in made.ways] == [0, 0]
    assert made.switches == []


@BOTH
@pytest.mark.parametrize("fault", [Way.cut, Way.tear, Way.down, Way.stall])
async def test_the_next_takes_over(
    mode: str, fault: Callable[[Way], None], autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    async with connected(made, mode) as client:
        await client.list_tools()
        fault(made.ways[0])
        made.ways[0].down()
        async with trio.open_nursery() as nursery:
            for tool in ("look", "put"):
                nursery.start_soon(client.call_tool, tool, {"text": tool})
        await eventually(lambda: client.transport.carrier == "b")
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"
        (switch,) = made.switches
        assert (switch.from_way, switch.to_way, switch.planned) == ("a", "b", False)
        assert switch.cause is not None


@pytest.mark.parametrize("announced", ["updated", "tools", "prompts", "resources"])
@BOTH
async def test_what_a_server_announces_unasked_is_no_sign_of_life(
    mode: str, announced: str, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    server = made.ways[0].server

    @server.prompt
    def greet() -> str:
        return "hello"

    announce = {
        "updated": lambda: server.notify_resource_updated("shop://sign"),
        "tools": server.notify_tools_changed,
        "prompts": server.notify_prompts_changed,
        "resources": server.notify_resources_changed,
    }[announced]
    heard: list[float] = []

    async def listen(client: Client) -> None:
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True, resources=["shop://sign"]
        ) as events:
            async for _ in events:
                heard.append(trio.current_time())

    async def announce_now_and_then() -> None:
        while True:
            await trio.sleep(1)
            announce()

    async with connected(made, mode) as client, trio.open_nursery() as nursery:
        await client.list_tools()
        nursery.start_soon(listen, client)
        nursery.start_soon(announce_now_and_then)
        await eventually(lambda: len(heard) > 2)
        made.ways[0].stall(received=False)
        since = trio.current_time()
        assert (await client.call_tool("look", {"text": "x"}, timeout=30)).data == "x"
        assert client.transport.carrier == "b"
        # The server was heard until it was given up, so its silence was not the reason.
        assert sum(time > since for time in heard) >= 5
        nursery.cancel_scope.cancel()


@BOTH
async def test_what_belongs_to_a_call_is_a_sign_of_life(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    """A server that does one thing after the other responds to nothing else meanwhile."""
    made = scene()
    first, second = made.ways

    class Busy(ExchangeWay):
        lost = 0

        def takes(self, request: Request) -> bool:
            takes = request.method == "tools/call" or not made.ran
            self.lost += not takes
            return takes

    made.ways[0] = busy = Busy(first.server, "a")
    async with connected(made, mode) as client:
        await client.list_tools()
        heard: list[float] = []
        call = partial(client.call_tool, "buy", {"text": "x", "seconds": 24})
        assert (await call(on_progress=lambda step: heard.append(step.progress))).data == "x"
        assert heard == [1, 2, 3]
        assert busy.lost, "it was asked for no sign of life"
        assert client.transport.carrier == "a"
    assert second.opened == 0


@BOTH
@pytest.mark.parametrize(
    ("tool", "retry", "listed", "repeated"),
    [
        ("buy", False, True, False),
        ("buy", True, True, True),
        ("look", False, True, True),
        ("look", False, False, False),
        ("put", False, True, True),
    ],
)
async def test_a_call_in_flight_is_repeated_only_if_it_may_be(
    mode: str, tool: str, retry: bool, listed: bool, repeated: bool, autojump_clock: trio.testing.MockClock
) -> None:
    made = scene()
    outcome: list[Any] = []
    async with connected(made, mode) as client:
        if listed:
            await client.list_tools()

        async def call() -> None:
            try:
                outcome.append((await client.call_tool(tool, {"text": "x", "wait": True}, retry=retry)).data)
            except OutcomeUnknown as exc:
                outcome.append(exc)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await eventually(lambda: made.ran == ["x"])
            made.ways[0].down()
            await eventually(lambda: client.transport.carrier == "b")
            made.hold.set()
        if repeated:
            assert outcome == ["x"]
            assert made.ran == ["x", "x"]
        else:
            (error,) = outcome
            assert isinstance(error, OutcomeUnknown)
            assert (error.method, error.way, error.reason) == ("tools/call", "a", "a is cut")
            assert made.ran == ["x"]


@BOTH
async def test_a_server_that_ends_finishes_what_it_has_begun(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    """What it refuses is done elsewhere, even if it may not be repeated; nothing is unknown."""
    made = scene()
    ending = [True]

    @made.ways[0].server.tool
    async def refuse() -> str:
        if ending:
            ending.pop()
            raise McpError(OVERLOADED, "the server is ending", {"ending": True})
        return "done"

    results: list[Any] = []
    async with connected(made, mode) as client:

        async def buy() -> None:
            results.append((await client.call_tool("buy", {"text": "x", "wait": True})).data)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(buy)
            await eventually(lambda: made.ran == ["x"])
            assert (await client.call_tool("refuse")).data == "done"
            assert client.transport.carrier == "b"
            assert client.transport.ways[0].state == "draining"
            made.hold.set()
        assert results == made.ran == ["x"]
        assert client.transport.unknown == 0
