"""The reserved keys of ``_meta`` as models, for whoever wants them validated (2026-07-28 basic, "_meta").

Everywhere else ``_meta`` is a plain dict: most of its keys belong to others.
"""

from typing import Any

from pydantic import ConfigDict

from trio_mcp.types import meta
from trio_mcp.types._base import WireModel
from trio_mcp.types.capabilities import ClientCapabilities
from trio_mcp.types.common import Implementation, ProgressToken, RequestId
from trio_mcp.types.logging import LoggingLevel

__all__ = [
    "MetaObject",
    "NotificationMetaObject",
    "RequestMetaObject",
    "ResultMetaObject",
    "SubscriptionsListenResultMetaObject",
]

MetaObject = dict[str, Any]

_KEYS = {
    "protocol_version": meta.PROTOCOL_VERSION,
    "client_info": meta.CLIENT_INFO,
    "client_capabilities": meta.CLIENT_CAPABILITIES,
    "log_level": meta.LOG_LEVEL,
    "server_info": meta.SERVER_INFO,
    "subscription_id": meta.SUBSCRIPTION_ID,
    "progress_token": meta.PROGRESS_TOKEN,
}


class _MetaModel(WireModel):
    model_config = ConfigDict(alias_generator=_KEYS.__getitem__)


class RequestMetaObject(_MetaModel, since="2026-07-28"):
    """What every modern request tells the server: revision, capabilities, and usually who asks."""

    protocol_version: str
    client_capabilities: ClientCapabilities
    client_info: Implementation | None = None
    log_level: LoggingLevel | None = None
    progress_token: ProgressToken | None = None


class NotificationMetaObject(_MetaModel, since="2026-07-28"):
    """What a notification tells of the subscription it belongs to."""

    subscription_id: RequestId | None = None


class ResultMetaObject(_MetaModel, since="2026-07-28"):
    """What a result tells of the server that made it."""

    server_info: Implementation | None = None


class SubscriptionsListenResultMetaObject(_MetaModel, since="2026-07-28"):
    """What the end of a subscription tells: which one, by whom."""

    subscription_id: RequestId
    server_info: Implementation | None = None
