"""Our client against hostile servers: every call ends in time, and what is said has an end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest
import trio
import trio.testing

from tests.hostile_peers.habits import HABITS, LEGACY, MODERN, STEPS, Hostile, served_well
from tests.hostile_peers.wires import SERVED
from tests.waiting import steps_within
from trio_mcp import Client, SessionOptions, TrioMcpError
from trio_mcp.session.session import MAX_FAULTS

TIMEOUT = 5.0
CLOSING = 12.0
"""Seconds that a connection may take to close: the longest of docs/reference/limits.md, and its last pieces."""

OURS = 30
"""Messages that the client sends by itself in a test: its requests, their cancellations, two handshakes."""

ANSWERED = {"asks the unknown", "asks under one id", "sends malformed requests"}
"""What a client of the legacy era answers, one for one."""


@contextlib.asynccontextmanager
async def within(seconds: float) -> AsyncIterator[None]:
    """Check that the block ends in time, and by nothing but an error of the library."""
    started = trio.current_time()
    with contextlib.suppress(TrioMcpError):
        yield
    assert trio.current_time() - started <= seconds


async def use(target: object, mode: str) -> int:
    """Connect, do what a client does, wait, and leave; return how many steps tasks took while nothing happened."""
    busy = 0
    options = SessionOptions(on_error=lambda error: None)
    async with within(2 * TIMEOUT + 4 * TIMEOUT + 160 + CLOSING):
        connecting = trio.current_time()
        try:
            async with Client(target, mode=mode, timeout=TIMEOUT, options=options) as client:  # type: ignore[arg-type]
                for call in (client.list_tools, partial(client.call_tool, "x"), client.ping):
                    async with within(TIMEOUT + 1):
                        await call()
                async with within(TIMEOUT + 11), client.listen(tools_list_changed=True) as events:
                    with trio.move_on_after(10):
                        async for _ in events:
                            pass
                # Timers of the transport, such as pings, come and go meanwhile.
                await trio.sleep(50)
                busy = await steps_within(100)
        except TrioMcpError:
            assert trio.current_time() - connecting <= TIMEOUT + CLOSING
    return busy


BUSY = {"WebSocket": 100}
"""Steps of all tasks in 100 seconds in which nothing happens: pings alone."""


async def check(transport: str, habit: str, steps: int, mode: str) -> None:
    peers: list[Hostile] = []

    async def play(wire: object) -> None:
        peers.append(Hostile(HABITS[habit], steps, partial(served_well, mode=LEGACY if mode == "legacy" else MODERN)))
        await peers[-1].play(wire)

    async with SERVED[transport](play) as target:
        busy = await use(target, mode)
    assert busy <= BUSY.get(transport, 0)
    taken, sent = sum(len(peer.taken) for peer in peers), sum(peer.sent for peer in peers)
    assert taken <= OURS + (sent if habit in ANSWERED and mode != MODERN else 0)
    if habit == "sends malformed requests":
        assert taken <= OURS + MAX_FAULTS


EVERY_DAY = {"memory": (0,), "a stream": (2,), "TCP": (), "Unix": (), "WebSocket": ()}
"""By transport, the steps after which the habits begin in the tests of every day."""


AGAIN = {"memory": (1, 3), "a stream": (0,), "TCP": (2,), "Unix": (2,), "WebSocket": (2,)}
"""The same for those of ``-m again``. The others are left to ``-m long``."""


def marks(transport: str, steps: int) -> list[pytest.MarkDecorator]:
    """Return the marks for the habits after some steps."""
    if steps in EVERY_DAY[transport]:
        return []
    return [pytest.mark.again if steps in AGAIN[transport] else pytest.mark.long]


@pytest.mark.parametrize("mode", ["auto", "legacy", MODERN])
@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize(
    ("transport", "steps"),
    [
        pytest.param(transport, steps, marks=marks(transport, steps))
        for transport in SERVED
        for steps in ((2,) if transport == "Unix" else range(STEPS))  # all but the connection is that of TCP
    ],
)
async def test_a_server_that(
    transport: str, steps: int, habit: str, mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    await check(transport, habit, steps, mode)
