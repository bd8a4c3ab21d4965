"""Constructs that many others are made of: who a peer is, names for people, icons, annotations, roles."""

from typing import Annotated, Any, Literal

from pydantic import Strict, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from trio_mcp.types._base import Number, WireModel, since

__all__ = [
    "Annotations",
    "BaseMetadata",
    "Cursor",
    "Icon",
    "IconTheme",
    "Icons",
    "Implementation",
    "JSONArray",
    "JSONObject",
    "JSONValue",
    "ProgressToken",
    "RequestId",
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


class Icons(WireModel, since="2025-11-25"):
    """Base of constructs that can have icons; what is no icon is left out, as no decoration is worth a whole list."""

    icons: Annotated[list[Icon], WrapValidator(_readable_icons)] | None = since("2025-11-25")


class Implementation(BaseMetadata, Icons):
    """Name and version of the software at one end; reported by itself, so nothing to base a decision on."""

    version: str
    description: str | None = since("2025-11-25")
    website_url: str | None = since("2025-11-25")


class Annotations(WireModel):
    """Hints about whom something is for and how much it matters (priority: 0 to 1)."""

    audience: list[Role] | None = None
    priority: Number | None = None
    last_modified: str | None = since("2025-06-18")
