"""Tools: functions that a server offers to the model."""

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
    """Hints about what a tool does; the server's own claims, so don't base decisions on them."""

    title: str | None = None
    # Absent means false: the tool may change things.
    read_only_hint: bool | None = None
    # Absent means true. This and the next count only for a tool that is not read-only.
    destructive_hint: bool | None = None
    # Absent means false: calling the tool again may have a further effect.
    idempotent_hint: bool | None = None
    # Absent means true: the tool deals with things outside of the server, such as the web.
    open_world_hint: bool | None = None


class Tool(Described):
    """A tool of a server."""

    description: str | None = None
    # JSON Schemas of the arguments and of the structured content of the result.
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = since("2025-06-18")
    annotations: ToolAnnotations | None = since("2025-03-26")
    execution: ToolExecution | None = only("2025-11-25")
    meta: dict[str, Any] | None = since("2025-06-18")


class ListToolsRequest(PaginatedRequest):
    """A request for a page of the server's tools."""

    method: Literal["tools/list"] = "tools/list"


class ListToolsResult(CacheablePage):
    """A page of the server's tools."""

    tools: list[Tool]


class CallToolRequestParams(InputResponseRequestParams):
    """The parameters of ``tools/call``: the tool and its arguments."""

    name: str
    # Plain data, which the signature of the tool's function validates.
    arguments: dict[str, Any] | None = None
    task: TaskMetadata | None = only("2025-11-25")


class CallToolRequest(RequestMessage):
    """A request to call a tool."""

    method: Literal["tools/call"] = "tools/call"
    params: CallToolRequestParams


class CallToolResult(Result):
    """The result of a tool call."""

    content: list[ContentBlock]
    # An object until 2025-11-25; any JSON value since 2026-07-28, null included.
    structured_content: Any = since("2025-06-18", null=True)
    # True if the tool failed: the model gets to see such a failure, which it would not if it were a JSON-RPC error.
    is_error: bool | None = None


class ToolListChangedNotification(NotificationMessage):
    """A notification that the server's list of tools has changed."""

    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"
    params: NotificationParams | None = None
