"""The parts of tools and of a server's name that other constructs share; more are in `trio_mcp.types.bases`."""

from typing import Annotated, Any, Final, Literal

from pydantic import Strict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from trio_mcp.types._base import WireModel, since

__all__ = [
    "CacheScope",
    "Cursor",
    "Described",
    "Icon",
    "IconTheme",
    "Implementation",
    "JSONArray",
    "JSONObject",
    "JSONValue",
    "LoggingLevel",
    "ProgressToken",
    "RequestId",
    "ResultType",
    "Role",
]

# The ints and strings of an id are strict, because a boolean or a float is not a valid id, although Python treats True
# as 1.
RequestId = Annotated[int, Strict()] | Annotated[str, Strict()]
ProgressToken = Annotated[int, Strict()] | Annotated[str, Strict()]

Role = Literal["user", "assistant"]
# The severities of syslog, least severe first (RFC 5424, section 6.2.1).
LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
# The background that an icon is made for.
IconTheme = Literal["light", "dark"]
# A cursor is opaque: clients must not parse one, or make one up.
Cursor = str
# A Literal would be too narrow: extensions may add types to "complete" and "input_required".
ResultType = str
COMPLETE: Final = "complete"
INPUT_REQUIRED: Final = "input_required"

# The JSON types are plain aliases: the data has been parsed as JSON, so validating it once more could not find
# anything.
JSONValue = Any
JSONObject = dict[str, Any]
JSONArray = list[Any]


class Icon(WireModel, since="2025-11-25"):
    """An icon for user interfaces."""

    # An https: or data: URI; see `trio_mcp.types.icons` for what may be loaded.
    src: str
    mime_type: str | None = None
    # Sizes such as "48x48", or "any" for an image that scales.
    sizes: list[str] | None = None
    theme: IconTheme | None = None


# The whole list is validated first, because nearly always all its icons are well-formed.
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
"""A list of icons without the malformed ones, so that a bad icon does not make a whole list of tools invalid."""


class Described(WireModel):
    """The base of constructs with a name and icons: `BaseMetadata` and `Icons` in one."""

    # This is one class rather than two bases, because `BaseMetadata` and `Icons` exist only in later revisions than the
    # constructs derived from this class.
    icons: ReadableIcons | None = since("2025-11-25")
    name: str
    title: str | None = since("2025-06-18")


class Implementation(Described):
    """The name and version of the software of a client or server; self-reported, so don't base decisions on them."""

    # The version is free text, and not necessarily comparable.
    version: str
    description: str | None = since("2025-11-25")
    website_url: str | None = since("2025-11-25")


# The scopes are those of HTTP's Cache-Control: "public" results may be shared between users, "private" ones may not.
CacheScope = Literal["public", "private"]
