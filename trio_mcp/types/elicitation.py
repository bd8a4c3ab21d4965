"""Elicitation: a server asks the client's user for input, with a form or by sending the user to a URL.

A form is described by a small subset of JSON Schema (client/elicitation, "Requested Schema").
"""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Tag

from trio_mcp.types._base import Number, WireModel, only, since, until
from trio_mcp.types.bases import EmbeddableRequestMessage, NotificationMessage, NotificationParams
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
    # The title is shown to the user as the field's label.
    title: str | None = None
    description: str | None = None


class StringSchema(_Field, since="2025-06-18"):
    """A text field."""

    type: Literal["string"] = "string"
    min_length: int | None = None
    max_length: int | None = None
    format: Literal["email", "uri", "date", "date-time"] | None = None
    default: str | None = since("2025-11-25")


class NumberSchema(_Field, since="2025-06-18"):
    """A number field."""

    type: Literal["number", "integer"]
    minimum: Number | None = None
    maximum: Number | None = None
    default: Number | None = since("2025-11-25")


class BooleanSchema(_Field, since="2025-06-18"):
    """A yes-or-no field."""

    type: Literal["boolean"] = "boolean"
    default: bool | None = None


class LegacyTitledEnumSchema(_Field, since="2025-06-18"):
    """A single-choice field with a second list for titles; in 2025-06-18 the only choice field, named EnumSchema."""

    type: Literal["string"] = "string"
    enum: list[str]
    # The titles, in the order of `enum`; the keyword is not part of JSON Schema.
    enum_names: list[str] | None = None
    default: str | None = since("2025-11-25")


class UntitledSingleSelectEnumSchema(_Field, since="2025-11-25"):
    """A single-choice field without titles."""

    type: Literal["string"] = "string"
    enum: list[str]
    default: str | None = None


class EnumOption(WireModel, since="2025-11-25"):
    """A choice and its title."""

    # The value that is sent when the user picks this choice.
    const: str
    title: str


class TitledSingleSelectEnumSchema(_Field, since="2025-11-25"):
    """A single-choice field with titles."""

    type: Literal["string"] = "string"
    one_of: list[EnumOption]
    default: str | None = None


class UntitledItems(WireModel, since="2025-11-25"):
    """The choices of a multiple-choice field without titles."""

    type: Literal["string"] = "string"
    enum: list[str]


class UntitledMultiSelectEnumSchema(_Field, since="2025-11-25"):
    """A multiple-choice field without titles."""

    type: Literal["array"] = "array"
    items: UntitledItems
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


class TitledItems(WireModel, since="2025-11-25"):
    """The choices of a multiple-choice field with titles."""

    any_of: list[EnumOption]


class TitledMultiSelectEnumSchema(_Field, since="2025-11-25"):
    """A multiple-choice field with titles."""

    type: Literal["array"] = "array"
    items: TitledItems
    min_items: int | None = None
    max_items: int | None = None
    default: list[str] | None = None


def _kind(schema: Any) -> str:
    """Return the tag of a field's class in the union `PrimitiveSchemaDefinition`."""
    # pydantic can discriminate only by the value of one key, but these classes differ in which keys they have.
    match schema:
        case WireModel():
            return type(schema).__name__
        case {"type": "string", "oneOf": _}:
            return "TitledSingleSelectEnumSchema"
        case {"type": "string", "enumNames": _}:
            return "LegacyTitledEnumSchema"
        case {"type": "string", "enum": _}:
            return "UntitledSingleSelectEnumSchema"
        case {"type": "string"}:
            return "StringSchema"
        case {"type": "number" | "integer"}:
            return "NumberSchema"
        case {"type": "boolean"}:
            return "BooleanSchema"
        case {"type": "array", "items": {"anyOf": _}}:
            return "TitledMultiSelectEnumSchema"
        case {"type": "array"}:
            return "UntitledMultiSelectEnumSchema"
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
    # Some servers use `anyOf` or similar; such a field is kept as plain data, for a callback that can show it.
    | Annotated[dict[str, Any], Tag("other")],
    Discriminator(_kind),
]


class RequestedSchema(WireModel, since="2025-06-18"):
    """The schema of a form: a flat object with a property for each field."""

    type: Literal["object"] = "object"
    properties: dict[str, PrimitiveSchemaDefinition]
    # The names of the fields that the user must fill in.
    required: list[str] | None = None
    schema_: str | None = since("2025-11-25")


# "decline" is an explicit no; "cancel" means that the user dismissed the question without deciding.
ElicitAction = Literal["accept", "decline", "cancel"]


class ElicitRequestFormParams(WireModel, since="2025-06-18"):
    """The parameters of an elicitation with a form; an absent ``mode`` means a form, too."""

    mode: Literal["form"] | None = since("2025-11-25")
    message: str
    requested_schema: RequestedSchema
    # If this field is present, it asks the client to run the elicitation as a task; see `trio_mcp.types.tasks`.
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")


class ElicitRequestURLParams(WireModel, since="2025-11-25"):
    """The parameters of an elicitation by URL: a page for the user, whose input does not pass through the client."""

    mode: Literal["url"] = "url"
    message: str
    url: str
    # The notification that the user is done names this id; both exist in 2025-11-25 only.
    elicitation_id: str | None = only("2025-11-25", required=True)
    task: TaskMetadata | None = only("2025-11-25")
    meta: dict[str, Any] | None = until("2025-11-25")


# A function chooses the model, because an absent mode means "form": revisions before 2025-11-25 don't have the field.
def _mode(params: Any) -> str:
    mode = params.get("mode") if isinstance(params, dict) else getattr(params, "mode", None)
    return "form" if mode is None else str(mode)


ElicitRequestParams = Annotated[
    Annotated[ElicitRequestFormParams, Tag("form")] | Annotated[ElicitRequestURLParams, Tag("url")],
    Discriminator(_mode),
]


class ElicitRequest(EmbeddableRequestMessage, since="2025-06-18"):
    """A request to ask the user for input."""

    method: Literal["elicitation/create"] = "elicitation/create"
    params: ElicitRequestParams


class ElicitResult(WireModel, since="2025-06-18"):
    """The user's decision, and the form's data if the user has accepted."""

    action: ElicitAction
    # The form's data; None if the user has not accepted, and after an elicitation by URL.
    content: dict[str, Any] | None = None
    meta: dict[str, Any] | None = until("2025-11-25")


class ElicitationCompleteNotificationParams(NotificationParams, only="2025-11-25"):
    """The parameters of a notification that an elicitation by URL is complete."""

    elicitation_id: str


class ElicitationCompleteNotification(NotificationMessage, only="2025-11-25"):
    """A notification that the user has completed an elicitation by URL."""

    method: Literal["notifications/elicitation/complete"] = "notifications/elicitation/complete"
    params: ElicitationCompleteNotificationParams
