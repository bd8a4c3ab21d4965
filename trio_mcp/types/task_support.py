"""What other constructs carry for tasks, which exist in 2025-11-25 alone (basic/utilities/tasks).

Imported by their modules, so kept apart from :mod:`trio_mcp.types.tasks`; both files go together.
"""

from typing import Any, Literal

from trio_mcp.types._base import WireModel

__all__ = [
    "ClientTasksCapability",
    "ClientTasksRequestsCapability",
    "ServerTasksCapability",
    "ServerTasksRequestsCapability",
    "TaskMetadata",
    "TaskSupport",
    "TasksElicitationCapability",
    "TasksSamplingCapability",
    "TasksToolsCapability",
    "ToolExecution",
]

TaskSupport = Literal["forbidden", "optional", "required"]


class TaskMetadata(WireModel, only="2025-11-25"):
    """Asks that a request be run as a task, kept for ``ttl`` milliseconds from its creation."""

    ttl: int | None = None


class ToolExecution(WireModel, only="2025-11-25"):
    """Whether a tool can or must be called as a task; absent means "forbidden"."""

    task_support: TaskSupport | None = None


class TasksSamplingCapability(WireModel, only="2025-11-25"):
    """Which sampling requests the client takes as tasks."""

    create_message: dict[str, Any] | None = None


class TasksElicitationCapability(WireModel, only="2025-11-25"):
    """Which elicitation requests the client takes as tasks."""

    create: dict[str, Any] | None = None


class TasksToolsCapability(WireModel, only="2025-11-25"):
    """Which tool requests the server takes as tasks."""

    call: dict[str, Any] | None = None


class ClientTasksRequestsCapability(WireModel, only="2025-11-25"):
    """Which requests the client takes as tasks."""

    sampling: TasksSamplingCapability | None = None
    elicitation: TasksElicitationCapability | None = None


class ClientTasksCapability(WireModel, only="2025-11-25"):
    """What the client can do with tasks."""

    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: ClientTasksRequestsCapability | None = None


class ServerTasksRequestsCapability(WireModel, only="2025-11-25"):
    """Which requests the server takes as tasks."""

    tools: TasksToolsCapability | None = None


class ServerTasksCapability(WireModel, only="2025-11-25"):
    """What the server can do with tasks."""

    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: ServerTasksRequestsCapability | None = None
