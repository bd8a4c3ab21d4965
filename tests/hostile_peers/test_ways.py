"""A list of ways, of which one goes mad: it costs itself, and the next one takes over."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

import pytest
import trio.testing

from tests.hostile_peers.habits import BUDGET, HABITS, LEGACY, MODERN, Hostile, served_well
from tests.hostile_peers.wires import in_memory
from tests.waiting import steps_within
from trio_mcp import Client, FailoverParameters, SessionOptions, TrioMcpError
from trio_mcp.session.session import MAX_FAULTS

GARBAGE = {
    "is silent",
    "closes",
    "sends half a message",
    "sends a text",
    "sends ten texts",
    "sends a thousand texts",
    "sends an object",
    "sends JSON-RPC 1",
    "sends an empty batch",
    "sends malformed requests",
    "sends malformed errors",
}
"""Habits by which a way gives no sign of life, whatever it sends. Any response is one."""


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize("habit", HABITS)
async def test_the_next_way_takes_over_from_one_that(
    habit: str, mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    peers: list[Hostile] = []
    well = partial(served_well, mode=mode)

    async def turn_mad(wire: Any) -> None:
        budget = BUDGET - sum(peer.sent for peer in peers)
        peers.append(Hostile(HABITS[habit], 3, well, budget=budget))
        await peers[-1].play(wire)

    async def be_good(wire: Any) -> None:
        await Hostile(lambda message, text: well(message)).play(wire)

    async with in_memory(turn_mad) as first, in_memory(be_good) as second:
        ways = FailoverParameters([first, second])
        options = SessionOptions(on_error=lambda error: None)
        async with Client(ways, mode=mode, options=options, timeout=60) as client:
            await client.list_tools()
            await trio.sleep(100)
            if habit in GARBAGE:
                await client.list_tools()
            else:
                with contextlib.suppress(TrioMcpError):
                    await client.list_tools()
            assert await steps_within(100) <= 2000
    assert sum(len(peer.taken) for peer in peers) <= 2 * MAX_FAULTS + 200
