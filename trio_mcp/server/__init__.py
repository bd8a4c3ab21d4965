"""The server side: `Server`, `Context`, and their parts."""

from __future__ import annotations

from trio_mcp.server.context import Context
from trio_mcp.server.features.caching import CacheHint
from trio_mcp.server.features.custom import NotificationContext
from trio_mcp.server.features.feature import ListOptions
from trio_mcp.server.features.prompts import PromptDetails
from trio_mcp.server.features.resources import ResourceDetails
from trio_mcp.server.features.tools import ToolDetails
from trio_mcp.server.functions.dependencies import Depends
from trio_mcp.server.functions.sync_threads import FunctionOptions
from trio_mcp.server.input.questions import Elicited, InputRequest, InputRequired, UrlElicitationRequired
from trio_mcp.server.input.rounds import InputOptions
from trio_mcp.server.log_messages import McpLogHandler
from trio_mcp.server.run import ServerStatistics
from trio_mcp.server.server import Server

__all__ = [
    "CacheHint",
    "Context",
    "Depends",
    "Elicited",
    "FunctionOptions",
    "InputOptions",
    "InputRequest",
    "InputRequired",
    "ListOptions",
    "McpLogHandler",
    "NotificationContext",
    "PromptDetails",
    "ResourceDetails",
    "Server",
    "ServerStatistics",
    "ToolDetails",
    "UrlElicitationRequired",
]
