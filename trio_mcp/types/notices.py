"""What is told of a request while it runs: its progress, and log messages.

Log messages have the levels of syslog (RFC 5424, section 6.2.1).
"""

from typing import Any, Literal

from trio_mcp.types._base import Number, since
from trio_mcp.types.common import NotificationMessage, NotificationParams, ProgressToken, RequestMessage, RequestParams

__all__ = [
    "LoggingLevel",
    "LoggingMessageNotification",
    "LoggingMessageNotificationParams",
    "ProgressNotification",
    "ProgressNotificationParams",
    "SetLevelRequest",
    "SetLevelRequestParams",
]


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


LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class SetLevelRequestParams(RequestParams, until="2025-11-25"):
    """The least severe level to send."""

    level: LoggingLevel


class SetLevelRequest(RequestMessage, until="2025-11-25"):
    """Sets the least severe level to send; in the modern era each request says so in ``_meta``."""

    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams


class LoggingMessageNotificationParams(NotificationParams):
    """A log entry: any JSON value."""

    level: LoggingLevel
    logger: str | None = None
    data: Any


class LoggingMessageNotification(NotificationMessage):
    """Passes a log entry to the client."""

    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams
