"""Subscriptions: in the modern era one request whose answer ends a stream of notifications.

In the legacy era each resource is subscribed to by itself.
"""

from typing import Any, Literal

from trio_mcp.types._base import WireModel
from trio_mcp.types.common import NotificationMessage, NotificationParams, RequestMessage, RequestParams, Result
from trio_mcp.types.resources import ResourceRequestParams

__all__ = [
    "SubscribeRequest",
    "SubscribeRequestParams",
    "SubscriptionFilter",
    "SubscriptionsAcknowledgedNotification",
    "SubscriptionsAcknowledgedNotificationParams",
    "SubscriptionsListenRequest",
    "SubscriptionsListenRequestParams",
    "SubscriptionsListenResult",
    "UnsubscribeRequest",
    "UnsubscribeRequestParams",
]


class SubscriptionFilter(WireModel, since="2026-07-28"):
    """Which notifications to send."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    resource_subscriptions: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, since="2026-07-28"):
    """Which notifications the client wants."""

    notifications: SubscriptionFilter


class SubscriptionsListenRequest(RequestMessage, since="2026-07-28"):
    """Opens a stream of notifications, which lasts until either end closes it."""

    method: Literal["subscriptions/listen"] = "subscriptions/listen"
    params: SubscriptionsListenRequestParams


class SubscriptionsListenResult(Result, since="2026-07-28"):
    """Ends the stream; ``_meta`` names the subscription."""

    meta: dict[str, Any]


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, since="2026-07-28"):
    """Which of the notifications the client wanted it will get."""

    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotification(NotificationMessage, since="2026-07-28"):
    """The first notification of every stream."""

    method: Literal["notifications/subscriptions/acknowledged"] = "notifications/subscriptions/acknowledged"
    params: SubscriptionsAcknowledgedNotificationParams


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
