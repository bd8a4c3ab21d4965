"""The names that both sides of the tasks extension use."""

from typing import Final

__all__ = ["ENDED", "IDENTIFIER"]

IDENTIFIER: Final = "io.modelcontextprotocol/tasks"

ENDED: Final = frozenset({"completed", "failed", "cancelled"})
"""The statuses that a task never leaves."""
