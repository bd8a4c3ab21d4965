"""The state of a task as clients read it, and its final result.

See ``io.modelcontextprotocol/tasks``, section Tasks. The tasks of revision 2025-11-25 are in `trio_mcp.types.tasks`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Strict, ValidationError

from trio_mcp.client.input_rounds import MAX_INPUT_REQUESTS
from trio_mcp.convert import brief
from trio_mcp.errors import McpError, RemoteProtocolError
from trio_mcp.extensions.tasks.errors import ENDED, TaskCancelled
from trio_mcp.types._base import WireModel
from trio_mcp.types.common import COMPLETE

__all__ = [
    "TaskState",
    "final_result",
    "read_created",
    "read_state",
]


Milliseconds = Annotated[int, Strict(), Field(ge=0)] | Annotated[float, Strict(), Field(ge=0)]


class TaskState(WireModel, since="2026-07-28"):
    """The state of a task at one moment.

    The task's id is a secret, because a client that knows it may read and change the task. So the ``repr`` does not
    show it.

    Attributes:
        task_id: The task's id.
        status: ``"working"``, ``"input_required"``, ``"completed"``, ``"failed"`` or ``"cancelled"``. The last three
            are final.
        status_message: The server's text for people about the state, or None.
        created_at: When the task was created, in ISO 8601.
        last_updated_at: When the task was last updated, in ISO 8601.
        ttl_ms: For how many milliseconds after its creation the server keeps the task; None for no limit.
        poll_interval_ms: The interval between polls that the server suggests, in milliseconds, or None.
        input_requests: The questions that wait for an answer, by key, if the status is ``"input_required"``.
        result: The result of the original request, as plain data, if the status is ``"completed"``.
        error: The JSON-RPC error, as plain data, if the status is ``"failed"``.
    """

    task_id: str = Field(repr=False)
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: Milliseconds | None
    poll_interval_ms: Milliseconds | None = None
    input_requests: dict[str, Any] | None = Field(default=None, repr=False)
    result: dict[str, Any] | None = Field(default=None, repr=False)
    error: dict[str, Any] | None = Field(default=None, repr=False)

    @property
    def is_final(self) -> bool:
        """Whether the task has ended."""
        return self.status in ENDED


def read_created(result: dict[str, Any]) -> TaskState:
    """Read the result with which a server creates a task; it has no outcome and no questions yet.

    Raises:
        RemoteProtocolError: If it is malformed.
    """
    return _parsed(result, "created a malformed task")


def read_state(data: dict[str, Any], task_id: str) -> TaskState:
    """Read the whole state of a task: a result of ``tasks/get``, or the parameters of ``notifications/tasks``.

    Args:
        data: The plain data.
        task_id: The id of the task.

    Raises:
        RemoteProtocolError: If it is malformed, or is about another task.
    """
    state = _parsed(data, "sent a malformed state of a task")
    # The texts of these errors do not contain the ids, which are secrets.
    if state.task_id != task_id:
        raise RemoteProtocolError("the server sent the state of a different task than the one requested")
    if state.status == "completed" and state.result is None:
        raise RemoteProtocolError("the server sent the state of a completed task without its result")
    if state.status == "failed" and not _is_error(state.error):
        raise RemoteProtocolError("the server sent the state of a failed task without a valid error")
    if state.status == "input_required":
        if state.input_requests is None:
            raise RemoteProtocolError("the server sent the state of a task that needs input without inputRequests")
        if len(state.input_requests) > MAX_INPUT_REQUESTS:
            raise RemoteProtocolError(
                f"a task asked for {len(state.input_requests)} inputs at once; the limit is {MAX_INPUT_REQUESTS}"
            )
    return state


def final_result(state: TaskState) -> dict[str, Any]:
    """Return the result of a task that has ended, as plain data.

    Raises:
        McpError: If the task failed with a JSON-RPC error.
        TaskCancelled: If the task was cancelled.
        RemoteProtocolError: If its result is not a final one.
    """
    if state.status == "cancelled":
        raise TaskCancelled(state.status_message)
    if state.status == "failed":
        assert state.error is not None
        raise McpError(state.error["code"], state.error["message"], state.error.get("data"))
    assert state.result is not None
    if state.result.get("resultType", COMPLETE) != COMPLETE:
        raise RemoteProtocolError(f"the result of a completed task must have the resultType {COMPLETE!r}")
    return state.result


def _parsed(data: dict[str, Any], problem: str) -> TaskState:
    try:
        return TaskState.from_wire(data)
    except ValidationError as exc:
        raise RemoteProtocolError(f"the server {problem}: {brief(exc)}") from None


def _is_error(error: dict[str, Any] | None) -> bool:
    return error is not None and type(error.get("code")) is int and type(error.get("message")) is str
