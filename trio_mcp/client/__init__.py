"""Floor 5, the client's side: `Client`, `ClientGroup`."""

from __future__ import annotations

from trio_mcp.client.client import Client
from trio_mcp.client.config import load_config
from trio_mcp.client.group import ClientGroup
from trio_mcp.client.group_listing import Listed
from trio_mcp.client.group_member import Reconnect, ServerStatus
from trio_mcp.client.results import ToolResult

__all__ = ["Client", "ClientGroup", "Listed", "Reconnect", "ServerStatus", "ToolResult", "load_config"]
