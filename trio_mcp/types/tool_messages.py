"""Messages about tools: lists, calls, their results, and notifications.

These are kept apart from :mod:`trio_mcp.types.tools`, because a server needs only `Tool` to list its tools.
"""

from collections.abc import Iterator
from typing import Any, Literal

from trio_mcp.types._base import only, since
from trio_mcp.types.bases import (
    CacheablePage,
    InputResponseRequestParams,
    NotificationMessage,
    NotificationParams,
    PaginatedRequest,
    RequestMessage,
    Result,
)
from trio_mcp.types.content import ContentBlock
from trio_mcp.types.task_support import TaskMetadata
from trio_mcp.types.tools import Tool

__all__ = [
    "CallToolRequest",
    "CallToolRequestParams",
    "CallToolResult",
    "ListToolsRequest",
    "ListToolsResult",
    "ToolListChangedNotification",
]


class CallToolRequestParams(InputResponseRequestParams):
    """The parameters of ``tools/call``: the tool and its arguments."""

    name: str
    # Plain data, which the server validates against the signature of the tool's function.
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
    # True if the tool failed. The model sees such a failure; it would not see a JSON-RPC error.
    is_error: bool | None = None


class ListToolsRequest(PaginatedRequest):
    """A request for a page of the server's tools."""

    method: Literal["tools/list"] = "tools/list"


class ListToolsResult(CacheablePage):
    """A page of the server's tools."""

    tools: list[Tool]

    # This method replaces pydantic's own `__iter__`, which yields the fields.
    def __iter__(self) -> Iterator[Tool]:  # type: ignore[override]
        """Yield the tools of this page."""
        return iter(self.tools)


class ToolListChangedNotification(NotificationMessage):
    """A notification that the server's list of tools has changed."""

    method: Literal["notifications/tools/list_changed"] = "notifications/tools/list_changed"
    params: NotificationParams | None = None
