"""Validators and JSON Schemas (2020-12) of types, with errors that say what to do; and hand-written schemas."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from trio_mcp.schema.validator import SchemaError, SchemaValidator

__all__ = ["ArgumentsSchema", "JsonSchema", "adapter_for", "json_schema_of", "problem_line"]

# Chosen: both may quote the client's input (keys, parts of values), so neither may grow with it.
MAX_PLACE = 100
"""The maximum length of the path to an argument in a message, in characters."""
MAX_PROBLEM = 500
"""The maximum length of a message about an argument, in characters."""

# What decimal.Decimal and int accept in a string, but for infinities, NaN, underscores and spaces.
DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
INTEGER = r"^[+-]?[0-9]+$"


class JsonSchema(GenerateJsonSchema):
    """pydantic's generator, without titles that only repeat a property's name: models pay for every token.

    Attributes:
        bytes_in_json: Whether a type decodes its bytes in a way that pydantic supports for JSON text only
            (``val_json_bytes``).
    """

    # A default without a JSON form still works; it just isn't shown.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.bytes_in_json = False

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        plain = super().encode_default(dft)
        # pydantic lets infinity and NaN through, which would make the whole list invalid JSON.
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise PydanticSerializationError(str(exc)) from None
        return plain

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        found = super().decimal_schema(schema)
        for option in found.get("anyOf", [found]):
            if option.get("type") == "string":
                option.setdefault("pattern", DECIMAL)  # pydantic's schema would allow any string
        return found

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        found = super().dict_schema(schema)
        # JSON has string keys only; pydantic's schema does not say that they must be integers.
        if schema.get("keys_schema", {}).get("type") == "int":
            found["propertyNames"] = {"pattern": INTEGER}
        return found

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        # Base64 or hex: pydantic decodes these in JSON text, but takes the bytes of a Python str as they are.
        if self._config.val_json_bytes != "utf8":
            self.bytes_in_json = True
        return super().bytes_schema(schema)


def adapter_for(kind: Any, subject: str) -> TypeAdapter[Any]:
    """Return the validator of a type.

    Raises:
        TypeError: If pydantic can't handle the type; the message names the subject.
    """
    try:
        return TypeAdapter(kind)
    except (PydanticUserError, ImportError, TypeError) as exc:
        # The first line is about the type; the rest, and the hint cut off here, are about pydantic's configuration,
        # which users of this library don't have.
        reason = str(exc).splitlines()[0].partition(" Set `arbitrary_types_allowed")[0].rstrip(". ")
        raise TypeError(
            f"{subject} can't be described: {reason} (use JSON types, dataclasses, TypedDicts or pydantic models)"
        ) from None


def json_schema_of(
    adapter: TypeAdapter[Any],
    mode: Literal["validation", "serialization"],
    subject: str,
    generator: JsonSchema | None = None,
) -> tuple[dict[str, Any], JsonSchema]:
    """Return the JSON Schema 2020-12 of a type, and the generator that made it.

    Raises:
        TypeError: If the type has no JSON Schema; the message names the subject.
    """
    # A new one each time: pydantic's generators can be used only once.
    generator = generator or JsonSchema()
    try:
        schema = generator.generate(adapter.core_schema, mode)
    except PydanticInvalidForJsonSchema as exc:
        raise TypeError(f"{subject} has no JSON Schema: {exc.message}") from None
    schema.pop("title", None)  # the name of an internal class, such as that of the arguments' TypedDict
    return schema, generator


class ArgumentsSchema:
    """A tool's hand-written JSON Schema for its arguments.

    Args:
        schema: The schema.

    Raises:
        SchemaError: If the schema is invalid.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._validator = SchemaValidator(schema)
        self._masked: Any = None

    def problem(self, arguments: dict[str, Any]) -> str | None:
        """Return what is wrong with the arguments, without quoting values; None if they conform."""
        # The bounded validator decides. Its message quotes the value, so a second one, which can mask values, is asked
        # for the message only.
        try:
            if self._validator.problem(arguments) is None:
                return None
        except SchemaError as exc:
            return str(exc)
        import jsonschema_rs  # deferred: most calls are valid

        try:
            self._masked = self._masked or self._masked_validator()
            self._masked.validate(arguments)
        except jsonschema_rs.ValidationError as exc:
            return problem_line(tuple(exc.instance_path), exc.message)
        except ValueError:
            pass  # a pattern exceeded the backtracking limit
        return "they do not conform to the input schema"

    def _masked_validator(self) -> Any:
        import jsonschema_rs

        linear, fancy = jsonschema_rs.RegexOptions(), jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000)
        # The linear engine first, as no pattern takes long there; only the other one supports look-around.
        for options in (linear, fancy):
            try:
                return jsonschema_rs.validator_for(
                    self._schema, mask="the value", validate_formats=False, pattern_options=options, retriever=_refuse
                )
            except ValueError as exc:
                problem = exc
        raise problem


def _refuse(uri: str) -> Any:
    # A schema must not make the server open URLs or files.
    raise LookupError(f"references outside the schema are not followed: {uri}")


def problem_line(place: tuple[str | int, ...], message: str) -> str:
    """Return a problem with an argument and the path to it, in one line."""
    where = ".".join(map(str, place))[:MAX_PLACE]
    return f"{where}: {message[:MAX_PROBLEM]}" if where else message[:MAX_PROBLEM]
