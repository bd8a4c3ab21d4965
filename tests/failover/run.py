"""A run: three ways that break, a client of each era, and the promises that must hold."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import attrs
import trio

from tests.failover.load import Load, listen
from tests.failover.ways import Way
from tests.waiting import eventually
from trio_mcp import Backoff, Client, FailoverParameters, HttpServerParameters, SessionOptions, Switch

QUIET = 5.0
"""Seconds of load at the end, with all ways up and each client back on its best."""


@attrs.frozen(kw_only=True)
class Plan:
    """The options of the command line."""

    minutes: float
    seed: int
    out: Path
    rate: float
    every: float
    longest: float


SETTINGS: dict[str, Any] = {
    "check_after": 1.0,
    "check_timeout": 1.5,
    "attempt_timeout": 3.0,
    "head_start": 0.3,
    "settle": 2.0,
    "backoff": Backoff(first=0.1, longest=1.0, attempts=None),
}
"""Shorter than the defaults, so that a minute has many switches."""

MARGIN = 1.0
"""Seconds for connecting, for the calls themselves, and for a machine that is busy. Chosen."""

DETECTION = SETTINGS["check_after"] + SETTINGS["check_timeout"]
"""Seconds within which a way that is silent is found out."""

BACK = SETTINGS["settle"] * 16 + 10
"""Seconds within which a client is back on its best way: the time to prove itself doubles up to 16 times."""

RECOVERY = DETECTION + SETTINGS["head_start"] * 2 + SETTINGS["backoff"].longest + MARGIN
"""Seconds within which a way that is up carries the calls: docs/how-to/failover.md."""


class Side:
    """A client, its load, and what it has noticed.

    Attributes:
        era: The era that it speaks.
        load: Its calls.
        heard: When it was told that the state has changed.
        switches: Its switches, with their times.
        errors: What came that belongs to no call.
        lost: Why subscriptions were lost.
    """

    def __init__(self, era: str, plan: Plan) -> None:
        self.era = era
        self.load = Load(era, plan.rate / 2, f"{plan.seed}-{era}")
        self.heard: list[float] = []
        self.switches: list[tuple[float, Switch]] = []
        self.errors: list[Exception] = []
        self.lost: list[str] = []

    def client(self, ways: dict[str, Way]) -> Client:
        urls = {kind: way.proxy.url for kind, way in ways.items()}
        first = urls["websocket"].replace("http://", "ws://")
        third: Any = HttpServerParameters(urls["sse"], kind="sse")
        if self.era == "modern":  # which HTTP+SSE does not speak, but its server does, at another path
            third = urls["sse"].replace("/sse", "/mcp")
        target = FailoverParameters([first, urls["http"], third], on_switch=self._note, **SETTINGS)
        mode = "legacy" if self.era == "legacy" else "2026-07-28"
        return Client(target, mode=mode, options=SessionOptions(on_error=self._note_error))

    async def _note_error(self, error: Exception) -> None:
        self.errors.append(error)

    def _note(self, switch: Switch) -> None:
        self.switches.append((trio.current_time(), switch))


class Run:
    """One run.

    Attributes:
        ways: The ways, by what they speak, the best first.
        sides: The clients.
        changes: When the state was changed.
        begun: When the load began.
        calmed: When the last way was brought back.
        quiet: When each client was back on its best way.
        ended: When the load ended.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.ways = {kind: Way(kind, plan.out) for kind in ("websocket", "http", "sse")}
        self.sides = [Side(era, plan) for era in ("legacy", "modern")]
        self.changes: list[float] = []
        self.begun = self.calmed = self.quiet = self.ended = 0.0

    async def run(self) -> None:
        """Put the load on, break the ways, let everything settle, and end."""
        async with AsyncExitStack() as stack:
            for way in self.ways.values():
                await stack.enter_async_context(way.proxy)
            try:
                async with trio.open_nursery() as nursery:
                    for way in self.ways.values():
                        nursery.start_soon(way.start)
                async with AsyncExitStack() as clients:
                    await self._load([await clients.enter_async_context(side.client(self.ways)) for side in self.sides])
            finally:
                with trio.CancelScope(shield=True):
                    for way in self.ways.values():
                        await way.end()

    async def _load(self, clients: list[Client]) -> None:
        stop = trio.Event()
        async with trio.open_nursery() as around:
            for side, client in zip(self.sides, clients, strict=True):
                around.start_soon(listen, client, side.heard, side.lost)
            around.start_soon(self._change_now_and_then)
            around.start_soon(self._tell)
            async with trio.open_nursery() as loads:
                self.begun = trio.current_time()
                for side, client in zip(self.sides, clients, strict=True):
                    loads.start_soon(side.load.run, client, stop)
                await self._break_ways()
                self.calmed = trio.current_time()
                with trio.move_on_after(BACK):
                    await eventually(lambda: all(each.transport.ways[0].state == "carrying" for each in clients))
                self.quiet = trio.current_time()
                await trio.sleep(QUIET)
                self.ended = trio.current_time()
                stop.set()
            around.cancel_scope.cancel()

    async def _break_ways(self) -> None:
        with trio.move_on_after(self.plan.minutes * 60):
            async with trio.open_nursery() as nursery:
                for kind, way in self.ways.items():
                    rng = random.Random(f"{self.plan.seed}-{kind}")
                    nursery.start_soon(way.break_now_and_then, rng, self.plan.every, self.plan.longest)

    async def _change_now_and_then(self) -> None:
        while True:
            (self.plan.out / "state").write_text(str(len(self.changes) + 1))
            self.changes.append(trio.current_time())
            await trio.sleep(1)

    async def _tell(self) -> None:
        while True:
            await trio.sleep(10)
            outcomes = Counter(call.outcome for side in self.sides for call in side.load.calls)
            waiting = sum(len(side.load.under_way) for side in self.sides)
            switches = sum(len(side.switches) for side in self.sides)
            passed = trio.current_time() - self.begun
            print(f"{passed:6.0f} s: {dict(outcomes)}, {waiting} under way, {switches} switches", flush=True)
