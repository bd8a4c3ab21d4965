"""The shapes that requests, notifications and results have in common.

Schemas before 2025-11-25 describe a request as method and params; since then its JSON-RPC envelope belongs to it.
"""

from typing import Any, Literal

from trio_mcp.types._base import WireModel, always, only, since
from trio_mcp.types.common import Cursor, RequestId, ResultType

__all__ = [
    "CacheScope",
    "CacheableResult",
    "EmbeddableRequestMessage",
    "EmptyResult",
    "InputResponseRequestParams",
    "Notification",
    "NotificationMessage",
    "NotificationParams",
    "PaginatedRequest",
    "PaginatedRequestParams",
    "PaginatedResult",
    "Request",
    "RequestMessage",
    "RequestParams",
    "Result",
]

CacheScope = Literal["public", "private"]


class RequestParams(WireModel):
    """Parameters of any request; in the modern era ``_meta`` says who asks, and in which revision."""

    meta: dict[str, Any] | None = always(required="2026-07-28")


class PaginatedRequestParams(RequestParams):
    """Parameters of a request for one page of a list."""

    cursor: Cursor | None = None


class InputResponseRequestParams(RequestParams, since="2026-07-28"):
    """Parameters of a request that the server may answer with questions, and that then is sent again with answers.

    The answers stay plain data here, because only the question tells which construct an answer is; see
    :mod:`trio_mcp.types.input_required`.
    """

    input_responses: dict[str, Any] | None = since("2026-07-28", models=True)
    request_state: str | None = since("2026-07-28")


class NotificationParams(WireModel):
    """Parameters of any notification."""

    meta: dict[str, Any] | None = None


class Request(WireModel):
    """Method and parameters of any request."""

    method: str
    params: Any = always(models=True)


class RequestMessage(Request):
    """A request with its envelope."""

    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)
    id: RequestId | None = since("2025-11-25", required=True)


class EmbeddableRequestMessage(Request):
    """A request of the server: a message in the legacy era, an entry of InputRequiredResult in the modern."""

    jsonrpc: Literal["2.0"] | None = only("2025-11-25", required=True)
    id: RequestId | None = only("2025-11-25", required=True)


class PaginatedRequest(RequestMessage):
    """A request for one page of a list."""

    params: PaginatedRequestParams | None = always(required="2026-07-28")


class Notification(WireModel):
    """Method and parameters of any notification."""

    method: str
    params: Any = always(models=True)


class NotificationMessage(Notification):
    """A notification with its envelope."""

    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)


class Result(WireModel):
    """What every result has: ``_meta``, and since 2026-07-28 the kind of result it is."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)


# The schemas define it as Result without further fields.
EmptyResult = Result


class PaginatedResult(Result):
    """One page of a list; ``next_cursor`` is absent on the last."""

    next_cursor: Cursor | None = None


class CacheableResult(Result, since="2026-07-28"):
    """A result that says for how many milliseconds and by whom it may be kept (2026-07-28 server/utilities/caching)."""

    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)
