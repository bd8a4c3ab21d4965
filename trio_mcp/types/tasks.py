"""Tasks: requests that outlive the wait for their answer. They exist in 2025-11-25 alone (basic/utilities/tasks)."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.common import (
    NotificationMessage,
    PaginatedRequest,
    PaginatedResult,
    RequestMessage,
    RequestParams,
    Result,
    ResultType,
)
from trio_mcp.types.task_support import TaskMetadata

__all__ = [
    "CancelTaskRequest",
    "CancelTaskRequestParams",
    "CancelTaskResult",
    "CreateTaskResult",
    "GetTaskPayloadRequest",
    "GetTaskPayloadRequestParams",
    "GetTaskPayloadResult",
    "GetTaskRequest",
    "GetTaskRequestParams",
    "GetTaskResult",
    "ListTasksRequest",
    "ListTasksResult",
    "RelatedTaskMetadata",
    "Task",
    "TaskAugmentedRequestParams",
    "TaskRequestParams",
    "TaskStatus",
    "TaskStatusNotification",
    "TaskStatusNotificationParams",
]

TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskAugmentedRequestParams(RequestParams, only="2025-11-25"):
    """Parameters of a request that can be run as a task."""

    task: TaskMetadata | None = None


class RelatedTaskMetadata(WireModel, only="2025-11-25"):
    """The task a message belongs to, in ``_meta``."""

    task_id: str


class Task(WireModel, only="2025-11-25"):
    """The state of a task; times are ISO 8601, ``ttl`` (null: for good) and ``poll_interval`` milliseconds."""

    task_id: str
    status: TaskStatus
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl: int | None
    poll_interval: int | None = None


class CreateTaskResult(Result, only="2025-11-25"):
    """The first answer to a request that runs as a task."""

    task: Task


class TaskRequestParams(RequestParams, only="2025-11-25"):
    """Which task."""

    task_id: str


# The schema leaves them nameless; so are they called in the official SDK.
GetTaskRequestParams = TaskRequestParams
GetTaskPayloadRequestParams = TaskRequestParams
CancelTaskRequestParams = TaskRequestParams


class GetTaskRequest(RequestMessage, only="2025-11-25"):
    """Asks for the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskRequestParams


class GetTaskResult(Task, only="2025-11-25"):
    """The state of a task."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)


class GetTaskPayloadRequest(RequestMessage, only="2025-11-25"):
    """Asks for the answer that a task came to, and waits for it."""

    method: Literal["tasks/result"] = "tasks/result"
    params: TaskRequestParams


class GetTaskPayloadResult(Result, only="2025-11-25"):
    """The answer itself: its fields are those of the result that the request would have had without a task."""


class CancelTaskRequest(RequestMessage, only="2025-11-25"):
    """Asks for a task to be given up."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskRequestParams


class CancelTaskResult(Task, only="2025-11-25"):
    """The state of a task that was given up."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)


class ListTasksRequest(PaginatedRequest, only="2025-11-25"):
    """Asks for a page of the receiver's tasks."""

    method: Literal["tasks/list"] = "tasks/list"


class ListTasksResult(PaginatedResult, only="2025-11-25"):
    """A page of the receiver's tasks."""

    tasks: list[Task]


class TaskStatusNotificationParams(Task, only="2025-11-25"):
    """The state of a task."""

    meta: dict[str, Any] | None = None


class TaskStatusNotification(NotificationMessage, only="2025-11-25"):
    """Tells that the state of a task changed."""

    method: Literal["notifications/tasks/status"] = "notifications/tasks/status"
    params: TaskStatusNotificationParams
