"""JSON-RPC 2.0 envelopes, and the other items that a link can deliver: light, immutable, and made of plain JSON data.

See https://www.jsonrpc.org/specification and the section Messages of `basic` in every revision of MCP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeGuard

from trio_mcp import _attrs as attrs

__all__ = [
    "RELATED",
    "Batch",
    "ErrorData",
    "ErrorResponse",
    "Incoming",
    "Malformed",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "SessionMessage",
    "TransportFailure",
    "is_request_id",
    "show_id",
]

RequestId: TypeAlias = str | int


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Return whether a value can be a request id or progress token: a string or integer, never bool, float or null."""
    # JSON-RPC allows null and fractions as well; MCP does not (`basic`, Requests). `isinstance` would accept bool.
    kind = type(value)
    return kind is int or kind is str


def show_id(request_id: RequestId) -> str:
    """Return an id as text for a message, shortened: the peer chose it, so it may be of any length."""
    # The text is cut twice: a string before it is escaped, and the result again, because an integer may have thousands
    # of digits.
    return repr(request_id if isinstance(request_id, int) else request_id[:100])[:200]


# The sizes are ignored in comparisons: a message equals a copy of it that was never written as JSON.
@attrs.frozen
class Request:
    """A request, to which the receiver owes exactly one response unless it is cancelled.

    Attributes:
        id: The id, chosen by the sender, and unique among its requests in flight.
        method: The name of the method.
        params: The parameters; None if there are none.
        size: The number of bytes in which it arrived; 0 if it was never written as JSON.
    """

    id: RequestId
    method: str
    params: dict[str, Any] | None = None
    size: int = attrs.field(default=0, repr=False, eq=False)


@attrs.frozen
class Notification:
    """A message without a response; its attributes are those of a `Request`, except for the id."""

    method: str
    params: dict[str, Any] | None = None
    size: int = attrs.field(default=0, repr=False, eq=False)


@attrs.frozen
class Response:
    """The result of a request."""

    id: RequestId
    result: dict[str, Any]


@attrs.frozen
class ErrorData:
    """The content of an error response."""

    code: int
    message: str
    data: Any = None


@attrs.frozen
class ErrorResponse:
    """The error response to a request; ``id`` is None only if the request's id could not be read."""

    # For an id that could not be read, JSON-RPC has null (2.0, section 5), while MCP leaves the member out.
    id: RequestId | None
    error: ErrorData


# A fault is a value, so that the session can send an error response, report the fault, or fail the call that it
# concerns, while the link remains in use.
@attrs.frozen
class Malformed:
    """Something that arrived and is not a valid message; a value, not an exception.

    Attributes:
        code: The JSON-RPC error code that describes the fault; `INTERNAL_ERROR` for a report of the transport itself.
        reason: What is wrong with the message, in one line.
        id: The message's id, if that could be recovered.
        expects_answer: Whether an error response is due. It is not for a malformed notification, nor for a malformed
            response to one of our requests (then ``id`` says which call fails).
        limit: The size limit in bytes, if the fault is that the message exceeds it.
    """

    code: int
    reason: str
    id: RequestId | None = None
    expects_answer: bool = True
    limit: int | None = None


@attrs.frozen
class Batch:
    """Several messages that are sent as one (revision 2025-03-26 only)."""

    items: tuple[Request | Notification | Response | ErrorResponse | Malformed, ...]


@attrs.frozen
class TransportFailure:
    """A transport's report that a request or the whole link is lost.

    Attributes:
        error: The exception that the waiting calls raise.
        request_id: The request that failed; None if the link itself is lost.
    """

    error: Exception
    request_id: RequestId | None = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse | Batch
"""The messages that a session sends."""

Incoming: TypeAlias = Message | Malformed | TransportFailure
"""Everything that a transport may deliver."""


# A key of `SessionMessage.metadata`.
RELATED: Final = "related_request_id"


@attrs.frozen
class SessionMessage:
    """The item that is passed through the channels between a session and its transport.

    Attributes:
        message: The envelope; an incoming one may also be a `Malformed` or `TransportFailure`.
        related_request_id: Outgoing: the peer's request that this message belongs to, so that a transport with one
            stream per request (Streamable HTTP) can put it on the right stream.
        metadata: Incoming: the transport's information about the message (for example HTTP headers); may be empty.
            `RELATED` maps to the id of our request on whose own stream the message came.
        retry: Outgoing: whether the caller allows the request to be sent again if its outcome is not known.
        urgent: Outgoing: whether the request or notification overtakes others that wait.
        headers: Outgoing: the HTTP header fields of this request, in addition to those of the link.
    """

    message: Incoming
    related_request_id: RequestId | None = None
    metadata: Mapping[str, Any] | None = None
    retry: bool = False
    urgent: bool = False
    headers: Mapping[str, str] | None = attrs.field(default=None, repr=False)  # they may be secret
