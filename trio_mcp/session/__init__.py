"""Floor 3: nursery-scoped sessions over a pair of memory channels.

A session runs a reader, one writer, and one task with one cancel scope per request of the peer's. Its in-flight state
is the sans-IO `trio_mcp.protocol.peer.Peer`.
"""

from __future__ import annotations

from trio_mcp.link import Link
from trio_mcp.session.base import BaseSession
from trio_mcp.session.client import ClientSession
from trio_mcp.session.core import SessionStatistics
from trio_mcp.session.options import RequestRecord, SessionOptions, Timeouts
from trio_mcp.session.responder import Responder
from trio_mcp.session.server import ServerSession

__all__ = [
    "BaseSession",
    "ClientSession",
    "Link",
    "RequestRecord",
    "Responder",
    "ServerSession",
    "SessionOptions",
    "SessionStatistics",
    "Timeouts",
]
