"""Sessions: both directions of one link, with their tasks in a nursery."""

from __future__ import annotations

from trio_mcp.link import Link
from trio_mcp.session.calls import CallLimits
from trio_mcp.session.client import ClientSession
from trio_mcp.session.handlers import RequestContext
from trio_mcp.session.limits import CallOptions, HandlerOptions, RequestRecord, SessionOptions
from trio_mcp.session.server import ServerSession
from trio_mcp.session.session import BaseSession, SessionStatistics

__all__ = [
    "BaseSession",
    "CallLimits",
    "CallOptions",
    "ClientSession",
    "HandlerOptions",
    "Link",
    "RequestContext",
    "RequestRecord",
    "ServerSession",
    "SessionOptions",
    "SessionStatistics",
]
