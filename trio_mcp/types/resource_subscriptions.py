"""Subscriptions to single resources: the legacy era's way; 2026-07-28 has subscriptions/listen instead."""

from typing import Literal

from trio_mcp.types.messages import RequestMessage
from trio_mcp.types.resources import ResourceRequestParams

__all__ = ["SubscribeRequest", "SubscribeRequestParams", "UnsubscribeRequest", "UnsubscribeRequestParams"]


class SubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """Which resource to watch."""


class SubscribeRequest(RequestMessage, until="2025-11-25"):
    """Asks for a notification whenever a resource changes."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """Which resource to watch no longer."""


class UnsubscribeRequest(RequestMessage, until="2025-11-25"):
    """Ends the notifications about a resource."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams
