"""From a type to its validator and its JSON Schema 2020-12, with errors that say what to do; and schemas by hand."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from trio_mcp.schema.validator import SchemaError, SchemaValidator

__all__ = ["ArgumentsSchema", "JsonSchema", "adapter_for", "json_schema_of", "problem_line"]

MAX_PLACE = 100
MAX_PROBLEM = 500
"""Characters of a message about an argument."""

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


class ArgumentsSchema:
    """A JSON Schema that a tool brings along for its arguments.

    Args:
        schema: The schema.

    Raises:
        SchemaError: It can't be used.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._validator = SchemaValidator(schema)
        self._masked: Any = None

    def problem(self, arguments: dict[str, Any]) -> str | None:
        """What is wrong with arguments, told without the value; None if they conform."""
        try:
            if self._validator.problem(arguments) is None:
                return None
        except SchemaError as exc:
            return str(exc)
        import jsonschema_rs  # on first use: most calls are fine

        try:
            self._masked = self._masked or self._masked_validator()
            self._masked.validate(arguments)
        except jsonschema_rs.ValidationError as exc:
            return problem_line(tuple(exc.instance_path), exc.message)
        except ValueError:
            pass  # a pattern that takes too long
        return "they do not conform to the input schema"

    def _masked_validator(self) -> Any:
        import jsonschema_rs

        linear, fancy = jsonschema_rs.RegexOptions(), jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
        for options in (linear, fancy):  # look-around is known to the second only
            try:
                return jsonschema_rs.validator_for(
                    self._schema, mask="the value", validate_formats=False, pattern_options=options, retriever=_refuse
                )
            except ValueError as exc:
                problem = exc
        raise problem


def _refuse(uri: str) -> Any:
    raise LookupError(f"references outside the schema are not followed: {uri}")


def problem_line(place: tuple[str | int, ...], message: str) -> str:
    """One problem of an argument, with its place, in one line."""
    where = ".".join(map(str, place))[:MAX_PLACE]
    return f"{where}: {message[:MAX_PROBLEM]}" if where else message[:MAX_PROBLEM]
