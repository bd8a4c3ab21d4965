"""Makes validators and JSON Schemas (2020-12) of types, and checks arguments against hand-written JSON Schemas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Literal

from pydantic import PydanticUserError, TypeAdapter
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, from_json

__all__ = [
    "ArgumentsSchema",
    "JsonSchema",
    "adapter_for",
    "alternatives",
    "inlined",
    "json_schema_of",
    "json_types",
    "listed_values",
    "problem_line",
    "read_texts",
    "text_types",
    "without_null",
]

# The limits are arbitrary: paths and messages may quote the client's input (keys, parts of values), and must not grow
# with it.
MAX_PLACE = 100
"""The maximum length of the path to an argument in a message, in characters."""
MAX_PROBLEM = 500
"""The maximum length of a message about an argument, in characters."""

# `decimal.Decimal` and `int` accept more than these patterns, namely infinities, NaN, underscores and spaces, which
# clients need not know.
DECIMAL = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
INTEGER = r"^[+-]?[0-9]+$"

# The keywords in `_NAMED` contain subschemas under names that the schema's author chose; those in `_VALUES` contain
# values, which must not be taken for subschemas.
_NAMED = frozenset({"$defs", "properties", "patternProperties", "dependentSchemas"})
_VALUES = frozenset({"const", "default", "enum", "examples"})
_DEFINITIONS = "#/$defs/"

# These are JSON Schema's names for the types of values. bool comes before int, because in Python a bool is an int.
_NAMES: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}
# A schema without a type allows all of these types.
_JSON_TYPES = tuple(frozenset().union(*_NAMES.values()))
_SCALARS = frozenset({"boolean", "integer", "number"})


class JsonSchema(GenerateJsonSchema):
    """pydantic's generator, without titles that only repeat a property's name: models pay for every token.

    Args:
        null: Whether the schema of a parameter with a default includes null, if the type allows it.

    Attributes:
        bytes_in_json: Whether a type decodes its bytes in a way that pydantic supports for JSON text only
            (``val_json_bytes``).
    """

    # A default without a JSON form still works and is just not shown, so pydantic's warning about it is ignored.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def __init__(self, null: bool = True) -> None:
        super().__init__()
        self._null = null
        self.bytes_in_json = False

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def encode_default(self, dft: Any) -> Any:
        plain = super().encode_default(dft)
        import json  # deferred: few schemas have defaults

        # pydantic lets infinity and NaN through, which would make the whole list of tools invalid JSON.
        try:
            json.dumps(plain, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise PydanticSerializationError(str(exc)) from None
        return plain

    def default_schema(self, schema: Any) -> dict[str, Any]:
        found = super().default_schema(schema)
        return found if self._null else without_null(found)

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        found = super().decimal_schema(schema)
        for option in found.get("anyOf", [found]):
            if option.get("type") == "string":
                option.setdefault("pattern", DECIMAL)  # pydantic's schema would allow any string
        return found

    def dict_schema(self, schema: Any) -> dict[str, Any]:
        found = super().dict_schema(schema)
        # In JSON, keys are always strings; pydantic's schema does not say that the keys of a dict[int, …] must contain
        # integers.
        if schema.get("keys_schema", {}).get("type") == "int":
            found["propertyNames"] = {"pattern": INTEGER}
        return found

    def bytes_schema(self, schema: Any) -> dict[str, Any]:
        # pydantic decodes base64 and hex in JSON text, but leaves them as they are in a Python str.
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
) -> dict[str, Any]:
    """Return the JSON Schema 2020-12 of a type.

    Raises:
        TypeError: If the type has no JSON Schema; the message names the subject.
    """
    # Each schema needs a new generator: pydantic's generators can be used only once.
    generator = generator or JsonSchema()
    try:
        schema = generator.generate(adapter.core_schema, mode)
    except PydanticInvalidForJsonSchema as exc:
        raise TypeError(f"{subject} has no JSON Schema: {exc.message}") from None
    schema.pop("title", None)  # the title is the name of an internal class, such as a TypedDict
    return schema


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an optional parameter, changed so that null is not allowed."""
    left = {key: value for key, value in schema.items() if key != "default" or value is not None}
    if "enum" in left:
        left["enum"] = [value for value in left["enum"] if value is not None] or left["enum"]
    options = [option for option in left.pop("anyOf", ()) if option != {"type": "null"}]
    return {**options[0], **left} if len(options) == 1 else {**left, **({"anyOf": options} if options else {})}


class _TooLarge(Exception):
    """The schema would be too large with its definitions inlined."""


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a generated schema with its definitions in place of the references to them.

    A definition that refers to itself stays, and so do all definitions if the schema would become too large.
    """
    from trio_mcp.schema.validator import MAX_SUBSCHEMAS  # deferred: most schemas stay as they are

    definitions: dict[str, Any] = schema.get("$defs", {})
    below = {name: _referenced(definition) for name, definition in definitions.items()}
    for name in definitions:  # the transitive closure, by Warshall's algorithm
        for others in below.values():
            if name in others:
                others |= below[name]
    recursive = {name for name, others in below.items() if name in others}
    rest = {key: value for key, value in schema.items() if key != "$defs"}
    left = MAX_SUBSCHEMAS  # this library's own client would not use a larger schema

    def copied(part: Any) -> Any:
        nonlocal left
        if isinstance(part, list):
            return [copied(each) for each in part]
        if not isinstance(part, dict):
            return part
        left -= 1
        if left < 0:
            raise _TooLarge
        found: dict[str, Any] = {}
        for key, value in part.items():
            if key in _NAMED:
                found[key] = {name: copied(each) for name, each in value.items()}
            elif key != "discriminator":  # an OpenAPI keyword, which refers to the definitions
                found[key] = value if key in _VALUES else copied(value)
        if "discriminator" in part:  # a discriminator requires the tag, even one with a default
            tag = part["discriminator"]["propertyName"]
            found["oneOf"] = [
                {**each, "required": list(dict.fromkeys([*each.get("required", []), tag]))} for each in found["oneOf"]
            ]
        name = part.get("$ref", "").removeprefix(_DEFINITIONS)
        if name not in definitions or name in recursive:
            return found
        del found["$ref"]
        return {**copied(definitions[name]), **found}  # keywords beside a reference describe this use of it

    try:
        kept = {name: copied(definitions[name]) for name in definitions if name in recursive}
        return {**copied(rest), **({"$defs": kept} if kept else {})}
    except _TooLarge:
        return schema


def _referenced(part: Any) -> set[str]:
    """Return the names of the definitions that a schema refers to."""
    if isinstance(part, list):
        return set().union(*map(_referenced, part))
    if not isinstance(part, dict):
        return set()
    names = set().union(*map(_referenced, part.values()))
    reference = part.get("$ref")
    return names | {reference.removeprefix(_DEFINITIONS)} if isinstance(reference, str) else names


def alternatives(schema: Any, definitions: dict[str, Any], seen: tuple[str, ...] = ()) -> Iterable[dict[str, Any]]:
    """Yield the alternatives of a schema: those of a union, or otherwise the schema itself."""
    if not isinstance(schema, dict):
        yield {}
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in seen:  # a recursive type would never end
            definition = definitions.get(reference.removeprefix(_DEFINITIONS), {})
            yield from alternatives(definition, definitions, (*seen, reference))
        return
    union = schema.get("anyOf") or schema.get("oneOf")
    if union is None:
        yield schema
        return
    for option in union:
        yield from alternatives(option, definitions, seen)


def listed_values(option: dict[str, Any]) -> list[Any] | None:
    """Return the values that a schema without alternatives allows, if it lists them."""
    # pydantic writes a Literal with one value as `const`, and a Literal with several as `enum`.
    return [option["const"]] if "const" in option else option.get("enum")


def json_types(option: dict[str, Any]) -> frozenset[str]:
    """Return the JSON types that a schema without alternatives allows."""
    values = listed_values(option)  # an enumeration of numbers may come without a type
    if values is not None:
        return frozenset().union(*map(_types_of, values))
    named = option.get("type", _JSON_TYPES)
    return frozenset([named] if isinstance(named, str) else named)


def _types_of(value: Any) -> frozenset[str]:
    return next((names for kind, names in _NAMES.items() if isinstance(value, kind)), frozenset())


def text_types(schema: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Return the JSON types that a string may be read as, for each parameter that takes no string."""
    found: dict[str, frozenset[str]] = {}
    for name, part in schema.get("properties", {}).items():
        options = list(alternatives(part, schema.get("$defs", {})))
        if any("string" in json_types(option) for option in options):
            continue
        # Numbers and booleans in strings are accepted anyway, unless a strict type refuses them; only a list of values
        # never accepts them.
        types = (json_types(each) - (_SCALARS if listed_values(each) is None else frozenset()) for each in options)
        if allowed := frozenset().union(*types):
            found[name] = allowed
    return found


def read_texts(
    arguments: Mapping[str, Any], names: Collection[str], types: Mapping[str, frozenset[str]]
) -> dict[str, Any]:
    """Read arguments that are strings as JSON.

    Args:
        arguments: All arguments of a call, by name.
        names: The arguments to read.
        types: For each argument, the JSON types that it may be read as; arguments without an entry are never read.

    Returns:
        The values of those arguments that are JSON of an allowed type.
    """
    read: dict[str, Any] = {}
    for name in arguments.keys() & types.keys() & set(names):
        if isinstance(text := arguments[name], str):
            try:
                value = from_json(text, allow_inf_nan=False)
            except ValueError:
                continue
            # The type is checked because pydantic's lax mode would accept true as the number 1.
            if _types_of(value) & types[name]:
                read[name] = value
    return read


class ArgumentsSchema:
    """A tool's hand-written JSON Schema for its arguments.

    Args:
        schema: The schema.

    Raises:
        SchemaError: If the schema is invalid.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        from trio_mcp.schema.validator import SchemaValidator  # deferred: few schemas are written by hand

        self._schema = schema
        self._validator = SchemaValidator(schema)
        self._masked: Any = None

    def problem(self, arguments: dict[str, Any]) -> str | None:
        """Return the problem with the arguments, without quoting values; None if they conform."""
        from trio_mcp.schema.validator import SchemaError, compiled

        # The bounded validator decides. Its message quotes the value, so a second one, which can mask values, provides
        # the message.
        try:
            if self._validator.problem(arguments) is None:
                return None
        except SchemaError as exc:
            return str(exc)
        import jsonschema_rs  # deferred: most calls are valid

        try:
            self._masked = self._masked or compiled(self._schema, mask="the value")[0]
            self._masked.validate(arguments)
        except jsonschema_rs.ValidationError as exc:
            return problem_line(tuple(exc.instance_path), exc.message)
        except ValueError:
            pass  # a pattern exceeded the backtracking limit
        return "they do not conform to the input schema"


def problem_line(place: tuple[str | int, ...], message: str) -> str:
    """Format a problem with an argument as one line: the path to the argument, then the message."""
    where = ".".join(map(str, place))[:MAX_PLACE]
    return f"{where}: {message[:MAX_PROBLEM]}" if where else message[:MAX_PROBLEM]
