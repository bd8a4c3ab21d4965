"""The notice that a request's answer is no longer wanted."""

from typing import Literal

from trio_mcp.types._base import always
from trio_mcp.types.common import RequestId
from trio_mcp.types.messages import NotificationMessage, NotificationParams

__all__ = ["CancelledNotification", "CancelledNotificationParams"]


class CancelledNotificationParams(NotificationParams):
    """Which request, and why.

    2025-11-25 lets the id be absent, although a notice without one cancels nothing: there, tasks/cancel ends tasks.
    """

    request_id: RequestId | None = always(required=True, optional_in=("2025-11-25",))
    reason: str | None = None


class CancelledNotification(NotificationMessage):
    """Tells that a request's answer is no longer wanted."""

    method: Literal["notifications/cancelled"] = "notifications/cancelled"
    params: CancelledNotificationParams
