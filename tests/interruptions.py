"""Ctrl-C, and a cancellation, at any step: run something in its own run of Trio, and interrupt it.

``python -m tests.interruptions --tries 2000 --seed 1`` does it that often, at random steps, to a client in memory, a
proxy, and a client and a server over HTTP, and prints how the tries ended. Its exit status is 1 if Ctrl-C was lost, or
became another exception.
"""

from __future__ import annotations

import argparse
import logging
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial

import attrs
import trio

from tests.waiting import allow_ctrl_c
from trio_mcp import Client, ProxyServer, Server
from trio_mcp._nursery import background_nursery, start

__all__ = ["SCENARIOS", "Press", "interrupt", "interrupted"]


@trio.lowlevel.enable_ki_protection
def interrupt() -> None:
    """Press Ctrl-C; as the code here is protected, Trio delivers it to the main task, at its next checkpoint."""
    signal.raise_signal(signal.SIGINT)


@attrs.frozen
class Press:
    """When Ctrl-C is pressed and when the surrounding scope is cancelled, counted in steps of any task; 0 for never."""

    ctrl_c: int
    cancel: int = 0


class _Pressing(trio.abc.Instrument):
    def __init__(self, press: Press, scope: trio.CancelScope) -> None:
        self.press, self.scope = press, scope
        self.steps = 0
        self.pressed = False

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.steps += 1
        if self.steps == self.press.cancel:
            self.scope.cancel("injected")
        if self.steps == self.press.ctrl_c:
            self.pressed = True
            interrupt()


def interrupted(press: Press, scenario: Callable[[], Awaitable[object]]) -> bool:
    """Run a scenario in the main task of a run, and interrupt it.

    Returns:
        Whether it was interrupted before its end.

    Raises:
        AssertionError: If Ctrl-C was lost.
        BaseException: If it became something other than a `KeyboardInterrupt`.
    """
    pressed = False

    async def main() -> None:
        nonlocal pressed
        with trio.CancelScope() as scope:
            pressing = _Pressing(press, scope)
            trio.lowlevel.add_instrument(pressing)
            try:
                await scenario()
            finally:
                trio.lowlevel.remove_instrument(pressing)
                pressed = pressing.pressed

    try:
        trio.run(main)
    except KeyboardInterrupt:
        return True
    assert not pressed, f"{press}: Ctrl-C was lost"
    return False


# --- what is interrupted ----------------------------------------------------------------------------------------------


async def _memory() -> None:
    async with Client(Server("s")) as client:
        await client.list_tools()


async def _proxy() -> None:
    async with Client(ProxyServer(Server("s"))) as client:
        await client.list_tools()


async def _http() -> None:
    async with background_nursery() as nursery:
        url = await start(nursery, partial(Server("s").serve_http, port=0))
        async with Client(url) as client:
            await client.list_tools()


SCENARIOS: dict[str, tuple[Callable[[], Awaitable[object]], int]] = {
    "memory": (_memory, 90),
    "proxy": (_proxy, 200),
    "http": (_http, 200),
}
"""Each with a little more than the steps that it takes."""


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    allow_ctrl_c()
    logging.disable()  # a call that Ctrl-C cuts off is logged
    rng = random.Random(options.seed)
    ends: Counter[str] = Counter()
    troubles = 0
    for _ in range(options.tries):
        name = rng.choice(list(SCENARIOS))
        scenario, steps = SCENARIOS[name]
        ctrl_c = rng.randint(1, steps)
        press = Press(ctrl_c, rng.choice([0, max(ctrl_c + rng.randint(-5, 5), 0), rng.randint(1, steps)]))
        try:
            ends["KeyboardInterrupt" if interrupted(press, scenario) else "through before Ctrl-C"] += 1
        except BaseException as exc:
            troubles += 1
            ends[type(exc).__name__] += 1
            print(f"{name}, {press}: {exc!r}", file=sys.stderr)
    print(f"seed {options.seed}, {options.tries} tries: " + ", ".join(f"{end} {n}" for end, n in ends.most_common()))
    return 1 if troubles else 0


if __name__ == "__main__":
    sys.exit(main())
