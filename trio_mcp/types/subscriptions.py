"""Subscriptions: a client asks to be notified of changes.

In the modern era one request opens a stream of notifications, and its result ends the stream. In the legacy era
a client subscribes to each resource separately.
"""

from typing import Any, Literal

from trio_mcp.types._base import WireModel
from trio_mcp.types.bases import NotificationMessage, NotificationParams, RequestMessage, RequestParams, Result
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


# A client gets no notification that it has not asked for, so an absent flag means false.
class SubscriptionFilter(WireModel, since="2026-07-28"):
    """The notifications that a client asks for or, in an acknowledgement, will get."""

    tools_list_changed: bool | None = None
    prompts_list_changed: bool | None = None
    resources_list_changed: bool | None = None
    # The URIs of the resources whose updates the client is notified of.
    resource_subscriptions: list[str] | None = None


class SubscriptionsListenRequestParams(RequestParams, since="2026-07-28"):
    """The parameters of ``subscriptions/listen``: the notifications that the client wants."""

    notifications: SubscriptionFilter


class SubscriptionsListenRequest(RequestMessage, since="2026-07-28"):
    """A request that opens a stream of notifications, which lasts until either side ends it."""

    method: Literal["subscriptions/listen"] = "subscriptions/listen"
    params: SubscriptionsListenRequestParams


class SubscriptionsListenResult(Result, since="2026-07-28"):
    """The result that ends a stream of notifications."""

    # `_meta` is required in this result, because it contains the subscription's id.
    meta: dict[str, Any]


class SubscriptionsAcknowledgedNotificationParams(NotificationParams, since="2026-07-28"):
    """The parameters of an acknowledgement: the notifications that the client will get."""

    # The notifications that the client has asked for and that the server supports.
    notifications: SubscriptionFilter


class SubscriptionsAcknowledgedNotification(NotificationMessage, since="2026-07-28"):
    """The acknowledgement of a subscription, with which every stream of notifications begins."""

    method: Literal["notifications/subscriptions/acknowledged"] = "notifications/subscriptions/acknowledged"
    params: SubscriptionsAcknowledgedNotificationParams


class SubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The parameters of ``resources/subscribe``: the resource to watch."""


class SubscribeRequest(RequestMessage, until="2025-11-25"):
    """A request to be notified whenever a resource changes."""

    method: Literal["resources/subscribe"] = "resources/subscribe"
    params: SubscribeRequestParams


class UnsubscribeRequestParams(ResourceRequestParams, until="2025-11-25"):
    """The parameters of ``resources/unsubscribe``: the resource to stop watching."""


class UnsubscribeRequest(RequestMessage, until="2025-11-25"):
    """A request to stop the notifications about a resource."""

    method: Literal["resources/unsubscribe"] = "resources/unsubscribe"
    params: UnsubscribeRequestParams
