"""The models for tasks that are fields of other models; tasks exist in 2025-11-25 only (basic/utilities/tasks).

They are kept apart from :mod:`trio_mcp.types.tasks`, because the modules of those other models import this one.
"""

from typing import Any

from trio_mcp.types._base import WireModel

__all__ = [
    "ClientTasksCapability",
    "ClientTasksRequestsCapability",
    "ServerTasksCapability",
    "ServerTasksRequestsCapability",
    "TaskMetadata",
    "TasksElicitationCapability",
    "TasksSamplingCapability",
    "TasksToolsCapability",
]


class TaskMetadata(WireModel, only="2025-11-25"):
    """The field with which a request asks to be run as a task."""

    # The number of milliseconds for which the task should be kept after its creation.
    ttl: int | None = None


# In all capabilities of this module, an empty object declares support for the method that its key names.
class TasksSamplingCapability(WireModel, only="2025-11-25"):
    """The sampling requests that the client runs as tasks."""

    create_message: dict[str, Any] | None = None


class TasksElicitationCapability(WireModel, only="2025-11-25"):
    """The elicitation requests that the client runs as tasks."""

    create: dict[str, Any] | None = None


class TasksToolsCapability(WireModel, only="2025-11-25"):
    """The tool requests that the server runs as tasks."""

    call: dict[str, Any] | None = None


class ClientTasksRequestsCapability(WireModel, only="2025-11-25"):
    """The requests that the client runs as tasks."""

    sampling: TasksSamplingCapability | None = None
    elicitation: TasksElicitationCapability | None = None


class ClientTasksCapability(WireModel, only="2025-11-25"):
    """The client's support for tasks."""

    # Whether tasks/list and tasks/cancel are supported; an empty object means that they are.
    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: ClientTasksRequestsCapability | None = None


class ServerTasksRequestsCapability(WireModel, only="2025-11-25"):
    """The requests that the server runs as tasks."""

    tools: TasksToolsCapability | None = None


class ServerTasksCapability(WireModel, only="2025-11-25"):
    """The server's support for tasks."""

    # `list` and `cancel` mean the same as in `ClientTasksCapability`.
    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: ServerTasksRequestsCapability | None = None
