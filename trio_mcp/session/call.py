"""One call of ours that waits for its answer: the caller's task sleeps here, and runs its own progress callbacks."""

from __future__ import annotations

from collections import deque
from typing import Any

import trio

from trio_mcp.jsonrpc.messages import ErrorData

__all__ = ["TIMED_OUT", "Call"]

# Progress that a slow callback has not yet taken. The oldest goes first: each later one supersedes it.
MAX_PENDING_PROGRESS = 256

TIMED_OUT = TimeoutError()
"""The outcome of a call whose time is up. The request itself is not settled by it, so that the peer is told."""


class Call:
    """Where the reader leaves what arrives for one request, and the caller picks it up.

    Attributes:
        outcome: The result, the peer's error, or the exception to raise; None while there is none.
    """

    __slots__ = ("_progress", "_task", "outcome")

    def __init__(self) -> None:
        self.outcome: dict[str, Any] | ErrorData | Exception | None = None
        self._progress: deque[dict[str, Any]] = deque(maxlen=MAX_PENDING_PROGRESS)
        self._task: trio.lowlevel.Task | None = None

    def settle(self, outcome: dict[str, Any] | ErrorData | Exception) -> None:
        """Leave the outcome."""
        self.outcome = outcome
        self._wake()

    def add_progress(self, params: dict[str, Any]) -> None:
        """Leave the parameters of one progress notification."""
        self._progress.append(params)
        self._wake()

    def take_progress(self) -> dict[str, Any] | None:
        """The oldest progress not yet taken, or None."""
        return self._progress.popleft() if self._progress else None

    async def wait(self) -> None:
        """Sleep until there is an outcome or progress to take. Cancellation leaves everything as it was."""
        if self.outcome is None and not self._progress:
            self._task = trio.lowlevel.current_task()

            def abort(_: object) -> trio.lowlevel.Abort:
                self._task = None
                return trio.lowlevel.Abort.SUCCEEDED

            await trio.lowlevel.wait_task_rescheduled(abort)

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)
