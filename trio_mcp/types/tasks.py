"""Tasks: requests whose result is fetched later. They exist in 2025-11-25 only (basic/utilities/tasks)."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, since
from trio_mcp.types.bases import (
    NotificationMessage,
    PaginatedRequest,
    PaginatedResult,
    RequestMessage,
    RequestParams,
    Result,
)
from trio_mcp.types.common import ResultType
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

# The last three statuses are final.
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class TaskAugmentedRequestParams(RequestParams, only="2025-11-25"):
    """The parameters of a request that can be run as a task."""

    task: TaskMetadata | None = None


class RelatedTaskMetadata(WireModel, only="2025-11-25"):
    """The entry in a message's ``_meta`` that names the task to which the message belongs."""

    task_id: str


class Task(WireModel, only="2025-11-25"):
    """The state of a task."""

    task_id: str
    status: TaskStatus
    # A text for people, such as the reason for the status.
    status_message: str | None = None
    # Both times are in ISO 8601.
    created_at: str
    last_updated_at: str
    # The number of milliseconds for which the task is kept after its creation; without a limit it is null, but never
    # absent.
    ttl: int | None
    # The number of milliseconds to wait between two tasks/get requests.
    poll_interval: int | None = None


class CreateTaskResult(Result, only="2025-11-25"):
    """The result that a request run as a task gets at once, instead of its own result."""

    task: Task


class TaskRequestParams(RequestParams, only="2025-11-25"):
    """The parameters of a request about a task."""

    task_id: str


# The schema does not name these parameters; the names are those in the official SDK.
GetTaskRequestParams = TaskRequestParams
GetTaskPayloadRequestParams = TaskRequestParams
CancelTaskRequestParams = TaskRequestParams


class GetTaskRequest(RequestMessage, only="2025-11-25"):
    """A request for the state of a task."""

    method: Literal["tasks/get"] = "tasks/get"
    params: TaskRequestParams


class GetTaskResult(Task, only="2025-11-25"):
    """The result of ``tasks/get``: the state of a task."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)


class GetTaskPayloadRequest(RequestMessage, only="2025-11-25"):
    """A request for the result of a task; the response comes when the task has ended."""

    method: Literal["tasks/result"] = "tasks/result"
    params: TaskRequestParams


# The model declares no fields, because every model keeps unknown fields.
class GetTaskPayloadResult(Result, only="2025-11-25"):
    """The result of a task, with the fields that the result of the original request would have had."""


class CancelTaskRequest(RequestMessage, only="2025-11-25"):
    """A request to cancel a task."""

    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskRequestParams


class CancelTaskResult(Task, only="2025-11-25"):
    """The state of a task that was cancelled."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)


class ListTasksRequest(PaginatedRequest, only="2025-11-25"):
    """A request for a page of the list of tasks that its receiver runs."""

    method: Literal["tasks/list"] = "tasks/list"


class ListTasksResult(PaginatedResult, only="2025-11-25"):
    """A page of the list of tasks that the receiver of the request runs."""

    tasks: list[Task]


class TaskStatusNotificationParams(Task, only="2025-11-25"):
    """The parameters of a notification about a task: the state of the task."""

    meta: dict[str, Any] | None = None


class TaskStatusNotification(NotificationMessage, only="2025-11-25"):
    """A notification that the state of a task has changed; the side that runs the task need not send it."""

    method: Literal["notifications/tasks/status"] = "notifications/tasks/status"
    params: TaskStatusNotificationParams
