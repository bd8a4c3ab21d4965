"""Random calls, faults, restarts and cancellations of an HTTP client: each call has its own outcome, and no other."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import attrs
import httpx
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.http_peer import DISCOVERED, INITIALIZED, Asked, event, peer, result
from tests.transports.http_calls import over
from tests.transports.http_legacy import QUICK, TEXT
from trio_mcp import Client, HttpError, TransportError, streamable_http_client

pytestmark = pytest.mark.usefixtures("no_wait")
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
MODERN = {**OUTCOMES, "resumed": {"TransportError"}}


def steps(restarts: bool) -> Any:
    step = st.builds(
        Step, st.sampled_from(sorted(OUTCOMES)), st.just(False) | st.just(restarts), TURNS, st.none() | TURNS
    )
    return st.lists(step, min_size=5, max_size=25)


class Faulty:
    """A server that treats each call as the name of its tool says."""

    def __init__(self) -> None:
        self.restarts = 0
        self.hanging = 0

    def handlers(self) -> dict[str, Any]:
        return {
            "initialize": self.initialize,
            "server/discover": self.discover,
            "tools/call": self.call,
            "GET": self.get,
            "DELETE": self.delete,
        }

    async def initialize(self, asked: Asked) -> None:
        await asked.result(INITIALIZED, Mcp_Session_Id=f"s{self.restarts}")

    async def discover(self, asked: Asked) -> None:
        await asked.result(DISCOVERED)

    async def delete(self, asked: Asked) -> None:
        await asked.status(204)

    def knows(self, asked: Asked) -> bool:
        return asked.headers.get("mcp-session-id", f"s{self.restarts}") == f"s{self.restarts}"

    async def call(self, asked: Asked) -> None:
        answer = event(result(asked.id, {**TEXT, "resultType": "complete"}))
        if not self.knows(asked):
            await asked.status(404)
            return
        match asked.body["params"]["name"]:
            case "json":
                await asked.result({**TEXT, "resultType": "complete"})
            case "events":
                await asked.begin_events()
                await asked.chunk(answer)
                await asked.end_events()
            case "resumed":
                await asked.begin_events()
                await asked.chunk(f"id: {asked.id}\ndata:\n\n".encode())
                await asked.abort()
            case "status":
                await asked.status(500)
            case "busy":
                await asked.status(429, Retry_After="1")
            case "cut":
                await asked.begin_events()
                await asked.chunk(answer[:-1])
                await asked.abort()
            case "hang":
                self.hanging += 1
                await asked.gone()
                self.hanging -= 1

    async def get(self, asked: Asked) -> None:
        last = asked.headers.get("last-event-id")
        if not self.knows(asked):
            await asked.status(404)
        elif last is None:
            await asked.begin_events()
            await asked.gone()
        else:
            await asked.begin_events()
            await asked.chunk(event(result(int(last), TEXT), "done"))
            await asked.end_events()


async def play(mode: str, script: list[Step]) -> None:
    faulty, restarts = Faulty(), any(step.restart for step in script)
    with trio.fail_after(60):
        async with peer(faulty.handlers()) as server, httpx.AsyncClient(verify=False) as http_client:
            await trio.testing.wait_all_tasks_blocked()
            tasks = trio.lowlevel.current_statistics().tasks_living
            connect = partial(streamable_http_client, server.url, http_client=http_client, reconnect=QUICK)
            async with Client(connect, mode=mode) as client:
                async with trio.open_nursery() as nursery:
                    for step in script:
                        faulty.restarts += step.restart
                        nursery.start_soon(caller, client, step, mode, restarts)
                        for _ in range(step.pause):
                            await trio.lowlevel.checkpoint()
                # Cancelled calls are given up while the client lives on.
                while faulty.hanging:  # noqa: ASYNC110
                    await trio.sleep(0.001)
            await over(server, http_client, tasks)
        assert server.methods().count("initialize") <= 1 + faulty.restarts
    gc.collect()


async def caller(client: Client, step: Step, mode: str, restarts: bool) -> None:
    expected = {"cancelled"} if step.patience is not None else set[str]()
    expected |= (OUTCOMES if mode == "legacy" else MODERN)[step.fault]
    if restarts:
        expected |= {"session_lost"}  # twice in a row, or in the middle of a stream
    outcome = "cancelled"
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            if step.patience is not None:
                nursery.start_soon(leave, scope, step.patience)
            try:
                outcome = str((await client.call_tool(step.fault)).content[0].text)  # type: ignore[union-attr]
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
