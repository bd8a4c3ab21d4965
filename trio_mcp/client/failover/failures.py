"""Judge failures: whether the way to the server is to blame, and whether the request may be sent again."""

from __future__ import annotations

from trio_mcp.errors import AuthorizationError, HttpError, MessageTooLarge, RemoteProtocolError, TransportError
from trio_mcp.jsonrpc.messages import ErrorData
from trio_mcp.types.error_codes import OVERLOADED

__all__ = [
    "blames_way",
    "brief_cause",
    "certainly_not_done",
    "detail",
    "doubts_way",
    "is_busy",
    "is_ending",
    "rules_out",
]


def brief_cause(cause: Exception) -> str:
    """Return the text of a failure, shortened for use in a message."""
    return (str(cause) or type(cause).__name__)[:500]


def detail(exc: Exception) -> str:
    """Return the text of an exception, if it has one, as the end of a message."""
    return f": {exc}" if str(exc) else ""


def rules_out(error: Exception) -> bool:
    """Return whether a failed exchange rules out a way to the server on which nothing has worked yet."""
    # If a client tries the modern era first, a legacy server refuses the client's first request. The way still works,
    # and the session handles the refusal.
    return not (isinstance(error, HttpError) and error.trouble == "not_modern") and _lies_with_link(error)


def doubts_way(error: Exception) -> bool:
    """Return whether the failure of one exchange casts doubt on the whole way to the server."""
    if isinstance(error, AuthorizationError):
        return False
    if isinstance(error, HttpError) and 400 <= error.status < 500:
        # Any other 4xx status is about the request or its sender, and would be the same on every way.
        return error.trouble in ("busy", "session_lost")
    # A response with any other status, such as a redirection or a captive portal's page, has no result, but does not
    # show that the server has not acted on the request.
    return _lies_with_link(error)


def blames_way(error: Exception) -> bool:
    """Return whether the way to the server may be to blame for the failure of a call."""
    # A way is not to blame if a login is missing, which is reported to the caller, or if a message exceeds the caller's
    # own limit.
    if isinstance(error, (AuthorizationError, MessageTooLarge)):
        return False
    return isinstance(error, RemoteProtocolError) or _lies_with_link(error)


def certainly_not_done(error: Exception) -> bool:
    """Return whether the server has certainly not acted on a failed request."""
    if is_busy(error):
        assert isinstance(error, HttpError)
        # A 503 alone is not enough: a server that is shutting down may also send it for a request that it has begun and
        # abandons. But a server that says when to come back has refused the request without beginning it.
        return error.status == 429 or error.retry_after is not None
    return isinstance(error, TransportError) and not error.sent


def is_busy(error: Exception) -> bool:
    """Return whether a server has refused an exchange only because it is busy now."""
    return isinstance(error, HttpError) and error.trouble == "busy"


def is_ending(error: ErrorData) -> bool:
    """Return whether a server of this library has refused to begin a request because it is shutting down."""
    # The code alone is not enough: it may also mean that the server has too many requests right now. In that case the
    # way is kept.
    return error.code == OVERLOADED and isinstance(error.data, dict) and error.data.get("ending") is True


def _lies_with_link(error: Exception) -> bool:
    # A plain `TransportError` about a request that was not sent means that the request can't be written as JSON, so it
    # could not be sent on another way either.
    return isinstance(error, TransportError) and (error.sent or type(error) is not TransportError)
