"""Floor 5, the client's side: `Client`."""

from __future__ import annotations

from trio_mcp.client.client import Client
from trio_mcp.client.results import ToolResult

__all__ = ["Client", "ToolResult"]
