"""How two peers come to know each other, whether one is still there, and what is no longer wanted.

The legacy era has a handshake and a ping, the modern era has neither, but `server/discover` (2026-07-28).
"""

from typing import Literal

from trio_mcp.types._base import always
from trio_mcp.types.capabilities import ClientCapabilities, ServerCapabilities
from trio_mcp.types.common import (
    CacheableResult,
    Implementation,
    NotificationMessage,
    NotificationParams,
    RequestId,
    RequestMessage,
    RequestParams,
    Result,
)

__all__ = [
    "CancelledNotification",
    "CancelledNotificationParams",
    "DiscoverRequest",
    "DiscoverResult",
    "InitializeRequest",
    "InitializeRequestParams",
    "InitializeResult",
    "InitializedNotification",
    "PingRequest",
]


class InitializeRequestParams(RequestParams, until="2025-11-25"):
    """Who the client is, what it can do, and the newest revision it wants to speak."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeRequest(RequestMessage, until="2025-11-25"):
    """Opens a session."""

    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializeResult(Result, until="2025-11-25"):
    """Who the server is, what it can do, and the revision of this session."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class InitializedNotification(NotificationMessage, until="2025-11-25"):
    """The client is ready; the session is open."""

    method: Literal["notifications/initialized"] = "notifications/initialized"
    params: NotificationParams | None = None


class PingRequest(RequestMessage, until="2025-11-25"):
    """Asks whether the other end is still there."""

    method: Literal["ping"] = "ping"
    params: RequestParams | None = None


class DiscoverRequest(RequestMessage, since="2026-07-28"):
    """Asks what the server can do and in which revisions; a client may do without."""

    method: Literal["server/discover"] = "server/discover"
    params: RequestParams


class DiscoverResult(CacheableResult, since="2026-07-28"):
    """What the server can do and in which revisions."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class CancelledNotificationParams(NotificationParams):
    """Which request, and why.

    2025-11-25 lets the id be absent, although a notice without one cancels nothing: there, tasks/cancel ends tasks.
    """

    request_id: RequestId | None = always(required=True, optional_in=("2025-11-25",))
    reason: str | None = None


class CancelledNotification(NotificationMessage):
    """Tells that a request's answer is no longer wanted."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams
