"""How a task ends: its final statuses, and the exceptions that are raised instead of a result."""

from __future__ import annotations

from typing import Final

from trio_mcp.errors import TrioMcpError

__all__ = ["ENDED", "IDENTIFIER", "TaskCancelled", "TaskExpired"]

IDENTIFIER: Final = "io.modelcontextprotocol/tasks"

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
"""The final statuses of a task."""


class TaskCancelled(TrioMcpError):
    """The task was cancelled before it was completed, by a client or by the server, so it has no result.

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
    """The task had not ended when its time to live ended, after which a server may delete it.

    Attributes:
        seconds: The time to live that the server stated last, in seconds.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds

    def _text(self) -> str:
        return f"the task did not end within its time to live of {self.seconds:g} seconds"
