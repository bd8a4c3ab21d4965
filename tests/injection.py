"""A cancellation at every checkpoint: run something again and again, cancelled one step later each time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

__all__ = ["cancel_after", "cancel_everywhere"]


class _CancelAfterStep(trio.abc.Instrument):
    def __init__(self, step: int, scope: trio.CancelScope) -> None:
        self.left, self.scope = step, scope

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel("injected")


async def cancel_after(step: int, scenario: Callable[[], Awaitable[object]]) -> bool:
    """Run a scenario, and cancel it after this many steps of any task.

    Returns:
        Whether it was cancelled before its end.
    """
    with trio.CancelScope() as scope:
        instrument = _CancelAfterStep(step, scope)
        trio.lowlevel.add_instrument(instrument)
        try:
            await scenario()
        finally:
            trio.lowlevel.remove_instrument(instrument)
    return scope.cancelled_caught


async def cancel_everywhere(
    scenario: Callable[[], Awaitable[object]], check: Callable[[], Awaitable[object]], *, most: int = 2000
) -> int:
    """Run a scenario with a cancellation after the first step of any task, then the second, until it completes.

    Args:
        scenario: What is cancelled.
        check: Called after each run; must find everything in a consistent state.
        most: A scenario with more steps than this counts as one that never ends.

    Returns:
        The number of places where it was cancelled.
    """
    places = 0
    through = 0
    for step in range(1, most):
        if await cancel_after(step, scenario):
            places += 1
            through = 0
        else:
            through += 1
        await check()
        # Trio shuffles the tasks that are ready, so one run that gets through does not prove that a longer one would.
        if through == 5:
            return places
    raise AssertionError(f"not through after {most} steps")
