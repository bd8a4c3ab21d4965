"""The client: `Client`, `ClientGroup`."""

from __future__ import annotations

from trio_mcp.client.answers.sources import Answers
from trio_mcp.client.cache import CacheStatistics, ResponseCache
from trio_mcp.client.client import Client, ClientStatistics
from trio_mcp.client.config import load_config
from trio_mcp.client.connection import Middleware, OutgoingCall
from trio_mcp.client.group.catalog import Listed
from trio_mcp.client.group.client_group import ClientGroup
from trio_mcp.client.group.members import ServerStatus
from trio_mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    Subscription,
    ToolsListChanged,
)
from trio_mcp.client.tool_results import ToolResult

__all__ = [
    "Answers",
    "CacheStatistics",
    "Client",
    "ClientGroup",
    "ClientStatistics",
    "Listed",
    "Middleware",
    "OutgoingCall",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "ResponseCache",
    "ServerStatus",
    "Subscription",
    "ToolResult",
    "ToolsListChanged",
    "load_config",
]
