"""Roots: the client's directories and files in which a server may work."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, since, until
from trio_mcp.types.bases import EmbeddableRequestMessage, NotificationMessage, NotificationParams

__all__ = [
    "ListRootsRequest",
    "ListRootsRequestParams",
    "ListRootsResult",
    "Root",
    "RootsListChangedNotification",
]


class Root(WireModel):
    """A directory or file on the client's side in which the server may work."""

    # A `file:` URI; the specification allows no other kind for now.
    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ListRootsRequestParams(WireModel):
    """The parameters of ``roots/list``: only ``_meta``."""

    # `_meta` is optional even in the modern era, where this request is part of a result and declares nothing in its
    # `_meta`.
    meta: dict[str, Any] | None = None


class ListRootsRequest(EmbeddableRequestMessage):
    """A request for the client's roots."""

    method: Literal["roots/list"] = "roots/list"
    params: ListRootsRequestParams | None = None


class ListRootsResult(WireModel):
    """The client's roots."""

    roots: list[Root]
    meta: dict[str, Any] | None = until("2025-11-25")


class RootsListChangedNotification(NotificationMessage, until="2025-11-25"):
    """A notification that the client's list of roots has changed."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"
    params: NotificationParams | None = None
