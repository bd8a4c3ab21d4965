"""Floor 5, the client's side: `Client`, `ClientGroup`."""

from __future__ import annotations

from trio_mcp.client.cache import CacheStatistics, ResponseCache
from trio_mcp.client.client import Client, ClientStatistics
from trio_mcp.client.config.mcp_servers import load_config
from trio_mcp.client.events import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from trio_mcp.client.group.client_group import ClientGroup
from trio_mcp.client.group.listing import Listed
from trio_mcp.client.group.member import Reconnect, ServerStatus
from trio_mcp.client.results import ToolResult
from trio_mcp.client.subscriptions import Subscription

__all__ = [
    "CacheStatistics",
    "Client",
    "ClientGroup",
    "ClientStatistics",
    "Listed",
    "PromptsListChanged",
    "Reconnect",
    "ResourceUpdated",
    "ResourcesListChanged",
    "ResponseCache",
    "ServerStatus",
    "Subscription",
    "ToolResult",
    "ToolsListChanged",
    "load_config",
]
