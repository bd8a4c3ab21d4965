"""Elicitation: a server asks the client's user, by a form or by a page elsewhere."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from trio_mcp.types._base import WireModel, only, since, until
from trio_mcp.types.elicitation_schema import RequestedSchema
from trio_mcp.types.messages import EmbeddableRequestMessage, NotificationMessage, NotificationParams
from trio_mcp.types.task_support import TaskMetadata

__all__ = [
    "ElicitAction",
    "ElicitRequest",
    "ElicitRequestFormParams",
    "ElicitRequestParams",
    "ElicitRequestURLParams",
    "ElicitResult",
    "ElicitationCompleteNotification",
    "ElicitationCompleteNotificationParams",
]

ElicitAction = Literal["accept", "decline", "cancel"]


class ElicitRequestFormParams(WireModel, since="2025-06-18"):
    """A form for the user; no ``mode`` means this one."""

    mode: Literal["form"] | None = since("2025-11-25")
    message: str
    requested_schema: RequestedSchema
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")


class ElicitRequestURLParams(WireModel, since="2025-11-25"):
    """A page for the user to visit; what happens there does not pass through the client."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | None = only("2025-11-25", required=True)
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")


def _mode(params: Any) -> str:
    mode = params.get("mode") if isinstance(params, dict) else getattr(params, "mode", None)
    return "form" if mode is None else str(mode)


ElicitRequestParams = Annotated[
    Annotated[ElicitRequestFormParams, Tag("form")] | Annotated[ElicitRequestURLParams, Tag("url")],
    Discriminator(_mode),
]


class ElicitRequest(EmbeddableRequestMessage, since="2025-06-18"):
    """Asks the user something."""

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class ElicitResult(WireModel, since="2025-06-18"):
    """What the user did, and the filled-in form if that was to accept."""

    action: ElicitAction
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = until("2025-11-25")


class ElicitationCompleteNotificationParams(NotificationParams, only="2025-11-25"):
    """Which elicitation."""

    elicitation_id: str


class ElicitationCompleteNotification(NotificationMessage, only="2025-11-25"):
    """Tells that what the user was to do on a page is done."""

    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitationCompleteNotificationParams
