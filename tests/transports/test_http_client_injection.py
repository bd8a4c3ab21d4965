"""A cancellation at every step of what an HTTP client does, and random faults: each call has its own outcome.

Nothing is left open, and the next call gets through.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.http_peer import Asked, HttpPeer, event, peer, progress, result
from tests.injection import cancel_everywhere
from tests.transports.http_calls import TEXT as MODERN_TEXT, discovered, over
from tests.transports.http_legacy import CHANGED, QUICK, TEXT, OldServer, Restarting, text
from trio_mcp import Client, HttpError, SessionClosed, TransportError
from trio_mcp.http.client.origins import ORIGINS
from trio_mcp.low_level import streamable_http_client

pytestmark = pytest.mark.usefixtures("no_wait")
NET = 60


class Path:
    """A server that leads its client along one path, and what the client does there.

    Attributes:
        mode: The client's.
    """

    mode = "legacy"

    def handlers(self) -> dict[str, Any]:
        return {"tools/call": self.call}

    async def call(self, asked: Asked) -> None:
        await asked.result(TEXT)

    async def walk(self, client: Client, server: HttpPeer) -> None:
        assert await text(client) == "ok"


class Renewal(Restarting, Path):
    """The server forgets the session, and two calls find out at once."""

    async def walk(self, client: Client, server: HttpPeer) -> None:
        self.number += 1
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(super().walk, client, server)


class Unannounced(Restarting, Path):
    """The server forgets each other session before it is announced as open."""

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "notifications/initialized": self.initialized}

    async def initialized(self, asked: Asked) -> None:
        if self.number % 2:
            self.number += 1
        await asked.status(202 if self.knows(asked) else 404)

    async def walk(self, client: Client, server: HttpPeer) -> None:
        self.number += 1  # odd again: what is opened in its place is forgotten likewise
        await super().walk(client, server)


class Resumption(Path):
    """The stream of a response breaks off, is resumed, ends, and is resumed again."""

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "GET": self.get}

    async def call(self, asked: Asked) -> None:
        await asked.events(b"id: %d-0\ndata:\n\n" % asked.id + event(CHANGED, f"{asked.id}-1"), then="abort")

    async def get(self, asked: Asked) -> None:
        number, _, last = asked.headers.get("last-event-id", "").partition("-")
        if not last:
            await asked.status(405)
            return
        message = CHANGED if last == "1" else result(int(number), TEXT)
        await asked.events(event(message, f"{number}-{int(last) + 1}"))


class Listening(Path):
    """The server speaks on its own stream, which breaks off and is resumed."""

    def __init__(self) -> None:
        self.heard = trio.lowlevel.ParkingLot()
        self.opened = 0

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "GET": self.get}

    async def get(self, asked: Asked) -> None:
        self.opened += 1
        self.heard.unpark_all()
        said = event(CHANGED, "1") + event({"jsonrpc": "2.0", "id": "q", "method": "ping"})
        await asked.events(said, then="gone" if "last-event-id" in asked.headers else "abort")

    async def walk(self, client: Client, server: HttpPeer) -> None:
        answers, opened = server.methods().count("answer"), self.opened
        while server.methods().count("answer") < answers + 1 or self.opened < opened + 1:
            await server.heard.park()
        await super().walk(client, server)


class Streaming(Path):
    """The modern era: progress before the answer."""

    mode = "2026-07-28"

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "server/discover": discovered}

    async def call(self, asked: Asked) -> None:
        token = asked.body["params"]["_meta"].get("progressToken", "none")
        notes = [event(progress(token, number)) for number in range(3)]
        await asked.events(*notes, event(result(asked.id, MODERN_TEXT)))

    async def walk(self, client: Client, server: HttpPeer) -> None:
        assert await text(client, on_progress=lambda _: None) == "ok"


class Fallback(OldServer, Path):
    """A server of 2024-11-05, which the client finds out by being refused twice."""

    mode = "auto"


HANDSHAKES = [
    pytest.param(path, marks=pytest.mark.legacy) for path in (Renewal, Unannounced, Resumption, Listening, Fallback)
]
PATHS = pytest.mark.parametrize("path", [Streaming, *HANDSHAKES])


@contextlib.asynccontextmanager
async def on(path: Path) -> AsyncIterator[tuple[HttpPeer, httpx.AsyncClient, Callable[[], Client]]]:
    """Yield a server for this path, an HTTP client, and a function that makes MCP clients that share it."""
    with trio.fail_after(NET):
        async with peer(path.handlers()) as server, httpx.AsyncClient() as http_client:
            connect = partial(streamable_http_client, server.url, http_client=http_client, reconnect=QUICK)
            yield server, http_client, partial(Client, connect, mode=path.mode)
    gc.collect()  # a generator of httpx that was left behind would complain, and a warning is an error


@pytest.mark.again
@PATHS
async def test_a_client_that_is_cancelled_anywhere_leaves_nothing_open(path: Callable[[], Path]) -> None:
    """From its first step to its last, the DELETE at the end included."""
    way = path()
    async with on(way) as (server, http_client, make):
        tasks = trio.lowlevel.current_statistics().tasks_living

        async def scenario() -> None:
            ORIGINS.clear()
            async with make() as client:
                await way.walk(client, server)

        places = await cancel_everywhere(scenario, partial(over, server, http_client, tasks))
        assert places > 30
        await scenario()


@pytest.mark.again
@PATHS
async def test_a_call_cancelled_anywhere_costs_its_client_nothing_else(path: Callable[[], Path]) -> None:
    """Other calls, meanwhile and afterwards, are answered; there is one handshake each time the server forgets."""
    way = path()
    async with on(way) as (server, _, make), make() as client, trio.open_nursery() as nursery:
        if isinstance(way, Listening):
            await way.walk(client, server)  # its stream belongs to no call
        others: list[str] = []

        async def other() -> None:
            others.append(await text(client))

        async def scenario() -> None:
            if isinstance(way, Renewal):
                way.number += 1
            nursery.start_soon(other)
            await text(client, on_progress=lambda _: None)

        async def check() -> None:
            assert await text(client) == "ok"
            while nursery.child_tasks:
                await trio.lowlevel.checkpoint()
            assert set(others) == {"ok"}
            others.clear()
            if isinstance(way, Renewal):
                assert server.methods().count("initialize") == way.number
            assert client.session.close_cause is None

        assert await cancel_everywhere(scenario, check) > 5


@pytest.mark.again
@PATHS
async def test_a_client_that_is_closed_at_any_moment_settles_its_calls(path: Callable[[], Path]) -> None:
    """Each is answered, or told that the session was closed; none hangs, none hears of anything else."""
    way = path()
    async with on(way) as (server, http_client, make):
        tasks = trio.lowlevel.current_statistics().tasks_living
        outcomes: list[str] = []

        async def call(client: Client) -> None:
            try:
                outcomes.append(await text(client))
            except SessionClosed:
                outcomes.append("closed")

        # Turns of the event loop say nothing of the network's time, so the last run is closed only after both calls.
        for turns in [*range(400), None]:
            outcomes.clear()
            ORIGINS.clear()
            async with make() as client:
                if isinstance(way, Renewal):
                    way.number += 1
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(call, client)
                    nursery.start_soon(call, client)
                    for _ in range(turns or 0):
                        await trio.lowlevel.checkpoint()
                    if turns is not None:
                        await client.aclose()
            assert set(outcomes) <= {"ok", "closed"}
            assert len(outcomes) == 2
            await over(server, http_client, tasks)
            if outcomes == ["ok", "ok"]:
                break
        assert outcomes == ["ok", "ok"]
        assert turns is None or turns > 3


# --- anything in any order ------------------------------------------------------------------------------------

TURNS = st.integers(0, 60)


@attrs.define
class Step:
    """What one caller does.

    Attributes:
        fault: What the server does with the call.
        restart: The server forgets every session before.
        pause: Turns of the event loop before the next caller begins.
        patience: Turns after which this one is cancelled; None for never.
    """

    fault: str
    restart: bool
    pause: int
    patience: int | None


OUTCOMES = {
    "json": {"ok"},
    "events": {"ok"},
    "resumed": {"ok"},
    "status": {"500, None"},
    "busy": {"429, 1.0"},
    "cut": {"TransportError"},
    "hang": set[str](),
}
MODERN_OUTCOMES = {**OUTCOMES, "resumed": {"TransportError"}}


def steps(restarts: bool) -> Any:
    step = st.builds(
        Step, st.sampled_from(sorted(OUTCOMES)), st.just(False) | st.just(restarts), TURNS, st.none() | TURNS
    )
    return st.lists(step, min_size=5, max_size=25)


class Faulty(Restarting, Path):
    """The server treats each call as the name of its tool says."""

    hanging = 0

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.mode = mode

    def handlers(self) -> dict[str, Any]:
        return {**super().handlers(), "server/discover": discovered, "GET": self.get}

    async def call(self, asked: Asked) -> None:
        answer = event(result(asked.id, MODERN_TEXT))
        if not self.knows(asked):
            await asked.status(404)
            return
        match asked.body["params"]["name"]:
            case "json":
                await asked.result(MODERN_TEXT)
            case "events":
                await asked.events(answer)
            case "resumed":
                await asked.events(f"id: {asked.id}\ndata:\n\n".encode(), then="abort")
            case "status":
                await asked.status(500)
            case "busy":
                await asked.status(429, Retry_After="1")
            case "cut":
                await asked.events(answer[:-1], then="abort")
            case "hang":
                self.hanging += 1
                await asked.gone()
                self.hanging -= 1

    async def get(self, asked: Asked) -> None:
        last = asked.headers.get("last-event-id")
        if not self.knows(asked):
            await asked.status(404)
        elif last is None:
            await asked.events(then="gone")
        else:
            await asked.events(event(result(int(last), TEXT), "done"))


async def play(mode: str, script: list[Step]) -> None:
    faulty, restarts = Faulty(mode), any(step.restart for step in script)
    async with on(faulty) as (server, http_client, make):
        await trio.testing.wait_all_tasks_blocked()
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with make() as client:
            async with trio.open_nursery() as nursery:
                for step in script:
                    faulty.number += step.restart
                    nursery.start_soon(caller, client, step, mode, restarts)
                    for _ in range(step.pause):
                        await trio.lowlevel.checkpoint()
            # Cancelled calls are given up while the client lives on.
            while faulty.hanging:  # noqa: ASYNC110
                await trio.sleep(0.001)
        await over(server, http_client, tasks)
    assert server.methods().count("initialize") <= faulty.number


async def caller(client: Client, step: Step, mode: str, restarts: bool) -> None:
    expected = {"cancelled"} if step.patience is not None else set[str]()
    expected |= (OUTCOMES if mode == "legacy" else MODERN_OUTCOMES)[step.fault]
    if restarts:
        # Twice in a row, or in the middle of a stream, which says that the connection was lost, and why.
        expected |= {"session_lost", "TransportError"} if step.fault == "resumed" else {"session_lost"}
    outcome = "cancelled"
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            if step.patience is not None:
                nursery.start_soon(leave, scope, step.patience)
            try:
                outcome = await text(client, step.fault)
            except HttpError as exc:
                outcome = exc.trouble if exc.trouble == "session_lost" else f"{exc.status}, {exc.retry_after}"
            except TransportError:
                outcome = "TransportError"
            nursery.cancel_scope.cancel()
    assert outcome in expected, (outcome, step)


async def leave(scope: trio.CancelScope, turns: int) -> None:
    for _ in range(turns):
        await trio.lowlevel.checkpoint()
    scope.cancel()


def ending(script: list[Step]) -> list[Step]:
    """Cancel every step that would otherwise hang."""
    return [
        attrs.evolve(step, patience=30) if step.fault == "hang" and step.patience is None else step for step in script
    ]


@pytest.mark.legacy
@settings(max_examples=examples(20))
@given(script=steps(restarts=True).map(ending))
def test_in_the_legacy_era(script: list[Step]) -> None:
    trio.run(play, "legacy", script)


@settings(max_examples=examples(20))
@given(script=steps(restarts=False).map(ending))
def test_in_the_modern_era(script: list[Step]) -> None:
    trio.run(play, "2026-07-28", script)
