"""Progress of a request, told while it runs."""

from typing import Literal

from trio_mcp.types._base import Number, since
from trio_mcp.types.common import ProgressToken
from trio_mcp.types.messages import NotificationMessage, NotificationParams

__all__ = ["ProgressNotification", "ProgressNotificationParams"]


class ProgressNotificationParams(NotificationParams):
    """How far a request has come; ``progress`` grows with every notification."""

    progress_token: ProgressToken
    progress: Number
    total: Number | None = None
    message: str | None = since("2025-03-26")


class ProgressNotification(NotificationMessage):
    """Tells how far a request has come."""

    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams
