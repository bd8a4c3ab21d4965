"""Resources: what a server has to read."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, always, since
from trio_mcp.types.common import (
    Annotations,
    CacheablePage,
    CacheableResult,
    Described,
    InputResponseRequestParams,
    NotificationMessage,
    NotificationParams,
    PaginatedRequest,
    ReadableIcons,
    RequestMessage,
)

__all__ = [
    "BlobResourceContents",
    "ListResourceTemplatesRequest",
    "ListResourceTemplatesResult",
    "ListResourcesRequest",
    "ListResourcesResult",
    "ReadResourceRequest",
    "ReadResourceRequestParams",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceListChangedNotification",
    "ResourceRequestParams",
    "ResourceTemplate",
    "ResourceUpdatedNotification",
    "ResourceUpdatedNotificationParams",
    "TextResourceContents",
]


class Resource(WireModel):
    """Something a server can read; ``size`` is that of the raw contents, in bytes."""

    icons: ReadableIcons | None = since("2025-11-25")
    name: str
    title: str | None = since("2025-06-18")
    uri: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    size: int | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ResourceTemplate(Described):
    """A family of resources, named by a URI template (RFC 6570)."""

    uri_template: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ResourceContents(WireModel):
    """What text and binary contents have in common."""

    uri: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class TextResourceContents(ResourceContents):
    """Contents that are text."""

    text: str


class BlobResourceContents(ResourceContents):
    """Contents that are bytes, in base64."""

    blob: str


class ListResourcesRequest(PaginatedRequest):
    """Asks for a page of the server's resources."""

    method: Literal["resources/list"] = "resources/list"


class ListResourcesResult(CacheablePage):
    """A page of the server's resources."""

    resources: list[Resource]


class ListResourceTemplatesRequest(PaginatedRequest):
    """Asks for a page of the server's resource templates."""

    method: Literal["resources/templates/list"] = "resources/templates/list"


class ListResourceTemplatesResult(CacheablePage):
    """A page of the server's resource templates."""

    resource_templates: list[ResourceTemplate]


class ResourceRequestParams(WireModel):
    """Parameters of requests about one resource."""

    meta: dict[str, Any] | None = always(required="2026-07-28")
    uri: str


class ReadResourceRequestParams(InputResponseRequestParams):
    """Which resource to read."""

    uri: str


class ReadResourceRequest(RequestMessage):
    """Asks for the contents of a resource."""

    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class ReadResourceResult(CacheableResult):
    """The contents of a resource, or of several when the URI names a group."""

    contents: list[TextResourceContents | BlobResourceContents]


class ResourceListChangedNotification(NotificationMessage):
    """The list of resources is another now."""

    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"
    params: NotificationParams | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """Which resource changed; it may lie below the one subscribed to."""

    uri: str


class ResourceUpdatedNotification(NotificationMessage):
    """A resource the client subscribed to has changed."""

    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams
