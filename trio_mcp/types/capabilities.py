"""What each end declares that it can do.

A capability is declared by being present, if only as an empty object.
"""

from typing import Any

from trio_mcp.types._base import WireModel, only, since, until
from trio_mcp.types.task_support import ClientTasksCapability, ServerTasksCapability

__all__ = [
    "ClientCapabilities",
    "ElicitationCapability",
    "PromptsCapability",
    "ResourcesCapability",
    "RootsCapability",
    "SamplingCapability",
    "ServerCapabilities",
    "ToolsCapability",
]


class RootsCapability(WireModel):
    """The client can list its roots, and perhaps tell when they change."""

    list_changed: bool | None = until("2025-11-25")


class SamplingCapability(WireModel):
    """The client can ask its model: with context of servers, with tools."""

    context: dict[str, Any] | None = since("2025-11-25")
    tools: dict[str, Any] | None = since("2025-11-25")


class ElicitationCapability(WireModel, since="2025-06-18"):
    """The client can ask its user; neither ``form`` nor ``url`` means forms, as in 2025-06-18."""

    form: dict[str, Any] | None = since("2025-11-25")
    url: dict[str, Any] | None = since("2025-11-25")


class ClientCapabilities(WireModel):
    """What a client can do for a server."""

    experimental: dict[str, dict[str, Any]] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = since("2025-06-18")
    tasks: ClientTasksCapability | None = only("2025-11-25")
    extensions: dict[str, dict[str, Any]] | None = since("2026-07-28")


class PromptsCapability(WireModel):
    """The server has prompts, and perhaps tells when their list changes."""

    list_changed: bool | None = None


class ResourcesCapability(WireModel):
    """The server has resources, and perhaps tells when one or their list changes."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ToolsCapability(WireModel):
    """The server has tools, and perhaps tells when their list changes."""

    list_changed: bool | None = None


class ServerCapabilities(WireModel):
    """What a server can do for a client."""

    experimental: dict[str, dict[str, Any]] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = since("2025-03-26")
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: ServerTasksCapability | None = only("2025-11-25")
    extensions: dict[str, dict[str, Any]] | None = since("2026-07-28")
