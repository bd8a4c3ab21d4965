"""Waiting for conditions that no event announces, and for nothing to happen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

__all__ = ["eventually", "steps_within"]

T = TypeVar("T")


async def eventually(condition: Callable[[], T | Awaitable[T]]) -> T:
    """Poll a condition, of statistics or of another process, and return its value once it is true."""
    with trio.fail_after(60):  # against a hang only
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await trio.sleep(0.01)


class _Steps(trio.abc.Instrument):
    def __init__(self) -> None:
        self.watcher = trio.lowlevel.current_task()
        self.others = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.others += task is not self.watcher


async def steps_within(seconds: float) -> int:
    """Sleep, and return how many steps of other tasks there are meanwhile."""
    steps = _Steps()
    trio.lowlevel.add_instrument(steps)
    await trio.sleep(seconds)
    trio.lowlevel.remove_instrument(steps)
    return steps.others
