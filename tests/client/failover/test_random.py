"""Random faults on three ways under load, against a ledger of what the server has done."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.client.failover.fakes import Way
from tests.client.failover.test_switch import LEGACY, MODERN, Scene, connected, scene
from tests.waiting import eventually
from trio_mcp import Client, OutcomeUnknown, RequestTimeout

DETECTION = 10  # seconds: `check_after` and `check_timeout` as they are by default
TIMEOUT = 30


@attrs.define
class Run:
    """One run: its load, its faults, and what the callers were told."""

    made: Scene
    client: Client
    chance: random.Random
    told: dict[str, list[str]] = attrs.Factory(lambda: {"ok": [], "unknown": [], "late": [], "cancelled": []})
    progress: dict[str, list[float]] = attrs.Factory(dict)

    async def call(self, number: int) -> None:
        chance, kind = self.chance, self.chance.choice(["buy", "buy", "look", "put", "sign", "list"])
        text = f"{kind} {number}"
        patience = chance.uniform(0.01, 20) if chance.random() < 0.1 else None
        outcome = "cancelled"
        with trio.move_on_after(float("inf") if patience is None else patience):
            outcome = await self.once(kind, text)
        self.told[outcome].append(text)

    async def once(self, kind: str, text: str) -> str:
        try:
            if kind == "sign":
                assert (await self.client.read_resource("shop://sign", timeout=TIMEOUT)).contents
            elif kind == "list":
                assert (await self.client.list_tools(timeout=TIMEOUT)).tools
            else:
                seconds = self.chance.choice([0, 0, 0.1, 1, 5])
                arguments = {"text": text, "seconds": seconds}
                extra: dict[str, Any] = {}
                if self.chance.random() < 0.3:
                    seen = self.progress.setdefault(text, [])
                    extra["on_progress"] = lambda progress: seen.append(progress.progress)
                assert (await self.client.call_tool(kind, arguments, timeout=TIMEOUT, **extra)).data == text
        except OutcomeUnknown:
            return "unknown"
        except RequestTimeout:
            return "late"
        return "ok"

    async def load(self, seconds: float) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(int(seconds * 10)):
                nursery.start_soon(self.call, number)
                await trio.sleep(self.chance.uniform(0, 0.2))

    async def trouble(self, seconds: float) -> None:
        """Let ways fail and recover; one of them is well at any time, for longer than the detection takes."""
        until = trio.current_time() + seconds
        self.made.ways[0].down()
        while trio.current_time() < until:
            well = self.chance.choice(self.made.ways)
            well.accept()
            well.resume()
            for way in self.made.ways:
                if way is not well:
                    self.trouble_one(way)
            await trio.sleep(self.chance.uniform(DETECTION + 10, DETECTION + 30))

    def trouble_one(self, way: Way) -> None:
        match self.chance.randrange(6):
            case 0:
                way.down()
            case 1:
                way.stall()
            case 2:
                way.cut()
            case 3:
                way.tear()
            case 4:
                way.accept()
                way.resume()


@pytest.mark.parametrize("mode", [LEGACY, MODERN])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.again) for seed in range(1, 6))])
async def test_every_caller_is_told_the_truth(mode: str, seed: int, autojump_clock: trio.testing.MockClock) -> None:
    made = scene(3)
    async with connected(made, mode, settle=5) as client:
        await client.list_tools()
        run = Run(made, client, random.Random(seed))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run.load, 150)
            nursery.start_soon(run.trouble, 150)
        ran = Counter(made.ran)
        told = run.told
        # An unsafe call ran once at most, and exactly once if its caller was told of success.
        assert [text for text, times in ran.items() if text.startswith("buy") and times > 1] == []
        assert [text for text in told["ok"] if text.split()[0] in ("buy", "look", "put") and not ran[text]] == []
        # Only what must not be repeated is ever unknown, and whatever may be repeated succeeds in time.
        assert {text.split()[0] for text in told["unknown"]} <= {"buy"}
        assert [text for text in told["late"] if not text.startswith("buy")] == []
        assert len(told["unknown"]) <= client.transport.unknown
        assert made.switches
        assert len(told["ok"]) > 1000
        # All is well again.
        for way in made.ways:
            way.accept()
            way.resume()
        await eventually(lambda: client.transport.carrier == "a")
        await eventually(lambda: [way.open for way in made.ways] == [1, 0, 0])
        assert client.session.statistics().outgoing == 0
        await client.list_tools()
