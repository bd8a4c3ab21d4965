"""Progress notifications, log messages, and the legacy request that sets the level of log messages."""

from typing import Any, Literal

from trio_mcp.types._base import Number, since
from trio_mcp.types.bases import NotificationMessage, NotificationParams, RequestMessage, RequestParams
from trio_mcp.types.common import LoggingLevel, ProgressToken

__all__ = [
    "LoggingMessageNotification",
    "LoggingMessageNotificationParams",
    "ProgressNotification",
    "ProgressNotificationParams",
    "SetLevelRequest",
    "SetLevelRequestParams",
]


class ProgressNotificationParams(NotificationParams):
    """The parameters of a progress notification."""

    # The token that the request gave in its `_meta`.
    progress_token: ProgressToken
    # The progress increases with every notification, even if the total is not known.
    progress: Number
    total: Number | None = None
    # A description of the progress for people.
    message: str | None = since("2025-03-26")


class ProgressNotification(NotificationMessage):
    """A notification of the progress of a request."""

    method: Literal["notifications/progress"] = "notifications/progress"
    params: ProgressNotificationParams


class SetLevelRequestParams(RequestParams, until="2025-11-25"):
    """The parameters of ``logging/setLevel``: the least severe level to send."""

    level: LoggingLevel


class SetLevelRequest(RequestMessage, until="2025-11-25"):
    """A request to set the level of log messages; in the modern era each request sets it in ``_meta``."""

    method: Literal["logging/setLevel"] = "logging/setLevel"
    params: SetLevelRequestParams


class LoggingMessageNotificationParams(NotificationParams):
    """The parameters of a log message."""

    level: LoggingLevel
    # The name of the logger.
    logger: str | None = None
    # Any JSON value, such as a text or an object.
    data: Any


class LoggingMessageNotification(NotificationMessage):
    """A log message from the server."""

    method: Literal["notifications/message"] = "notifications/message"
    params: LoggingMessageNotificationParams
