"""Resources: data that a server offers for reading."""

import base64
from collections.abc import Iterator
from typing import Any, Literal

from trio_mcp.types._base import WireModel, always, since
from trio_mcp.types.bases import (
    Annotations,
    CacheablePage,
    CacheableResult,
    InputResponseRequestParams,
    NotificationMessage,
    NotificationParams,
    PaginatedRequest,
    RequestMessage,
)
from trio_mcp.types.common import Described, ReadableIcons

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
    """A resource that a server offers."""

    icons: ReadableIcons | None = since("2025-11-25")
    name: str
    title: str | None = since("2025-06-18")
    uri: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    # The size of the raw contents in bytes, before Base64.
    size: int | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ResourceTemplate(Described):
    """A family of resources whose URIs follow a template."""

    # A URI template (RFC 6570).
    uri_template: str
    description: str | None = None
    # The type is present only if all resources of the family have it.
    mime_type: str | None = None
    annotations: Annotations | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


# The `contents` of a result may mix both kinds. A program that doesn't need to distinguish them can test for this base
# class.
class ResourceContents(WireModel):
    """The base of the text and binary contents of resources."""

    uri: str
    mime_type: str | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class TextResourceContents(ResourceContents):
    """The contents of a resource, as text."""

    text: str


class BlobResourceContents(ResourceContents):
    """The contents of a resource, as bytes in Base64."""

    # The bytes, in Base64.
    blob: str


class ListResourcesRequest(PaginatedRequest):
    """A request for a page of the server's resources."""

    method: Literal["resources/list"] = "resources/list"


class ListResourcesResult(CacheablePage):
    """A page of the server's resources."""

    resources: list[Resource]

    # This method replaces pydantic's own `__iter__`, which yields the fields.
    def __iter__(self) -> Iterator[Resource]:  # type: ignore[override]
        """Yield the resources of this page."""
        return iter(self.resources)


class ListResourceTemplatesRequest(PaginatedRequest):
    """A request for a page of the server's resource templates."""

    method: Literal["resources/templates/list"] = "resources/templates/list"


class ListResourceTemplatesResult(CacheablePage):
    """A page of the server's resource templates."""

    resource_templates: list[ResourceTemplate]

    # This method replaces pydantic's own `__iter__`, which yields the fields.
    def __iter__(self) -> Iterator[ResourceTemplate]:  # type: ignore[override]
        """Yield the templates of this page."""
        return iter(self.resource_templates)


class ResourceRequestParams(WireModel):
    """The parameters of a request about one resource."""

    meta: dict[str, Any] | None = always(required="2026-07-28")
    uri: str


class ReadResourceRequestParams(InputResponseRequestParams):
    """The parameters of ``resources/read``: the resource to read."""

    uri: str


class ReadResourceRequest(RequestMessage):
    """A request for the contents of a resource."""

    method: Literal["resources/read"] = "resources/read"
    params: ReadResourceRequestParams


class ReadResourceResult(CacheableResult):
    """The contents of a resource, or of several if the URI names a group."""

    contents: list[TextResourceContents | BlobResourceContents]

    @property
    def text(self) -> str:
        """The text of all text contents, joined by newlines."""
        return "\n".join(each.text for each in self.contents if isinstance(each, TextResourceContents))

    @property
    def data(self) -> bytes:
        """The bytes of all contents, one after the other: texts in UTF-8, blobs decoded.

        Raises:
            ValueError: If a blob is not Base64.
        """
        return b"".join(
            each.text.encode() if isinstance(each, TextResourceContents) else base64.b64decode(each.blob, validate=True)
            for each in self.contents
        )


class ResourceListChangedNotification(NotificationMessage):
    """A notification that the server's list of resources has changed."""

    method: Literal["notifications/resources/list_changed"] = "notifications/resources/list_changed"
    params: NotificationParams | None = None


class ResourceUpdatedNotificationParams(NotificationParams):
    """The parameters of a notification that a resource has changed."""

    # The URI may name a part of the resource that the client has subscribed to.
    uri: str


class ResourceUpdatedNotification(NotificationMessage):
    """A notification that a resource to which the client has subscribed has changed."""

    method: Literal["notifications/resources/updated"] = "notifications/resources/updated"
    params: ResourceUpdatedNotificationParams
