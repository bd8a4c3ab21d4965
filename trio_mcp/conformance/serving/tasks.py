"""The tasks of a generated server (``io.modelcontextprotocol/tasks``): each asks once, and ends after a few polls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from trio_mcp.conformance.members import object_of

__all__ = ["ScriptedTasks"]

INTERVAL: Final = 20
"""The polling interval that is suggested, in milliseconds (arbitrary: a check has no time for a longer one)."""

MADE: Final = "2026-07-28T00:00:00Z"
DONE: Final[dict[str, Any]] = {"content": [{"type": "text", "text": "done"}]}


@attrs.define
class _ScriptedTask:
    """A task.

    Attributes:
        number: The number of the task, which decides how it ends.
        asks: What it still asks, by key.
        polls: How often it was polled.
        is_cancelled: Whether it was cancelled.
    """

    number: int
    asks: dict[str, Any]
    polls: int = 0
    is_cancelled: bool = False

    def state(self) -> dict[str, Any]:
        """Return what depends on the status of the task, the status included."""
        if self.is_cancelled:
            return {"status": "cancelled"}
        # The first poll finds each task at work, so that a client polls at least twice.
        if self.polls < 2:
            return {"status": "working"}
        if self.asks:
            return {"status": "input_required", "inputRequests": dict(self.asks)}
        if self.number % 3 == 2:
            error = {"code": -32603, "message": "the script asks for this error"}
            return {"status": "failed", "statusMessage": "It failed", "error": error}
        return {"status": "completed", "result": {"resultType": "complete", **DONE, "isError": self.number % 3 == 1}}


class ScriptedTasks:
    """The tasks of a generated server."""

    def __init__(self) -> None:
        self._tasks: dict[str, _ScriptedTask] = {}

    def create(self, asks: Mapping[str, Any]) -> dict[str, Any]:
        """Create a task that asks this, by key, and return the result that says so."""
        number = len(self._tasks)
        # An id with a space and a letter that no header carries as it is shows whether a client encodes it.
        task_id = f"task é {number}"
        self._tasks[task_id] = task = _ScriptedTask(number, dict(asks))
        return {"resultType": "task", **self._told(task_id, task)}

    def answer(self, method: str, params: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a request about a task; None if there is no such task or no such method."""
        task_id = str(params.get("taskId"))
        if (task := self._tasks.get(task_id)) is None:
            return None
        match method:
            case "tasks/get":
                task.polls += 1
                return self._told(task_id, task)
            case "tasks/update":
                for key in object_of(params.get("inputResponses")):
                    task.asks.pop(key, None)
                return {}
            case "tasks/cancel":
                task.is_cancelled = True
                return {}
        return None

    def _told(self, task_id: str, task: _ScriptedTask) -> dict[str, Any]:
        times = {"createdAt": MADE, "lastUpdatedAt": MADE, "ttlMs": None, "pollIntervalMs": INTERVAL}
        return {"taskId": task_id, **times, **task.state()}
