"""Waiting for conditions that no event announces, for nothing to happen, and not without an end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import psutil
import pytest
import trio

from tests import forks

__all__ = ["allow_ctrl_c", "eventually", "limited", "steps_within"]

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


@contextlib.contextmanager
def limited(seconds: float, *, cleanup: float = 30) -> Iterator[None]:
    """After some seconds, kill all child processes and fail in what the main thread waits for, Trio's or not.

    Args:
        seconds: How long the block may take.
        cleanup: How long what then leaves the block may wait, before it is interrupted as well.
    """

    def fail(*_: object) -> None:
        # Then nothing waits for one any longer, on the way out either, and nothing is left running.
        for process in forks.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        # This does not raise an `Exception`: the code that it strikes might handle one.
        pytest.fail(f"this has waited for {seconds:g} seconds, without an end")

    handler = signal.signal(signal.SIGALRM, fail)
    around = signal.setitimer(signal.ITIMER_REAL, seconds, cleanup)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *around)
        signal.signal(signal.SIGALRM, handler)


def allow_ctrl_c() -> None:
    """Give this process Python's handler of SIGINT, and what it starts the default, if it began without.

    A shell has what it starts in the background, as in ``nohup pytest &``, ignore SIGINT (POSIX, XCU 2.11). Python then
    installs no handler, and every process that a test starts would ignore it as well.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
