"""The Model Context Protocol for Trio: clients and servers for every protocol revision.

Public names are imported on first use, so a client does not load the server. docs/design.md has a map of the package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trio_mcp._version import __version__

# For type checkers only: they can't follow `__getattr__`. It breaks no import cycle.
if TYPE_CHECKING:
    from trio_mcp import types
    from trio_mcp.client import (
        Answers,
        Client,
        ClientGroup,
        PromptsListChanged,
        ResourcesListChanged,
        ResourceUpdated,
        ResponseCache,
        ToolsListChanged,
    )
    from trio_mcp.errors import (
        CapabilityError,
        ConfigError,
        HttpError,
        InputError,
        LocalProtocolError,
        McpError,
        MessageTooLarge,
        NegotiationError,
        ProcessExited,
        RemoteProtocolError,
        RequestTimeout,
        SessionClosed,
        ToolError,
        TransportError,
        TrioMcpError,
    )
    from trio_mcp.http.client.legacy.sse_client import sse_client
    from trio_mcp.http.client.parameters import HttpServerParameters
    from trio_mcp.http.client.streamable import streamable_http_client
    from trio_mcp.http.server.event_store import EventStore
    from trio_mcp.http.server.legacy.stores import MemoryEventStore, SqliteEventStore
    from trio_mcp.http.server.options import HttpOptions
    from trio_mcp.jsonrpc.messages import SessionMessage
    from trio_mcp.link import Link
    from trio_mcp.memory import memory_link_pair
    from trio_mcp.principal import Principal
    from trio_mcp.proxy import ProxyServer
    from trio_mcp.retrying import Backoff
    from trio_mcp.server import (
        CacheHint,
        Context,
        Depends,
        Elicited,
        FunctionOptions,
        InputOptions,
        InputRequest,
        InputRequired,
        ListOptions,
        McpLogHandler,
        NotificationContext,
        Server,
        UrlElicitationRequired,
    )
    from trio_mcp.session import (
        BaseSession,
        CallOptions,
        ClientSession,
        HandlerOptions,
        RequestContext,
        RequestRecord,
        ServerSession,
        SessionOptions,
    )
    from trio_mcp.stdio.client import stdio_client
    from trio_mcp.stdio.parameters import StdioServerParameters
    from trio_mcp.stdio.server import stdio_server
    from trio_mcp.trace_context import TraceContext

# The module that defines each public name, for `__getattr__` to import.
_HOMES = {
    "trio_mcp.client": (
        "Answers",
        "Client",
        "ClientGroup",
        "PromptsListChanged",
        "ResourceUpdated",
        "ResourcesListChanged",
        "ResponseCache",
        "ToolsListChanged",
    ),
    "trio_mcp.principal": ("Principal",),
    "trio_mcp.proxy": ("ProxyServer",),
    "trio_mcp.errors": (
        "CapabilityError",
        "ConfigError",
        "HttpError",
        "InputError",
        "LocalProtocolError",
        "McpError",
        "MessageTooLarge",
        "NegotiationError",
        "ProcessExited",
        "RemoteProtocolError",
        "RequestTimeout",
        "SessionClosed",
        "ToolError",
        "TransportError",
        "TrioMcpError",
    ),
    "trio_mcp.link": ("Link",),
    "trio_mcp.jsonrpc.messages": ("SessionMessage",),
    "trio_mcp.retrying": ("Backoff",),
    "trio_mcp.trace_context": ("TraceContext",),
    "trio_mcp.server": (
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
        "Server",
        "UrlElicitationRequired",
    ),
    "trio_mcp.http.server.options": ("HttpOptions",),
    "trio_mcp.http.server.event_store": ("EventStore",),
    "trio_mcp.http.server.legacy.stores": ("MemoryEventStore", "SqliteEventStore"),
    "trio_mcp.session": (
        "BaseSession",
        "ClientSession",
        "RequestRecord",
        "RequestContext",
        "ServerSession",
        "SessionOptions",
        "CallOptions",
        "HandlerOptions",
    ),
    "trio_mcp.http.client.parameters": ("HttpServerParameters",),
    "trio_mcp.memory": ("memory_link_pair",),
    "trio_mcp.stdio.parameters": ("StdioServerParameters",),
    "trio_mcp.http.client.legacy.sse_client": ("sse_client",),
    "trio_mcp.stdio.client": ("stdio_client",),
    "trio_mcp.stdio.server": ("stdio_server",),
    "trio_mcp.http.client.streamable": ("streamable_http_client",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [  # noqa: RUF022
    "__version__",
    "types",
    "Answers",
    "Backoff",
    "BaseSession",
    "CacheHint",
    "CapabilityError",
    "Client",
    "ClientGroup",
    "ClientSession",
    "ConfigError",
    "Context",
    "Depends",
    "Elicited",
    "EventStore",
    "FunctionOptions",
    "HttpError",
    "HttpOptions",
    "HttpServerParameters",
    "InputOptions",
    "InputRequest",
    "InputRequired",
    "InputError",
    "Link",
    "ListOptions",
    "LocalProtocolError",
    "McpError",
    "McpLogHandler",
    "MemoryEventStore",
    "MessageTooLarge",
    "NegotiationError",
    "NotificationContext",
    "Principal",
    "ProcessExited",
    "PromptsListChanged",
    "ProxyServer",
    "RemoteProtocolError",
    "RequestRecord",
    "RequestTimeout",
    "ResourceUpdated",
    "ResourcesListChanged",
    "RequestContext",
    "ResponseCache",
    "Server",
    "ServerSession",
    "SessionClosed",
    "SessionMessage",
    "SessionOptions",
    "SqliteEventStore",
    "StdioServerParameters",
    "CallOptions",
    "HandlerOptions",
    "ToolError",
    "ToolsListChanged",
    "TraceContext",
    "TransportError",
    "TrioMcpError",
    "UrlElicitationRequired",
    "memory_link_pair",
    "sse_client",
    "stdio_client",
    "stdio_server",
    "streamable_http_client",
]


def __getattr__(name: str) -> Any:
    if name == "types":
        return importlib.import_module("trio_mcp.types")
    # PEP 562: called for names that the module does not have yet.
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        # The folders named `legacy` may be deleted as a whole; any other missing module is a broken installation.
        if exc.name is None or not exc.name.endswith(".legacy"):
            raise
        raise ImportError(
            f"{name} is not available: this installation does not speak the legacy era over HTTP", name=__name__
        ) from None
    # Stored in the module, so that the next access does not come here.
    value = globals()[name] = getattr(home, name)
    return value


# So that completion offers names that have not been imported yet.
def __dir__() -> list[str]:
    return sorted(__all__)
