"""The ways to the server: a process each, behind a proxy, which break at random; and when each was up."""

from __future__ import annotations

import math
import random
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio

from tests.soak.processes import Served
from trio_mcp.testing import FaultProxy

PATHS = {"websocket": "/mcp", "http": "/mcp", "sse": "/sse"}


class Way:
    """A process, the proxy before it, and the times at which a client could reach it without a break.

    Attributes:
        kind: What it speaks.
        proxy: What clients connect to.
        reached: Its port.
        up: The times from and until which nothing has broken it; the last one is open while it is up.
        faults: How often it has broken, by kind of fault.
    """

    def __init__(self, kind: str, out: Path) -> None:
        self.kind = kind
        self._served = Served(kind, out, module="tests.failover.serve", kind=kind, ports=[kind])
        self.proxy = FaultProxy(f"http://127.0.0.1:{self._served.ports[kind]}{PATHS[kind]}")
        self.reached = 0
        self.up: list[tuple[float, float]] = []
        self.faults: Counter[str] = Counter()
        self._since: float | None = None

    async def start(self) -> None:
        self.reached = self.proxy.port
        await self._served.start()
        self._note_up()

    async def end(self) -> None:
        if self._since is not None:
            self._note_down()
        await self._served.end(signal.SIGTERM)
        self.release()

    def release(self) -> None:
        """Give up its port: it is not started again."""
        self._served.release()

    def intervals(self) -> list[tuple[float, float]]:
        """Return the times during which it was up."""
        return self.up if self._since is None else [*self.up, (self._since, math.inf)]

    def _note_up(self) -> None:
        self._since = trio.current_time()

    def _note_down(self) -> None:
        assert self._since is not None
        self.up.append((self._since, trio.current_time()))
        self._since = None

    async def break_now_and_then(self, rng: random.Random, every: float, longest: float) -> None:
        """Break it and bring it back, until this is cancelled; then it is brought back, too."""
        kinds: dict[str, Callable[[float], Awaitable[None]]] = {
            "killed": lambda seconds: self._exit(signal.SIGKILL, seconds),
            "ended": lambda seconds: self._exit(signal.SIGTERM, seconds),
            "frozen": self._freeze,
            "stalled": lambda seconds: self._stall(seconds, sent=True, received=True),
            "deaf": lambda seconds: self._stall(seconds, sent=True, received=False),
            "mute": lambda seconds: self._stall(seconds, sent=False, received=True),
            "torn": self._tear,
            "reset": self._reset,
            "refused": self._refuse,
        }
        while True:
            await trio.sleep(rng.uniform(0.5 * every, 1.5 * every))
            kind, seconds = rng.choice(list(kinds)), rng.uniform(0, longest)
            self.faults[kind] += 1
            self._note_down()
            with trio.CancelScope(shield=True):  # never left broken
                await kinds[kind](seconds)
            self._note_up()

    async def _exit(self, number: int, seconds: float) -> None:
        await self._served.end(number)
        self.proxy.refuse()
        await trio.sleep(seconds)
        await self._served.start()
        self.proxy.accept()

    async def _freeze(self, seconds: float) -> None:
        self._served.send(signal.SIGSTOP)
        await trio.sleep(seconds)
        self._served.send(signal.SIGCONT)

    async def _stall(self, seconds: float, *, sent: bool, received: bool) -> None:
        self.proxy.stall(sent=sent, received=received)
        await trio.sleep(seconds)
        if seconds % 1 < 0.5:  # otherwise what was held up arrives
            self.proxy.tear()
        self.proxy.resume()

    async def _tear(self, seconds: float) -> None:
        self.proxy.tear()

    async def _reset(self, seconds: float) -> None:
        self.proxy.reset()

    async def _refuse(self, seconds: float) -> None:
        self.proxy.refuse()
        self.proxy.reset()
        await trio.sleep(seconds)
        self.proxy.accept()


def longest_up(ways: list[Way], begin: float, end: float) -> float:
    """Return the longest time within a span for which one way was up."""
    return max(
        (min(until, end) - max(since, begin) for way in ways for since, until in way.intervals()),
        default=0.0,
    )
