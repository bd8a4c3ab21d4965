"""A bug in Trio, reproduced without our code: Ctrl-C during `trio.Nursery.start`, and a cancellation after it.

``python -m tests.trio_start`` ends with a `TrioInternalError`. Seen with Trio 0.35.0, the newest at the time. A search
of Trio's issues found no report of it; nearest are python-trio/trio#2938, which brought the error in, and #1599.

`Nursery.start` waits for the task that it starts in a nursery of its own, and unwraps the one exception that comes out
of that: two are called impossible. But Ctrl-C is raised in the main task. If that is the one that waits, the nursery
keeps the `KeyboardInterrupt` until the new task has ended. If it ends with an exception, such as the `Cancelled` of a
scope around all this, there are two. `trio_mcp._nursery.start` keeps the main task from waiting there.
"""

from __future__ import annotations

import signal

import trio

__all__ = ["interrupted_and_cancelled"]


async def interrupted_and_cancelled() -> None:
    """Start a task from the main task; meanwhile press Ctrl-C and cancel the surrounding scope."""

    @trio.lowlevel.enable_ki_protection  # Trio raises it in the main task, as it does when all tasks wait
    async def starting(task_status: trio.TaskStatus[None]) -> None:
        signal.raise_signal(signal.SIGINT)
        with trio.CancelScope(shield=True):
            await trio.sleep(0.01)  # a cleanup that takes a moment
        scope.cancel()
        await trio.sleep_forever()

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(starting)


if __name__ == "__main__":
    trio.run(interrupted_and_cancelled)
