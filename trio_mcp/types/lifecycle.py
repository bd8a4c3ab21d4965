"""Messages to open a session, to check that the peer is there, and to cancel requests.

The legacy era has a handshake and a ping. The modern era has neither; it has ``server/discover`` instead.
"""

from typing import Literal

from trio_mcp.types._base import always
from trio_mcp.types.bases import (
    CacheableResult,
    NotificationMessage,
    NotificationParams,
    RequestMessage,
    RequestParams,
    Result,
)
from trio_mcp.types.capabilities import ClientCapabilities, ServerCapabilities
from trio_mcp.types.common import Implementation, RequestId

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
    """The parameters of ``initialize``: who the client is, what it can do, and the newest revision that it speaks."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeRequest(RequestMessage, until="2025-11-25"):
    """The request that opens a session."""

    method: Literal["initialize"] = "initialize"
    params: InitializeRequestParams


class InitializeResult(Result, until="2025-11-25"):
    """The result of ``initialize``: who the server is, what it can do, and the revision of the session."""

    # The revision may differ from the requested one; a client that does not support it disconnects.
    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    # How to use the server, for the model's system prompt.
    instructions: str | None = None


class InitializedNotification(NotificationMessage, until="2025-11-25"):
    """A notification that the client has accepted the handshake, so the session is open."""

    method: Literal["notifications/initialized"] = "notifications/initialized"
    params: NotificationParams | None = None


# Either side may send a ping at any time, even before the handshake is complete.
class PingRequest(RequestMessage, until="2025-11-25"):
    """A request that checks whether the peer is still there; its result is empty."""

    method: Literal["ping"] = "ping"
    params: RequestParams | None = None


class DiscoverRequest(RequestMessage, since="2026-07-28"):
    """A request for the server's capabilities and revisions; clients may skip it."""

    method: Literal["server/discover"] = "server/discover"
    params: RequestParams


class DiscoverResult(CacheableResult, since="2026-07-28"):
    """The capabilities and revisions of the server."""

    # The server's identity is in `_meta`, as in every result of this era.
    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class CancelledNotificationParams(NotificationParams):
    """The request that is cancelled, and the reason.

    In 2025-11-25 the id is optional, but a notification without it cancels nothing; tasks are cancelled with
    ``tasks/cancel`` instead.
    """

    request_id: RequestId | None = always(required=True, optional_in=("2025-11-25",))
    # Text for logs and for the user.
    reason: str | None = None


class CancelledNotification(NotificationMessage):
    """A notification that the sender no longer wants the response to its request."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams
