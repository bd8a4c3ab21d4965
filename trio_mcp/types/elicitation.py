"""Elicitation: a server asks the client's user, by a form or by a page elsewhere.

A form is described by a small part of JSON Schema (client/elicitation, "Requested Schema").
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from trio_mcp.types._base import Number, WireModel, only, since, until
from trio_mcp.types.common import EmbeddableRequestMessage, NotificationMessage, NotificationParams
from trio_mcp.types.task_support import TaskMetadata

__all__ = [
    "BooleanSchema",
    "ElicitAction",
    "ElicitRequest",
    "ElicitRequestFormParams",
    "ElicitRequestParams",
    "ElicitRequestURLParams",
    "ElicitResult",
    "ElicitationCompleteNotification",
    "ElicitationCompleteNotificationParams",
    "EnumOption",
    "EnumSchema",
    "LegacyTitledEnumSchema",
    "MultiSelectEnumSchema",
    "NumberSchema",
    "PrimitiveSchemaDefinition",
    "RequestedSchema",
    "SingleSelectEnumSchema",
    "StringSchema",
    "TitledItems",
    "TitledMultiSelectEnumSchema",
    "TitledSingleSelectEnumSchema",
    "UntitledItems",
    "UntitledMultiSelectEnumSchema",
    "UntitledSingleSelectEnumSchema",
]


class _Field(WireModel, since="2025-06-18"):
    title: str | None = None
    description: str | None = None


class StringSchema(_Field, since="2025-06-18"):
    """A line of text."""

    type: Literal["string"] = "string"
    min_length: int | None = None
    max_length: int | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    default: str | None = since("2025-11-25")


class NumberSchema(_Field, since="2025-06-18"):
    """A number."""

    type: Literal["number", "integer"]
    minimum: Number | None = None
    maximum: Number | None = None
    default: Number | None = since("2025-11-25")


class BooleanSchema(_Field, since="2025-06-18"):
    """A box to tick."""

    type: Literal["boolean"] = "boolean"
    default: bool | None = None


class LegacyTitledEnumSchema(_Field, since="2025-06-18"):
    """One of several strings, titled by a second list; the only choice in 2025-06-18, where it is EnumSchema."""

    type: Literal["string"] = "string"
    enum: list[str]
    enum_names: list[str] | None = None
    default: str | None = since("2025-11-25")


class UntitledSingleSelectEnumSchema(_Field, since="2025-11-25"):
    """One of several strings."""

    type: Literal["string"] = "string"
    enum: list[str]
    default: str | None = None


class EnumOption(WireModel, since="2025-11-25"):
    """A choice and its title."""

    const: str
    title: str


class TitledSingleSelectEnumSchema(_Field, since="2025-11-25"):
    """One of several strings that have titles."""

    type: Literal["string"] = "string"
    one_of: list[EnumOption]
    default: str | None = None


class UntitledItems(WireModel, since="2025-11-25"):
    """The strings to choose from."""

    type: Literal["string"] = "string"
    enum: list[str]


class UntitledMultiSelectEnumSchema(_Field, since="2025-11-25"):
    """Any of several strings."""

    type: Literal["array"] = "array"
    items: UntitledItems
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


class TitledItems(WireModel, since="2025-11-25"):
    """The titled strings to choose from."""

    any_of: list[EnumOption]


class TitledMultiSelectEnumSchema(_Field, since="2025-11-25"):
    """Any of several strings that have titles."""

    type: Literal["array"] = "array"
    items: TitledItems
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


def _kind(schema: Any) -> str:
    """Tell the kind of field; they differ in more than `type`."""
    if isinstance(schema, WireModel):
        return type(schema).__name__
    if not isinstance(schema, dict):
        return "other"
    match schema.get("type"):
        case "string" if "oneOf" in schema:
            return "TitledSingleSelectEnumSchema"
        case "string" if "enumNames" in schema:
            return "LegacyTitledEnumSchema"
        case "string" if "enum" in schema:
            return "UntitledSingleSelectEnumSchema"
        case "string":
            return "StringSchema"
        case "number" | "integer":
            return "NumberSchema"
        case "boolean":
            return "BooleanSchema"
        case "array":
            items = schema.get("items")
            titled = isinstance(items, dict) and "anyOf" in items
            return "TitledMultiSelectEnumSchema" if titled else "UntitledMultiSelectEnumSchema"
        case _:
            return "other"


SingleSelectEnumSchema = UntitledSingleSelectEnumSchema | TitledSingleSelectEnumSchema
MultiSelectEnumSchema = UntitledMultiSelectEnumSchema | TitledMultiSelectEnumSchema
EnumSchema = SingleSelectEnumSchema | MultiSelectEnumSchema | LegacyTitledEnumSchema
PrimitiveSchemaDefinition = Annotated[
    Annotated[StringSchema, Tag("StringSchema")]
    | Annotated[NumberSchema, Tag("NumberSchema")]
    | Annotated[BooleanSchema, Tag("BooleanSchema")]
    | Annotated[UntitledSingleSelectEnumSchema, Tag("UntitledSingleSelectEnumSchema")]
    | Annotated[TitledSingleSelectEnumSchema, Tag("TitledSingleSelectEnumSchema")]
    | Annotated[UntitledMultiSelectEnumSchema, Tag("UntitledMultiSelectEnumSchema")]
    | Annotated[TitledMultiSelectEnumSchema, Tag("TitledMultiSelectEnumSchema")]
    | Annotated[LegacyTitledEnumSchema, Tag("LegacyTitledEnumSchema")]
    # Servers in the wild also ask with `anyOf` and the like; such a field is passed on for whoever can show it.
    | Annotated[dict[str, Any], Tag("other")],
    Discriminator(_kind),
]


class RequestedSchema(WireModel, since="2025-06-18"):
    """A form: a flat object."""

    type: Literal["object"] = "object"
    properties: dict[str, PrimitiveSchemaDefinition]
    required: list[str] | None = None
    schema_: str | None = since("2025-11-25")


ElicitAction = Literal["accept", "decline", "cancel"]


class ElicitRequestFormParams(WireModel, since="2025-06-18"):
    """A form for the user; no ``mode`` means this one."""

    mode: Literal["form"] | None = since("2025-11-25")
    message: str
    requested_schema: RequestedSchema
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")


class ElicitRequestURLParams(WireModel, since="2025-11-25"):
    """A page for the user to visit; what happens there does not pass through the client."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    elicitation_id: str | None = only("2025-11-25", required=True)
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")


def _mode(params: Any) -> str:
    mode = params.get("mode") if isinstance(params, dict) else getattr(params, "mode", None)
    return "form" if mode is None else str(mode)


ElicitRequestParams = Annotated[
    Annotated[ElicitRequestFormParams, Tag("form")] | Annotated[ElicitRequestURLParams, Tag("url")],
    Discriminator(_mode),
]


class ElicitRequest(EmbeddableRequestMessage, since="2025-06-18"):
    """Asks the user something."""

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class ElicitResult(WireModel, since="2025-06-18"):
    """What the user did, and the filled-in form if that was to accept."""

    action: ElicitAction
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = until("2025-11-25")


class ElicitationCompleteNotificationParams(NotificationParams, only="2025-11-25"):
    """Which elicitation."""

    elicitation_id: str


class ElicitationCompleteNotification(NotificationMessage, only="2025-11-25"):
    """Tells that what the user was to do on a page is done."""

    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitationCompleteNotificationParams
