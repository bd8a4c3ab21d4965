"""Tools: functions that a server offers to the model. The messages are in :mod:`trio_mcp.types.tool_messages`."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, only, since
from trio_mcp.types.common import Described

__all__ = [
    "TaskSupport",
    "Tool",
    "ToolAnnotations",
    "ToolExecution",
]

TaskSupport = Literal["forbidden", "optional", "required"]


class ToolAnnotations(WireModel, since="2025-03-26"):
    """Hints about what a tool does. They are the server's own claims, so don't rely on them for decisions."""

    title: str | None = None
    # Absent means false: the tool may change things.
    read_only_hint: bool | None = None
    # Absent means true. This hint and the next one count only for a tool that is not read-only.
    destructive_hint: bool | None = None
    # Absent means false: calling the tool again may have a further effect.
    idempotent_hint: bool | None = None
    # Absent means true: the tool deals with things outside the server, such as the web.
    open_world_hint: bool | None = None


class ToolExecution(WireModel, only="2025-11-25"):
    """How a tool may be executed."""

    # Whether the tool can, or must, be called as a task; absent means "forbidden".
    task_support: TaskSupport | None = None


class Tool(Described):
    """A tool that a server offers."""

    description: str | None = None
    # `input_schema` is the JSON Schema of the arguments, and `output_schema` that of the result's structured content.
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = since("2025-06-18")
    annotations: ToolAnnotations | None = since("2025-03-26")
    execution: ToolExecution | None = only("2025-11-25")
    meta: dict[str, Any] | None = since("2025-06-18")
