"""JSON-RPC 2.0 envelopes, and what else can come out of a link. Light and immutable; their content is plain JSON data.

https://www.jsonrpc.org/specification and the section Messages of `basic` in every revision of MCP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, TypeGuard

import attrs

__all__ = [
    "RELATED",
    "Batch",
    "ErrorData",
    "ErrorResponse",
    "Failure",
    "Incoming",
    "Malformed",
    "Message",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "SessionMessage",
    "is_request_id",
    "show_id",
]

RequestId: TypeAlias = str | int


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """Whether a value may be a request id or a progress token: a string or an integer, never bool, float or null."""
    kind = type(value)
    return kind is int or kind is str


def show_id(request_id: RequestId) -> str:
    """An id for a text: the peer chose it, so it may be of any length."""
    return repr(request_id if isinstance(request_id, int) else request_id[:100])[:200]


@attrs.frozen
class Request:
    """A request: the peer owes exactly one answer, unless it is cancelled.

    Attributes:
        size: The bytes that it had on its way here; 0 for one that was never written as JSON.
    """

    id: RequestId
    method: str
    params: dict[str, Any] | None = None
    size: int = attrs.field(default=0, repr=False, eq=False)


@attrs.frozen
class Notification:
    """A one-way message; its ``size`` is as that of a `Request`."""

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
    """What an error answer says."""

    code: int
    message: str
    data: Any = None


@attrs.frozen
class ErrorResponse:
    """The error answer to a request; ``id`` is None only where the request's id could not be read."""

    id: RequestId | None
    error: ErrorData


@attrs.frozen
class Malformed:
    """Garbage is a value: something arrived that is no message.

    Attributes:
        code: The JSON-RPC error code that names the fault.
        reason: What is wrong with it, in one line.
        id: The id, where it could be recovered.
        expects_answer: An error answer is due. Not so for a broken notification, nor for a broken answer to a
            request of ours (then ``id`` tells which of our calls it fails).
        limit: The size limit in bytes, where the fault is that the message exceeds it.
    """

    code: int
    reason: str
    id: RequestId | None = None
    expects_answer: bool = True
    limit: int | None = None


@attrs.frozen
class Batch:
    """Several messages in one (revision 2025-03-26 only)."""

    items: tuple[Request | Notification | Response | ErrorResponse | Malformed, ...]


@attrs.frozen
class Failure:
    """The transport's word that something was lost.

    Attributes:
        error: What the waiting calls raise.
        request_id: The one request that failed; None when the link itself is lost.
    """

    error: Exception
    request_id: RequestId | None = None


Message: TypeAlias = Request | Notification | Response | ErrorResponse | Batch
"""What a session sends."""

Incoming: TypeAlias = Message | Malformed | Failure
"""What a transport may deliver."""


RELATED: Final = "related_request_id"


@attrs.frozen
class SessionMessage:
    """What travels through the memory channels between a session and its transport.

    Attributes:
        message: The envelope; inwards also `Malformed` and `Failure`.
        related_request_id: Outwards: the peer's request that this message belongs to, so that a transport with one
            stream per request (Streamable HTTP) can put it on the right one.
        metadata: Inwards: what the transport knows of the message (for example HTTP headers); may be empty. Under
            `RELATED` it has the id of the request of ours on whose own stream the message came.
    """

    message: Incoming
    related_request_id: RequestId | None = None
    metadata: Mapping[str, Any] | None = None
