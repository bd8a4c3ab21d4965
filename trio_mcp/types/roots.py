"""Roots: the directories and files of the client that a server may work in."""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, since, until
from trio_mcp.types.common import EmbeddableRequestMessage, NotificationMessage, NotificationParams

__all__ = [
    "ListRootsRequest",
    "ListRootsRequestParams",
    "ListRootsResult",
    "Root",
    "RootsListChangedNotification",
]


class Root(WireModel):
    """A directory or file, as a file: URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = since("2025-06-18")


class ListRootsRequestParams(WireModel):
    """Nothing but ``_meta``, which this request never needs."""

    meta: dict[str, Any] | None = None


class ListRootsRequest(EmbeddableRequestMessage):
    """Asks the client for its roots."""

    method: Literal["roots/list"] = "roots/list"
    params: ListRootsRequestParams | None = None


class ListRootsResult(WireModel):
    """The client's roots."""

    roots: list[Root]
    meta: dict[str, Any] | None = until("2025-11-25")


class RootsListChangedNotification(NotificationMessage, until="2025-11-25"):
    """The list of roots is another now."""

    method: Literal["notifications/roots/list_changed"] = "notifications/roots/list_changed"
    params: NotificationParams | None = None
