"""Who may call a tool: the model, or a page of the tool's server (SEP-1865, Visibility)."""

from __future__ import annotations

from typing import Literal, TypeAlias

from trio_mcp.types.tools import Tool

__all__ = ["Audience", "check_audience", "is_for"]

Audience: TypeAlias = Literal["model", "app"]


def check_audience(audience: object) -> None:
    """Check that a value is an audience, or None.

    Raises:
        ValueError: If it is neither.
    """
    if audience not in (None, "model", "app"):
        raise ValueError(f"audience must be 'model', 'app' or None, got {audience!r}")


def is_for(tool: Tool, audience: Audience) -> bool:
    """Return whether a tool is meant for an audience; a tool that says nothing is for both.

    A malformed statement counts as one that names neither, because hiding a tool does less harm than showing it.
    """
    ui = None if tool.meta is None else tool.meta.get("ui")
    visibility = ui.get("visibility") if type(ui) is dict else None
    if visibility is None:
        return True
    return type(visibility) is list and audience in visibility
