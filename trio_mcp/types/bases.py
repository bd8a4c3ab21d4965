"""The bases of requests, notifications and results, and the parts that constructs other than tools share.

Schemas before 2025-11-25 describe a request as its method and params; since then it includes the JSON-RPC envelope.

These classes are kept apart from :mod:`trio_mcp.types.common`, because a server can list its tools without them.
"""

from typing import Any, Literal

from trio_mcp.types._base import Number, WireModel, always, only, since
from trio_mcp.types.common import CacheScope, Cursor, ReadableIcons, RequestId, ResultType, Role

__all__ = [
    "Annotations",
    "AnyNotification",
    "AnyRequest",
    "BaseMetadata",
    "CacheablePage",
    "CacheableResult",
    "EmbeddableRequestMessage",
    "EmptyResult",
    "Icons",
    "InputResponseRequestParams",
    "NotificationMessage",
    "NotificationParams",
    "PaginatedRequest",
    "PaginatedRequestParams",
    "PaginatedResult",
    "RequestMessage",
    "RequestParams",
    "Result",
]


class BaseMetadata(WireModel, since="2025-06-18"):
    """The base of constructs with a name for programs and a title for people."""

    name: str
    # The title is shown instead of the name, if it is present.
    title: str | None = since("2025-06-18")


class Icons(WireModel, since="2025-11-25"):
    """The base of constructs with icons."""

    icons: ReadableIcons | None = since("2025-11-25")


class Annotations(WireModel):
    """Hints for clients about how to use or show something."""

    # The intended audience: the user, the model, or both.
    audience: list[Role] | None = None
    # The importance, from 0 (optional) to 1 (required).
    priority: Number | None = None
    # A time in ISO 8601, such as "2025-01-12T15:00:58Z".
    last_modified: str | None = since("2025-06-18")


class RequestParams(WireModel):
    """The parameters of any request; in the modern era ``_meta`` declares the client and the revision."""

    # The field is optional in Python, because sessions fill it in.
    meta: dict[str, Any] | None = always(required="2026-07-28")


class PaginatedRequestParams(RequestParams):
    """The parameters of a request for one page of a list."""

    # The cursor from the previous page; absent for the first page.
    cursor: Cursor | None = None


class InputResponseRequestParams(WireModel, since="2026-07-28"):
    """The parameters of a request to which the server may reply with questions; the client then sends it again.

    This class has the answers as plain data, because their types follow from the questions; see
    :mod:`trio_mcp.types.input_required`.
    """

    meta: dict[str, Any] | None = always(required="2026-07-28")
    # The answers to the server's questions, each under the key of its question.
    input_responses: dict[str, Any] | None = since("2026-07-28", models=True)
    # The server's state, passed back as it was received.
    request_state: str | None = since("2026-07-28")


class NotificationParams(WireModel):
    """The parameters of any notification."""

    meta: dict[str, Any] | None = None


class AnyRequest(WireModel):
    """The method and parameters of any request."""

    method: str
    params: Any = always(models=True)


class RequestMessage(WireModel):
    """The base of all requests, with the JSON-RPC envelope."""

    # The envelope is optional in Python in every revision: sessions add it when they send a request.
    method: str
    params: Any = always(models=True)
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)
    id: RequestId | None = since("2025-11-25", required=True)


class EmbeddableRequestMessage(WireModel):
    """The base of requests from the server: messages in the legacy era, parts of InputRequiredResult in the modern."""

    method: str
    params: Any = always(models=True)
    # Only a message has an envelope, and 2025-11-25 is the only revision that both sends these requests as messages and
    # describes envelopes in its schema.
    jsonrpc: Literal["2.0"] | None = only("2025-11-25", required=True)
    id: RequestId | None = only("2025-11-25", required=True)


class PaginatedRequest(WireModel):
    """The base of requests for one page of a list."""

    method: str
    params: PaginatedRequestParams | None = always(required="2026-07-28")
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)
    id: RequestId | None = since("2025-11-25", required=True)


class AnyNotification(WireModel):
    """The method and parameters of any notification."""

    method: str
    params: Any = always(models=True)


class NotificationMessage(WireModel):
    """The base of all notifications, with the JSON-RPC envelope."""

    method: str
    params: Any = always(models=True)
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)


class Result(WireModel):
    """The base of all results: ``_meta``, and since 2026-07-28 the type of the result."""

    meta: dict[str, Any] | None = None
    # The default is None because `ModernServerEra` fills the type in, and a legacy result has no type.
    result_type: ResultType | None = since("2026-07-28", required=True)


# The schemas define EmptyResult as a Result without further fields.
EmptyResult = Result


class PaginatedResult(WireModel):
    """One page of a list."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    # The cursor is absent on the last page.
    next_cursor: Cursor | None = None


class CacheableResult(WireModel, since="2026-07-28"):
    """A result that says for how long, and for whom, it may be cached (2026-07-28 server/utilities/caching)."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    # The time in milliseconds; if it is 0, the result is stale at once.
    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)


class CacheablePage(WireModel):
    """The base of list pages that may be cached: `PaginatedResult` and `CacheableResult` in one."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)
    next_cursor: Cursor | None = None
