"""What many constructs are made of: who a peer is, names for people, icons, annotations, roles; and the shapes that
requests, notifications and results have in common.

Schemas before 2025-11-25 describe a request as method and params; since then its JSON-RPC envelope belongs to it.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Strict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from trio_mcp.types._base import Number, WireModel, always, only, since

__all__ = [
    "Annotations",
    "BaseMetadata",
    "CacheScope",
    "CacheablePage",
    "CacheableResult",
    "Cursor",
    "Described",
    "EmbeddableRequestMessage",
    "EmptyResult",
    "Icon",
    "IconTheme",
    "Icons",
    "Implementation",
    "InputResponseRequestParams",
    "JSONArray",
    "JSONObject",
    "JSONValue",
    "Notification",
    "NotificationMessage",
    "NotificationParams",
    "PaginatedRequest",
    "PaginatedRequestParams",
    "PaginatedResult",
    "ProgressToken",
    "Request",
    "RequestId",
    "RequestMessage",
    "RequestParams",
    "Result",
    "ResultType",
    "Role",
]

# Strict: a boolean, a float or null is no identifier, although Python would take True for 1.
RequestId = Annotated[int, Strict()] | Annotated[str, Strict()]
ProgressToken = Annotated[int, Strict()] | Annotated[str, Strict()]

Role = Literal["user", "assistant"]
IconTheme = Literal["light", "dark"]
Cursor = str
# Open: extensions may add to "complete" and "input_required".
ResultType = str
INPUT_REQUIRED: Final = "input_required"

# Plain aliases: JSON data was parsed as JSON, so looking through it once more could not find anything.
JSONValue = Any
JSONObject = dict[str, Any]
JSONArray = list[Any]


class BaseMetadata(WireModel, since="2025-06-18"):
    """A name for programs, and a title for people."""

    name: str
    title: str | None = since("2025-06-18")


class Icon(WireModel, since="2025-11-25"):
    """A picture for user interfaces, by URI (https: or data:)."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: IconTheme | None = None


def _readable_icons(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    try:
        return validate(value)
    except ValidationError:
        if not isinstance(value, list):
            return None
    readable = []
    for each in value:
        try:
            readable += validate([each])
        except ValidationError:
            continue
    return readable


ReadableIcons = Annotated[list[Icon], WrapValidator(_readable_icons)]
"""What is no icon is left out, as no decoration is worth a whole list."""


class Icons(WireModel, since="2025-11-25"):
    """Icons of a construct."""

    icons: ReadableIcons | None = since("2025-11-25")


class Described(WireModel):
    """Base of what has a name and icons: `BaseMetadata` and `Icons` in one."""

    icons: ReadableIcons | None = since("2025-11-25")
    name: str
    title: str | None = since("2025-06-18")


class Implementation(Described):
    """Name and version of the software at one end; reported by itself, so nothing to base a decision on."""

    version: str
    description: str | None = since("2025-11-25")
    website_url: str | None = since("2025-11-25")


class Annotations(WireModel):
    """Hints about whom something is for and how much it matters (priority: 0 to 1)."""

    audience: list[Role] | None = None
    priority: Number | None = None
    last_modified: str | None = since("2025-06-18")


CacheScope = Literal["public", "private"]


class RequestParams(WireModel):
    """Parameters of any request; in the modern era ``_meta`` says who asks, and in which revision."""

    meta: dict[str, Any] | None = always(required="2026-07-28")


class PaginatedRequestParams(RequestParams):
    """Parameters of a request for one page of a list."""

    cursor: Cursor | None = None


class InputResponseRequestParams(WireModel, since="2026-07-28"):
    """Parameters of a request that the server may answer with questions, and that then is sent again with answers.

    The answers stay plain data here, because only the question tells which construct an answer is; see
    :mod:`trio_mcp.types.input_required`.
    """

    meta: dict[str, Any] | None = always(required="2026-07-28")
    input_responses: dict[str, Any] | None = since("2026-07-28", models=True)
    request_state: str | None = since("2026-07-28")


class NotificationParams(WireModel):
    """Parameters of any notification."""

    meta: dict[str, Any] | None = None


class Request(WireModel):
    """Method and parameters of any request."""

    method: str
    params: Any = always(models=True)


class RequestMessage(WireModel):
    """A request with its envelope."""

    method: str
    params: Any = always(models=True)
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)
    id: RequestId | None = since("2025-11-25", required=True)


class EmbeddableRequestMessage(WireModel):
    """A request of the server: a message in the legacy era, an entry of InputRequiredResult in the modern."""

    method: str
    params: Any = always(models=True)
    jsonrpc: Literal["2.0"] | None = only("2025-11-25", required=True)
    id: RequestId | None = only("2025-11-25", required=True)


class PaginatedRequest(WireModel):
    """A request for one page of a list."""

    method: str
    params: PaginatedRequestParams | None = always(required="2026-07-28")
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)
    id: RequestId | None = since("2025-11-25", required=True)


class Notification(WireModel):
    """Method and parameters of any notification."""

    method: str
    params: Any = always(models=True)


class NotificationMessage(WireModel):
    """A notification with its envelope."""

    method: str
    params: Any = always(models=True)
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)


class Result(WireModel):
    """What every result has: ``_meta``, and since 2026-07-28 the kind of result it is."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)


# The schemas define it as Result without further fields.
EmptyResult = Result


class PaginatedResult(WireModel):
    """One page of a list; ``next_cursor`` is absent on the last."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    next_cursor: Cursor | None = None


class CacheableResult(WireModel, since="2026-07-28"):
    """A result that says for how many milliseconds and by whom it may be kept (2026-07-28 server/utilities/caching)."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)


class CacheablePage(WireModel):
    """Base of the pages of a list that may be kept: `PaginatedResult` and `CacheableResult` in one."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)
    next_cursor: Cursor | None = None
