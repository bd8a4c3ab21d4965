"""A way that gives signs of life, but on which calls fail: after a number of them in a row, the next is tried."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
import trio.testing

from tests.client.failover.fakes import Broken, ExchangeWay
from tests.client.failover.test_switch import BOTH, Scene, connected, scene
from tests.waiting import eventually
from trio_mcp import (
    AuthorizationError,
    Client,
    HttpError,
    MessageTooLarge,
    OutcomeUnknown,
    RemoteProtocolError,
    TransportError,
    TrioMcpError,
)
from trio_mcp.client.failover.ways import MAX_FAILED
from trio_mcp.http.client.heads import HttpTrouble

ALWAYS = 10**9


def exchanges(count: int = 2) -> tuple[Scene, list[ExchangeWay]]:
    made = scene(count)
    ways = [ExchangeWay(way.server, way.name) for way in made.ways]
    made.ways = [*ways]
    return made, ways


def answered(status: int, trouble: HttpTrouble, retry_after: float | None = None) -> HttpError:
    return HttpError("POST http://localhost/mcp", status, "X", {}, "", trouble, retry_after)


@BOTH
@pytest.mark.parametrize("tool", ["buy", "look"])
async def test_the_next_way_is_tried_after_some_calls_that_failed_in_a_row(
    mode: str, tool: str, autojump_clock: trio.testing.MockClock
) -> None:
    """The last of them is repeated there, if it may be."""
    made, (first, _) = exchanges()
    async with connected(made, mode) as client:
        await client.list_tools()
        first.failing = ALWAYS
        for number in range(1, MAX_FAILED):
            with pytest.raises(OutcomeUnknown if tool == "buy" else Broken):
                await client.call_tool(tool, {"text": str(number)})
            await trio.sleep(1)
            assert client.transport.carrier == "a"
        if tool == "buy":
            with pytest.raises(OutcomeUnknown):
                await client.call_tool(tool, {"text": "last"})
            await eventually(lambda: client.transport.carrier == "b")
        else:
            assert (await client.call_tool(tool, {"text": "last"})).data == "last"
        assert (await client.call_tool(tool, {"text": "x"})).data == "x"
        (switch,) = made.switches
        assert (switch.from_way, switch.to_way, switch.planned) == ("a", "b", False)
        assert "calls on the link failed again and again, though it gave signs of life: the conn" in str(switch.cause)
    assert made.ran == (["x"] if tool == "buy" else ["last", "x"])


@BOTH
async def test_a_call_that_succeeds_starts_the_count_again(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    """So does an error that the server itself responds with."""
    made, (first, _) = exchanges()
    async with connected(made, mode) as client:
        await client.list_tools()
        for number in range(20):
            first.failing = MAX_FAILED - 1
            for _ in range(MAX_FAILED - 1):
                with pytest.raises(OutcomeUnknown):
                    await client.call_tool("buy", {"text": "x"})
                await trio.sleep(1)
            assert (await client.call_tool("buy", {} if number % 2 else {"text": "x"})).is_error == bool(number % 2)
    assert made.switches == []


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (answered(200, "refused"), True),  # with neither JSON nor events, as from a portal that wants a login
        (answered(302, "refused"), True),
        (answered(400, "refused"), True),
        (answered(403, "forbidden"), True),
        (answered(500, "refused"), True),
        (answered(502, "gateway"), True),
        (answered(503, "busy"), True),
        (RemoteProtocolError("that is not a response"), True),
        (MessageTooLarge(1000), False),
        (AuthorizationError("refresh", "it was refused"), False),
    ],
)
async def test_what_counts_is_what_the_way_may_be_to_blame_for(
    error: TrioMcpError, counts: bool, autojump_clock: trio.testing.MockClock
) -> None:
    made, (first, _) = exchanges()
    async with connected(made) as client:
        await client.list_tools()
        first.failing, first.error = ALWAYS, error
        for _ in range(2 * MAX_FAILED):
            with contextlib.suppress(TrioMcpError):
                await client.call_tool("buy", {"text": "x"})
            await trio.sleep(1)
        assert client.transport.carrier == ("b" if counts else "a")


async def test_what_the_caller_does_counts_not_against_the_way(autojump_clock: trio.testing.MockClock) -> None:
    """Neither a time limit that is too short for a tool, nor a cancellation."""
    made, _ = exchanges()
    async with connected(made) as client:
        for number in range(4 * MAX_FAILED):
            arguments = {"text": "x", "seconds": 20}
            with trio.move_on_after(1 if number % 2 else 100), contextlib.suppress(TimeoutError):
                await client.call_tool("buy", arguments, timeout=2)
        assert client.transport.carrier == "a"
    assert made.switches == []


@pytest.mark.parametrize("status", [200, 302, 500])
async def test_a_response_that_is_not_of_an_mcp_server_leaves_the_outcome_unknown(
    status: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Not a refusal: the status doesn't say whether something was done."""
    made, (first, _) = exchanges()
    async with connected(made) as client:
        await client.list_tools()
        first.failing, first.error = 2, answered(status, "refused")
        with pytest.raises(OutcomeUnknown, match=f"status {status}"):
            await client.call_tool("buy", {"text": "x"})
        assert (await client.call_tool("look", {"text": "y"})).data == "y"


@BOTH
async def test_calls_under_way_end_where_they_are(mode: str, autojump_clock: trio.testing.MockClock) -> None:
    made, (first, _) = exchanges()
    results: list[Any] = []
    async with connected(made, mode) as client, trio.open_nursery() as nursery:
        await client.list_tools()

        @nursery.start_soon
        async def slow() -> None:
            results.append((await client.call_tool("buy", {"text": "slow", "wait": True})).data)

        await eventually(lambda: made.ran == ["slow"])
        first.failing = ALWAYS
        for _ in range(MAX_FAILED):
            with pytest.raises(OutcomeUnknown):
                await client.call_tool("buy", {"text": "x"})
            await trio.sleep(1)
        await eventually(lambda: [way.state for way in client.transport.ways] == ["draining", "carrying"])
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"
        made.hold.set()
    assert results == ["slow"]


async def test_an_only_way_is_kept(autojump_clock: trio.testing.MockClock) -> None:
    made, (only,) = exchanges(1)
    async with connected(made) as client:
        await client.list_tools()
        only.failing = 4 * MAX_FAILED
        for _ in range(4 * MAX_FAILED):
            with pytest.raises(OutcomeUnknown):
                await client.call_tool("buy", {"text": "x"})
        assert only.opened == 1
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"


async def test_a_way_that_was_left_for_its_calls_is_tried_with_one_and_less_and_less_often(
    autojump_clock: trio.testing.MockClock,
) -> None:
    made, (first, _) = exchanges()
    failed = 0
    async with connected(made, settle=10) as client:
        await client.list_tools()
        first.failing = ALWAYS
        for _ in range(600):
            try:
                await client.call_tool("buy", {"text": "x"})
            except OutcomeUnknown:
                failed += 1
            await trio.sleep(1)
        returns = [switch for switch in made.switches if switch.planned]
        # After 10, 20, 40, 80, 160 and 160 seconds, and the waits before the attempts.
        assert 4 <= len(returns) <= 6
        assert failed == MAX_FAILED + len(returns)
        first.failing = 0
        await eventually(lambda: client.transport.carrier == "a")
        assert (await client.call_tool("buy", {"text": "x"})).data == "x"
        for _ in range(MAX_FAILED - 1):
            first.failing = 1
            with pytest.raises(OutcomeUnknown):
                await client.call_tool("buy", {"text": "x"})
            await trio.sleep(1)
        assert client.transport.carrier == "a"


async def test_many_calls_that_fail_at_once_count_as_one(autojump_clock: trio.testing.MockClock) -> None:
    """A connection that breaks may have carried all of them."""
    made, (first, _) = exchanges()
    async with connected(made) as client:
        await client.list_tools()
        for _ in range(MAX_FAILED - 1):
            first.failing = 5
            async with trio.open_nursery() as nursery:
                for _ in range(first.failing):
                    nursery.start_soon(unknown, client)
            await trio.sleep(1)
        assert made.switches == []


async def unknown(client: Client) -> None:
    with pytest.raises(OutcomeUnknown):
        await client.call_tool("buy", {"text": "x"})


async def test_ways_that_both_fail_calls_are_changed_with_waits(autojump_clock: trio.testing.MockClock) -> None:
    made, ways = exchanges()
    failed = 0
    async with connected(made) as client:
        await client.list_tools()
        for way in ways:
            way.failing = ALWAYS
        with trio.move_on_after(600):
            while True:
                with pytest.raises(TransportError):
                    await client.call_tool("look", {"text": "x"})
                failed += 1
        assert failed > 100  # each is told in time that it has failed
        assert client.transport.switches * MAX_FAILED < 2 * failed
        ways[1].failing = 0
        while not made.ran:
            with contextlib.suppress(TransportError):
                await client.call_tool("look", {"text": "x"})
        assert client.transport.carrier == "b"
