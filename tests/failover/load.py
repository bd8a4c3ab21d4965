"""The calls: what each does, how it has ended for its caller, and what the ledger must say about it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from tests.failover.serve import STATE
from tests.soak.tools import digest
from trio_mcp import Client, OutcomeUnknown, RequestTimeout, TrioMcpError
from trio_mcp.types import ProgressNotificationParams

TIMEOUT = 30.0
"""Seconds that each call has. Chosen."""

MOST = 4000
"""Calls under way at once, beyond which none is begun. Chosen: those of twenty seconds."""


@attrs.define(eq=False)
class Call:
    """A call and how it has ended.

    Attributes:
        name: Its id in the ledger.
        kind: A key of `KINDS`.
        began: When it began.
        ended: When it ended.
        outcome: ``succeeded``; ``failed``, which is to say that the server has not done it; ``unknown``; or ``wrong``.
        note: The error.
        way: For an unknown outcome the way that failed.
    """

    name: str
    kind: str
    began: float
    ended: float = 0.0
    outcome: str = ""
    note: str = ""
    way: str = ""


async def _tool(client: Client, call: Call, seconds: float, tool: str, **options: Any) -> bool:
    result = await client.call_tool(tool, {"call": call.name, "seconds": seconds}, timeout=TIMEOUT, **options)
    return bool(result.is_error) == (tool == "fail") and result.text.endswith(digest(call.name, 0))


async def _steps(client: Client, call: Call, seconds: float) -> bool:
    heard: list[float] = []

    def note(progress: ProgressNotificationParams) -> None:
        heard.append(progress.progress)

    right = await _tool(client, call, seconds, "steps", on_progress=note)
    # Each attempt reports from the start, and the last one to the end.
    again = [place for place, value in enumerate(heard) if value == 1]
    parts = [heard[begin:end] for begin, end in zip(again, [*again[1:], None], strict=True)]
    return right and parts[-1] == [1, 2, 3, 4] and all(part == [1, 2, 3, 4][: len(part)] for part in parts)


async def _lists(client: Client, call: Call, seconds: float) -> bool:
    return len((await client.list_tools(timeout=TIMEOUT)).tools) == 5


async def _reads(client: Client, call: Call, seconds: float) -> bool:
    read = await client.read_resource(STATE, timeout=TIMEOUT)
    return str(getattr(read.contents[0], "text", "")).isdigit()


Does = Callable[[Client, Call, float], Awaitable[bool]]

KINDS: dict[str, tuple[Does, int, bool, bool]] = {
    "look": (lambda *given: _tool(*given, "look"), 35, True, False),
    "steps": (_steps, 10, True, False),
    "list": (_lists, 10, True, False),
    "read": (_reads, 10, True, False),
    "put": (lambda *given: _tool(*given, "put"), 10, True, True),
    "act again": (lambda *given: _tool(*given, "act", retry=True), 5, True, True),
    "act": (lambda *given: _tool(*given, "act"), 16, False, True),
    "fail": (lambda *given: _tool(*given, "fail"), 4, False, True),
}
"""What a call does, how often it is drawn, whether it may be repeated, whether it has an effect."""


def may_repeat(call: Call) -> bool:
    return KINDS[call.kind][2]


def has_effect(call: Call) -> bool:
    return KINDS[call.kind][3]


class Load:
    """Calls at an even rate, whatever becomes of them.

    Args:
        name: The beginning of the names of its calls.
        rate: Calls a second.
        seed: Decides which calls.

    Attributes:
        calls: Those that have ended.
        under_way: Those that have not.
        left_out: How many were not begun, as too many were under way.
    """

    def __init__(self, name: str, rate: float, seed: str) -> None:
        self.name, self.rate = name, rate
        self.calls: list[Call] = []
        self.under_way: set[Call] = set()
        self.left_out = 0
        self._rng = random.Random(seed)
        self._number = 0

    async def run(self, client: Client, stop: trio.Event) -> None:
        """Make calls until an event is set, and wait for those that are under way."""
        due = trio.current_time()
        async with trio.open_nursery() as nursery:
            while not stop.is_set():
                due += 1 / self.rate
                await trio.sleep_until(due)
                if len(self.under_way) >= MOST:
                    self.left_out += 1
                else:
                    nursery.start_soon(self._one, client)

    async def _one(self, client: Client) -> None:
        self._number += 1
        kind = self._rng.choices(list(KINDS), [weight for _, weight, _, _ in KINDS.values()])[0]
        call = Call(f"{self.name}-{self._number}", kind, trio.current_time())
        self.under_way.add(call)
        try:
            right = await KINDS[kind][0](client, call, self._rng.expovariate(20))
            call.outcome = "succeeded" if right else "wrong"
        except TrioMcpError as exc:
            # `sent` is True where the server may have got it. A call that ran into its time limit may have been done.
            unknown = isinstance(exc, RequestTimeout) or getattr(exc, "sent", False)
            call.outcome, call.note = "unknown" if unknown else "failed", f"{type(exc).__name__}: {exc}"[:300]
            call.way = exc.way if isinstance(exc, OutcomeUnknown) else ""
        call.ended = trio.current_time()
        self.under_way.discard(call)
        self.calls.append(call)


async def listen(client: Client, heard: list[float], lost: list[str]) -> None:
    """Note each time at which the client is told that the state has changed, and each time a subscription is lost."""
    while True:  # a lost subscription is a broken promise, and the next one may hold
        try:
            async with client.listen(resources=[STATE]) as events:
                async for _ in events:
                    heard.append(trio.current_time())
        except TrioMcpError as exc:
            lost.append(f"{type(exc).__name__}: {exc}"[:300])
