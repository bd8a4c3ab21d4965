"""Run one contender in its own process: ``python -m benchmarks.load.worker LOOP MODULE VARIANT [ARGUMENT ...]``.

In a shared process, what other contenders have imported and allocated would burden its garbage collector. For each line
``IN_FLIGHT SECONDS [CALLS]`` on stdin it measures, and prints the calls per second and how many there were. LOOP is
``trio``, or ``asyncio`` for contenders that are faster there.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
from typing import TYPE_CHECKING

import anyio

from benchmarks.load.wire import WrongAnswer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Call = Callable[[int, int], Awaitable[int]]

_B = 7


async def throughput(call: Call, in_flight: int, seconds: float, limit: float = math.inf) -> tuple[float, int]:
    """Return the calls answered per second, and how many, with `in_flight` tasks that each call again once answered.

    It ends after `seconds`, or as soon as `limit` calls have been made.

    Raises:
        WrongAnswer: If a call did not return the sum.
    """
    calls = 0
    begun = in_flight
    started = time.perf_counter()
    stop = started + seconds

    async def lane(number: int) -> None:
        nonlocal calls, begun
        a = number
        while True:
            value = await call(a, _B)
            if value != a + _B:
                raise WrongAnswer(f"add({a}, {_B}) returned {value!r}")
            calls += 1
            a += in_flight
            if begun >= limit or time.perf_counter() >= stop:
                return
            begun += 1

    async with anyio.create_task_group() as tasks:
        for number in range(in_flight):
            tasks.start_soon(lane, number)
    return calls / (time.perf_counter() - started), calls


async def main(module: str, *arguments: str) -> None:
    contender = importlib.import_module(f"benchmarks.contenders.{module}")
    async with contender.connect(*arguments) as call:
        await throughput(call, 1, 0.05)  # the first calls import and fill caches, which counts as start-up
        print("ready", flush=True)
        # Waiting for an order blocks the event loop on purpose: nothing may run while another contender is measured.
        for order in sys.stdin:
            in_flight, seconds, *limit = order.split()
            print(*await throughput(call, int(in_flight), float(seconds), *map(float, limit)), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[2], *sys.argv[3:], backend=sys.argv[1])
