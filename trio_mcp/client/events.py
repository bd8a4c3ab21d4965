"""What a client hears of: the changes of a server's lists and resources, as values."""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs
from pydantic import ValidationError

from trio_mcp.convert import brief
from trio_mcp.errors import RemoteProtocolError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.types.resources import ResourceUpdatedNotificationParams
from trio_mcp.types.subscriptions import SubscriptionFilter

__all__ = [
    "LIST_CHANGES",
    "UPDATED",
    "ChangeEvent",
    "PromptsListChanged",
    "ResourceUpdated",
    "ResourcesListChanged",
    "ToolsListChanged",
    "events_of",
    "read_change",
]


@attrs.frozen
class ToolsListChanged:
    """The server's list of tools is another now."""


@attrs.frozen
class PromptsListChanged:
    """The server's list of prompts is another now."""


@attrs.frozen
class ResourcesListChanged:
    """The server's list of resources, or of resource templates, is another now."""


@attrs.frozen
class ResourceUpdated:
    """A resource holds something else now.

    Attributes:
        uri: Its URI: one that was asked for, or one below it.
    """

    uri: str


ChangeEvent: TypeAlias = ToolsListChanged | PromptsListChanged | ResourcesListChanged | ResourceUpdated

LIST_CHANGES: Final[dict[str, ChangeEvent]] = {
    "notifications/tools/list_changed": ToolsListChanged(),
    "notifications/prompts/list_changed": PromptsListChanged(),
    "notifications/resources/list_changed": ResourcesListChanged(),
}
UPDATED: Final = "notifications/resources/updated"


def read_change(notification: Notification) -> ChangeEvent:
    """The event that a notification of `LIST_CHANGES` or `UPDATED` stands for.

    Raises:
        RemoteProtocolError: It is malformed.
    """
    if notification.method != UPDATED:
        return LIST_CHANGES[notification.method]
    try:
        return ResourceUpdated(ResourceUpdatedNotificationParams.from_wire(notification.params or {}).uri)
    except ValidationError as exc:
        raise RemoteProtocolError(f"a malformed {UPDATED!r}: {brief(exc)}") from None


def events_of(wanted: SubscriptionFilter) -> frozenset[ChangeEvent]:
    """Every event that a filter lets through; what lies below its URIs aside."""
    flags = (wanted.tools_list_changed, wanted.prompts_list_changed, wanted.resources_list_changed)
    events = [event for event, flag in zip(LIST_CHANGES.values(), flags, strict=True) if flag]
    return frozenset([*events, *map(ResourceUpdated, wanted.resource_subscriptions or ())])
