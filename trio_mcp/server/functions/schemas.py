"""From a type to its validator and its JSON Schema 2020-12, with pydantic, and with errors that say what to do."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

__all__ = ["JsonSchema", "adapter_for", "json_schema_of"]

DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
INTEGER = r"^[+-]?[0-9]+$"


class JsonSchema(GenerateJsonSchema):
    """Without a title on every property that only repeats its name: a model reads, and pays for, each of them.

    Attributes:
        bytes_in_json: A type wants its bytes decoded in a way that pydantic knows for JSON text only
            (``val_json_bytes``).
    """

    # A default that has no JSON form still works, it just can't be shown.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.bytes_in_json = False

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        plain = super().encode_default(dft)
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise PydanticSerializationError(str(exc)) from None
        return plain

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        found = super().decimal_schema(schema)
        for option in found.get("anyOf", [found]):
            if option.get("type") == "string":
                option.setdefault("pattern", DECIMAL)  # not every string is a number
        return found

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        found = super().dict_schema(schema)
        if schema.get("keys_schema", {}).get("type") == "int":
            found["propertyNames"] = {"pattern": INTEGER}
        return found

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        if self._config.val_json_bytes != "utf8":
            self.bytes_in_json = True
        return super().bytes_schema(schema)


def adapter_for(kind: Any, subject: str) -> TypeAdapter[Any]:
    """The validator of a type.

    Raises:
        TypeError: Pydantic can't describe it; the message names the subject.
    """
    try:
        return TypeAdapter(kind)
    except (PydanticUserError, ImportError, TypeError) as exc:
        reason = str(exc).splitlines()[0].partition(" Set `arbitrary_types_allowed")[0].rstrip(". ")
        raise TypeError(
            f"{subject} can't be described: {reason} (JSON types, dataclasses, TypedDicts and pydantic models can)"
        ) from None


def json_schema_of(
    adapter: TypeAdapter[Any],
    mode: Literal["validation", "serialization"],
    subject: str,
    generator: JsonSchema | None = None,
) -> tuple[dict[str, Any], JsonSchema]:
    """The JSON Schema 2020-12 of a type, and who made it.

    Raises:
        TypeError: It has none; the message names the subject.
    """
    generator = generator or JsonSchema()
    try:
        schema = generator.generate(adapter.core_schema, mode)
    except PydanticInvalidForJsonSchema as exc:
        raise TypeError(f"{subject} has no JSON Schema: {exc.message}") from None
    schema.pop("title", None)
    return schema, generator
