"""How a task ends: the statuses that it never leaves, and the exceptions with which waiting for it ends."""

from __future__ import annotations

from typing import Final

from trio_mcp.errors import TrioMcpError

__all__ = ["ENDED", "IDENTIFIER", "TaskCancelled", "TaskExpired"]

IDENTIFIER: Final = "io.modelcontextprotocol/tasks"

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
"""The statuses that a task never leaves."""


class TaskCancelled(TrioMcpError):
    """The task was cancelled before it was done, by a client or by the server, so it has no result.

    This is not `trio.Cancelled`: the caller itself was not cancelled.

    Attributes:
        reason: The server's message about the task, or None.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason

    def _text(self) -> str:
        return "the task was cancelled" if self.reason is None else f"the task was cancelled: {self.reason}"


class TaskExpired(TrioMcpError):
    """The task was not done when its time to live ended, after which a server may discard a task.

    Attributes:
        seconds: The time to live that the server stated last.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def _text(self) -> str:
        return f"the task was not done within its time to live of {self.seconds:g} seconds"
