"""The legacy era's handshake and ping; the modern era has neither."""

from typing import Literal

from trio_mcp.types.capabilities import ClientCapabilities, ServerCapabilities
from trio_mcp.types.common import Implementation
from trio_mcp.types.messages import NotificationMessage, NotificationParams, RequestMessage, RequestParams, Result

__all__ = [
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
