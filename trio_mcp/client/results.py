"""What a tool gave back, with the value that the caller wants at hand."""

from __future__ import annotations

from typing import Any

from trio_mcp.types.content import TextContent
from trio_mcp.types.tools import CallToolResult

__all__ = ["ToolResult"]


class ToolResult(CallToolResult):
    """The result of `Client.call_tool`: ``content``, ``structured_content``, ``is_error``, and two short cuts."""

    @property
    def data(self) -> Any:
        """The structured content, unwrapped; None if there is none.

        A tool that returns no object has its value wrapped as ``{"result": value}``; an object with that one key is
        taken as such a wrapper.
        """
        content = self.structured_content
        if isinstance(content, dict) and len(content) == 1 and "result" in content:
            return content["result"]
        return content

    @property
    def text(self) -> str:
        """Every text block, one after the other, with a newline between them."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))
