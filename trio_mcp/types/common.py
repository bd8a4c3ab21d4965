"""The parts that many constructs share: names, icons, annotations, and the bases of requests, notifications, results.

Schemas before 2025-11-25 describe a request as its method and params; since then it includes the JSON-RPC envelope.
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
    "LoggingLevel",
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

# Strict: a boolean, a float or null is not a valid identifier, although Python would take True for 1.
RequestId = Annotated[int, Strict()] | Annotated[str, Strict()]
ProgressToken = Annotated[int, Strict()] | Annotated[str, Strict()]

Role = Literal["user", "assistant"]
# The severities of syslog, least severe first (RFC 5424, section 6.2.1).
LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
# The background that an icon is made for.
IconTheme = Literal["light", "dark"]
# Opaque: clients must not parse a cursor, or make one up.
Cursor = str
# Not a Literal: extensions may add types to "complete" and "input_required".
ResultType = str
INPUT_REQUIRED: Final = "input_required"

# Plain aliases: the data has been parsed as JSON, so validating it once more could not find anything.
JSONValue = Any
JSONObject = dict[str, Any]
JSONArray = list[Any]


class BaseMetadata(WireModel, since="2025-06-18"):
    """The base of constructs with a name for programs and a title for people."""

    name: str
    # Shown instead of the name, if present.
    title: str | None = since("2025-06-18")


class Icon(WireModel, since="2025-11-25"):
    """An icon for user interfaces."""

    # An https: or data: URI; see `trio_mcp.types.icons` for what may be loaded.
    src: str
    mime_type: str | None = None
    # Such as "48x48"; "any" for an image that scales.
    sizes: list[str] | None = None
    theme: IconTheme | None = None


# Tries the whole list first: nearly always all icons are well-formed.
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
"""A list of icons without the malformed ones, so that a bad icon does not cost the whole list of tools."""


class Icons(WireModel, since="2025-11-25"):
    """The base of constructs with icons."""

    icons: ReadableIcons | None = since("2025-11-25")


class Described(WireModel):
    """The base of constructs with a name and icons: `BaseMetadata` and `Icons` in one."""

    # One class, not two bases, since those exist in later revisions than the constructs derived from this one.
    icons: ReadableIcons | None = since("2025-11-25")
    name: str
    title: str | None = since("2025-06-18")


class Implementation(Described):
    """The name and version of the software of a client or server; self-reported, so don't base decisions on it."""

    # Free text, not necessarily comparable.
    version: str
    description: str | None = since("2025-11-25")
    website_url: str | None = since("2025-11-25")


class Annotations(WireModel):
    """Hints for clients about how to use or show something."""

    # Whom it is for: the user, the model, or both.
    audience: list[Role] | None = None
    # How important it is, from 0 (optional) to 1 (required).
    priority: Number | None = None
    # In ISO 8601, such as "2025-01-12T15:00:58Z".
    last_modified: str | None = since("2025-06-18")


# As in HTTP's Cache-Control: "public" results may be shared between users, "private" ones may not.
CacheScope = Literal["public", "private"]


class RequestParams(WireModel):
    """The parameters of any request; in the modern era ``_meta`` declares the client and the revision."""

    # Sessions fill it in, so it is optional in Python.
    meta: dict[str, Any] | None = always(required="2026-07-28")


class PaginatedRequestParams(RequestParams):
    """The parameters of a request for one page of a list."""

    # From the page before; absent for the first page.
    cursor: Cursor | None = None


class InputResponseRequestParams(WireModel, since="2026-07-28"):
    """The parameters of a request to which the server may reply with questions; the client then sends it again.

    The answers are plain data here, because their types follow from the questions; see
    :mod:`trio_mcp.types.input_required`.
    """

    meta: dict[str, Any] | None = always(required="2026-07-28")
    # The answers, under the keys of the questions.
    input_responses: dict[str, Any] | None = since("2026-07-28", models=True)
    # The server's state, passed back as it was received.
    request_state: str | None = since("2026-07-28")


class NotificationParams(WireModel):
    """The parameters of any notification."""

    meta: dict[str, Any] | None = None


class Request(WireModel):
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
    """The base of requests from the server: messages in the legacy era, part of InputRequiredResult in the modern."""

    method: str
    params: Any = always(models=True)
    # Only as a message it has an envelope, and only 2025-11-25 has both: such messages, and envelopes in its schema.
    jsonrpc: Literal["2.0"] | None = only("2025-11-25", required=True)
    id: RequestId | None = only("2025-11-25", required=True)


class PaginatedRequest(WireModel):
    """The base of requests for one page of a list."""

    method: str
    params: PaginatedRequestParams | None = always(required="2026-07-28")
    jsonrpc: Literal["2.0"] | None = since("2025-11-25", required=True)
    id: RequestId | None = since("2025-11-25", required=True)


class Notification(WireModel):
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
    # None here: `ModernServerEra` fills it in, and a legacy result has none.
    result_type: ResultType | None = since("2026-07-28", required=True)


# The schemas define it as a Result without further fields.
EmptyResult = Result


class PaginatedResult(WireModel):
    """One page of a list."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    # Absent on the last page.
    next_cursor: Cursor | None = None


class CacheableResult(WireModel, since="2026-07-28"):
    """A result that says for how long, and for whom, it may be cached (2026-07-28 server/utilities/caching)."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    # Milliseconds; with 0 the result is stale at once.
    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)


class CacheablePage(WireModel):
    """The base of list pages that may be cached: `PaginatedResult` and `CacheableResult` in one."""

    meta: dict[str, Any] | None = None
    result_type: ResultType | None = since("2026-07-28", required=True)
    ttl_ms: int | None = since("2026-07-28", required=True)
    cache_scope: CacheScope | None = since("2026-07-28", required=True)
    next_cursor: Cursor | None = None
