"""The capabilities that each side declares.

A capability is declared by being present, even as an empty object.
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
    """The client can list its roots, and may announce that they have changed."""

    # The modern era lacks this field, because its clients send no notifications about roots.
    list_changed: bool | None = until("2025-11-25")


class SamplingCapability(WireModel):
    """The client can query its language model for the server."""

    # The client can add context from MCP servers to the prompt, so `includeContext` may be other than "none".
    context: dict[str, Any] | None = since("2025-11-25")
    # The client can give the model tools to use, so `tools` and `toolChoice` are allowed.
    tools: dict[str, Any] | None = since("2025-11-25")


class ElicitationCapability(WireModel, since="2025-06-18"):
    """The client can ask its user for input: only with forms if neither field is declared, as in 2025-06-18."""

    form: dict[str, Any] | None = since("2025-11-25")
    # A server may send the user to a URL only if the client declares this field.
    url: dict[str, Any] | None = since("2025-11-25")


class ClientCapabilities(WireModel):
    """The capabilities that a client declares."""

    # Features outside the specification, by name.
    experimental: dict[str, dict[str, Any]] | None = None
    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = since("2025-06-18")
    tasks: ClientTasksCapability | None = only("2025-11-25")
    # The settings of each extension, by identifier.
    extensions: dict[str, dict[str, Any]] | None = since("2026-07-28")


class PromptsCapability(WireModel):
    """The server has prompts, and may announce that the list has changed."""

    list_changed: bool | None = None


class ResourcesCapability(WireModel):
    """The server has resources, and may announce that the list or a subscribed resource has changed."""

    # Whether clients can subscribe to single resources.
    subscribe: bool | None = None
    list_changed: bool | None = None


class ToolsCapability(WireModel):
    """The server has tools, and may announce that the list has changed."""

    list_changed: bool | None = None


class ServerCapabilities(WireModel):
    """The capabilities that a server declares."""

    # Features outside the specification, by name.
    experimental: dict[str, dict[str, Any]] | None = None
    # An empty object says that the server may send log messages.
    logging: dict[str, Any] | None = None
    # Revision 2024-11-05 has completion, but no capability for it.
    completions: dict[str, Any] | None = since("2025-03-26")
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: ServerTasksCapability | None = only("2025-11-25")
    # The settings of each extension, by identifier.
    extensions: dict[str, dict[str, Any]] | None = since("2026-07-28")
