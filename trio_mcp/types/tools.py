"""Tools: what a server can do."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, only, since
from trio_mcp.types.common import (
    CacheablePage,
    Described,
    InputResponseRequestParams,
    NotificationMessage,
    NotificationParams,
    PaginatedRequest,
    RequestMessage,
    Result,
)
from trio_mcp.types.content import ContentBlock
from trio_mcp.types.task_support import TaskMetadata, ToolExecution

__all__ = [
    "CallToolRequest",
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsRequest",
    "ListToolsResult",
    "Tool",
    "ToolAnnotations",
    "ToolListChangedNotification",
]


class ToolAnnotations(WireModel, since="2025-03-26"):
    """Hints about what a tool does; the server's own word, so nothing to base a decision on."""

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class Tool(Described):
    """A tool: its name, and JSON Schemas of its arguments and of its structured result."""

    description: str | None = None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = since("2025-06-18")
    annotations: ToolAnnotations | None = since("2025-03-26")
    execution: ToolExecution | None = only("2025-11-25")
    meta: dict[str, Any] | None = since("2025-06-18")


class ListToolsRequest(PaginatedRequest):
    """Asks for a page of the server's tools."""

    method: Literal["tools/list"] = "tools/list"


class ListToolsResult(CacheablePage):
    """A page of the server's tools."""

    tools: list[Tool]


class CallToolRequestParams(InputResponseRequestParams):
    """Which tool to call, with what; the arguments stay plain data until the tool's own signature validates them."""

    name: str
    arguments: dict[str, Any] | None = None
    task: TaskMetadata | None = only("2025-11-25")


class CallToolRequest(RequestMessage):
    """Asks the server to call a tool."""

    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class CallToolResult(Result):
    """What a tool gave back; its own failures are results with ``is_error``, for the model to see.

    ``structured_content`` is an object until 2025-11-25 and any JSON value since 2026-07-28, null included.
    """

    content: list[ContentBlock]
    structured_content: Any = since("2025-06-18", null=True)
    is_error: bool | None = None


class ToolListChangedNotification(NotificationMessage):
    """The list of tools is another now."""

    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"
    params: NotificationParams | None = None
