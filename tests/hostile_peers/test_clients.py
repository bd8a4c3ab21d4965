"""Our server against hostile clients: what is said has an end, and so has the session, once the client has left."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import trio
import trio.testing
from pydantic import BaseModel

from tests.hostile_peers.habits import HABITS, LEGACY, MODERN, STEPS, Act, Hostile, rpc
from tests.hostile_peers.wires import TO_SERVERS, Wire
from tests.peer import ME
from tests.waiting import steps_within
from trio_mcp import CallOptions, Context, Server, SessionOptions
from trio_mcp.session.session import MAX_FAULTS
from trio_mcp.types import meta

CLOSING = 12.0
"""Seconds that a connection may take to close: the longest of docs/reference/limits.md, and its last pieces."""

STAMP = {meta.PROTOCOL_VERSION: MODERN, meta.CLIENT_INFO: ME, meta.CLIENT_CAPABILITIES: {"elicitation": {}}}


class Name(BaseModel):
    name: str


def make_server() -> Server:
    options = SessionOptions(calls=CallOptions(timeout=5), on_error=lambda error: None)
    server = Server("target", options=options)

    @server.tool
    async def ask(ctx: Context) -> str:
        """Ask for a name, five times if need be."""
        for _ in range(5):
            answer = await ctx.elicit("Who?", Name)
        return str(answer)

    @server.tool
    async def wait(ctx: Context) -> str:
        """Report each second for a minute."""
        for second in range(60):
            await trio.sleep(1)
            await ctx.report_progress(second)
        return "done"

    return server


def script(mode: str) -> list[bytes]:
    """Return what a good client says."""
    numbers = itertools.count(1)

    def asks(method: str, **params: Any) -> bytes:
        number = next(numbers)
        fields = {"progressToken": number, **({} if mode == LEGACY else STAMP)}
        return rpc(id=number, method=method, params={**params, "_meta": fields})

    hello = {"protocolVersion": LEGACY, "capabilities": {"elicitation": {}}, "clientInfo": ME}
    opening = [asks("initialize", **hello), rpc(method="notifications/initialized")]
    return [
        *(opening if mode == LEGACY else [asks("server/discover"), asks("server/discover")]),
        asks("tools/list"),
        asks("tools/call", name="ask"),
        asks("tools/call", name="wait"),
    ]


async def play(client: Hostile, wire: Wire, mode: str) -> None:
    """Say what a good client says, then one thing out of the habit, and go on like that about all that comes."""
    for text in script(mode)[: client.steps]:
        await wire.send(text)
        await trio.testing.wait_all_tasks_blocked()
    client.steps = 0
    # The first move has no occasion; and what comes meanwhile is taken as it comes.
    for move in client.moves(b"{}"):
        if move is Act.CLOSE:
            return
        await (wire.begin(b'{"jsonrpc": "2.0", "id": 1, "met') if move is Act.HALF else wire.send(move))
    await client.play(wire)


async def check(transport: str, habit: str, steps: int, mode: str) -> None:
    client = Hostile(HABITS[habit], steps)
    server = make_server()
    async with TO_SERVERS[transport](server) as wire:
        async with trio.open_nursery() as nursery:

            async def leave() -> None:
                try:
                    await play(client, wire, mode)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass

            nursery.start_soon(leave)
            await trio.sleep(100)
            assert await steps_within(100) <= BUSY.get(transport, 0)
            nursery.cancel_scope.cancel()
        await wire.close()
        await trio.sleep(CLOSING)
        assert server.statistics().sessions == 0
    # One response to each of its requests, one error to each fault, and what the two tools have to say.
    assert len(client.taken) <= client.sent + 100
    if habit in GARBAGE:
        assert len(client.taken) <= MAX_FAULTS + 100


BUSY = {"WebSocket": 100}
"""Steps of all tasks in 100 seconds in which nothing happens: pings alone."""

GARBAGE = set(HABITS) - {"asks the unknown", "asks under one id", "echoes"}
"""Habits without a request: what they bring about is bounded, however long they go on."""

EVERY_DAY = {"memory": (0,), "a stream": (4,), "TCP": (), "WebSocket": ()}


AGAIN = {"memory": (1, 2, 3), "a stream": (0,), "TCP": (2,), "WebSocket": (2,)}
"""The same for those of ``-m again``. The others are left to ``-m long``."""


def marks(transport: str, steps: int) -> list[pytest.MarkDecorator]:
    """Return the marks for the habits after some steps."""
    if steps in EVERY_DAY[transport]:
        return []
    return [pytest.mark.again if steps in AGAIN[transport] else pytest.mark.long]


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize("habit", HABITS)
@pytest.mark.parametrize(
    ("transport", "steps"),
    [
        pytest.param(transport, steps, marks=marks(transport, steps))
        for transport in TO_SERVERS
        for steps in range(STEPS + 1)
    ],
)
async def test_a_client_that(
    transport: str, steps: int, habit: str, mode: str, autojump_clock: trio.testing.MockClock
) -> None:
    await check(transport, habit, steps, mode)
