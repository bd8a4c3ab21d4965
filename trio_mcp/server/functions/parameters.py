"""Makes one validator for all parameters that clients fill, and the JSON Schema that describes the parameters.

pydantic needs most of a millisecond to make both. Most parameters are of a few types, so the parts that pydantic makes
for a type are cached, and put together for each function.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import math
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Optional, Union, get_args, get_origin

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticUndefined, SchemaValidator, core_schema
from typing_extensions import TypedDict

from trio_mcp.server.functions.schemas import JsonSchema, adapter_for, inlined, json_schema_of, without_null
from trio_mcp.server.functions.structure import Structure, Unclear, kind_of
from trio_mcp.server.functions.sync_threads import FunctionOptions

__all__ = ["Contract", "Parameter", "contract_of", "made_at_once", "parameter_of", "put_together"]

_EMPTY = inspect.Parameter.empty
# Only these attributes may be set on a Field if its parameter is put together from cached parts. All others must be as
# in an empty Field.
_READ_HERE = ("annotation", "default", "description", "metadata")
_NOTHING_SAID = Field()
_ELSEWHERE = {
    name: getattr(_NOTHING_SAID, name)
    for name in FieldInfo.__slots__
    if not name.startswith("_") and name not in _READ_HERE
}

# A default of these types is its own JSON form.
_DEFAULTS = (str, int, float, bool, type(None))


class Parameter(NamedTuple):
    """A parameter that clients fill.

    Attributes:
        kind: The type of the parameter, without the metadata.
        metadata: The metadata of the annotation, other than strings.
        description: The description in the annotation or the docstring; None if a Field describes the parameter.
        default: The default, which may be a Field; `inspect.Parameter.empty` without one.
    """

    kind: Any
    metadata: list[Any]
    description: str | None
    default: Any

    def annotation(self) -> Any:
        """Return the annotation of a field for the parameter, including its description and its default."""
        metadata = [*self.metadata]
        if self.description:
            metadata.append(Field(description=self.description))
        if isinstance(self.default, FieldInfo):
            metadata.append(self.default)
        elif self.default is not _EMPTY:
            metadata.append(Field(default=self.default))
        return _annotated(self.kind, metadata)


class Contract(NamedTuple):
    """The validator and the schema that pydantic makes for the parameters of a function.

    Attributes:
        validate: Validates arguments, and fills in defaults.
        validate_json: Does the same for arguments in JSON.
        schema: The JSON Schema of the arguments.
        as_json: Whether to validate as JSON first: some types decode their bytes from JSON text only.
    """

    validate: Callable[[Any], dict[str, Any]]
    validate_json: Callable[[bytes], dict[str, Any]]
    schema: dict[str, Any]
    as_json: bool


def parameter_of(annotation: Any, default: Any, description: str | None) -> Parameter:
    """Return the `Parameter` for a type hint, a default and a description.

    Args:
        annotation: The type hint.
        default: The default; `inspect.Parameter.empty` without one.
        description: The description in the docstring.
    """
    extras: list[Any] = []
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
    if get_origin(annotation) is collections.abc.Iterable:
        # pydantic validates an Iterable lazily, so a bad item would raise inside the user's function; a list is
        # validated at once.
        annotation = list[get_args(annotation)]  # type: ignore[misc]
    field = default if isinstance(default, FieldInfo) else None
    texts = [extra for extra in extras if isinstance(extra, str)]
    extras = [extra for extra in extras if not isinstance(extra, str)]
    if any(each.description for each in (*extras, field) if isinstance(each, FieldInfo)):
        description = None
    elif len(texts) == 1:
        # A single string in the annotation wins over the docstring, because it is closer to the parameter. Several
        # strings are ignored, because they may mean anything.
        description = texts[0]
    if (default is None or (field and field.default is None)) and not _allows_none(annotation):
        # `x: int = None` means an optional int, and models do send the null that they see as the default. Fields stay
        # outside the union, because clients look for a description beside it. Metadata that precedes the Fields must
        # not apply to None.
        inner = [number for number, extra in enumerate(extras, 1) if not isinstance(extra, FieldInfo)][-1:]
        end = inner[0] if inner else 0
        annotation, extras = Optional[_annotated(annotation, extras[:end])], extras[end:]  # noqa: UP045
    return Parameter(annotation, extras, description, default)


def _annotated(annotation: Any, extras: list[Any]) -> Any:
    return Annotated[(annotation, *extras)] if extras else annotation


def _allows_none(annotation: Any) -> bool:
    if hasattr(annotation, "__value__"):  # the annotation is a type alias
        return _allows_none(annotation.__value__)
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allows_none(parts[0])
    if origin in (Union, types.UnionType):
        return any(map(_allows_none, parts))
    return None in parts if origin is Literal else annotation in (Any, object, None, type(None))


def contract_of(
    parameters: Mapping[str, Parameter], extra: Literal["allow", "forbid"], options: FunctionOptions, what: str
) -> Contract:
    """Make the validator and the JSON Schema of a function's parameters.

    Args:
        parameters: The parameters, by name.
        extra: Whether other arguments are allowed.
        options: The server's options.
        what: The function's role, for error messages.

    Raises:
        TypeError: If a parameter can't be described; the message names it.
    """
    found = put_together(parameters, options.null_in_schemas) if extra == "forbid" else None
    return made_at_once(parameters, extra, options, what) if found is None else found


def made_at_once(
    parameters: Mapping[str, Parameter], extra: Literal["allow", "forbid"], options: FunctionOptions, what: str
) -> Contract:
    """Let pydantic make the contract of all parameters at once; see `contract_of`."""
    fields = {name: parameter.annotation() for name, parameter in parameters.items()}
    try:
        adapter, schema, as_json = _made(fields, extra, options.null_in_schemas, f"{what}: a parameter")
    except TypeError:
        # The error does not say which parameter caused it, so they are tried one by one.
        for name, annotation in fields.items():
            subject = f"{what}: the parameter {name!r}"
            json_schema_of(adapter_for(annotation, subject), "validation", subject)
        raise
    schema = inlined(schema) if options.inline_definitions else schema
    return Contract(adapter.validator.validate_python, adapter.validator.validate_json, schema, as_json)


def _made(
    fields: Mapping[str, Any], extra: Literal["allow", "forbid"], null: bool, subject: str
) -> tuple[TypeAdapter[Any], dict[str, Any], bool]:
    """Return the validator and the JSON Schema that pydantic makes, and whether to validate as JSON first."""
    # All parameters become one TypedDict, so that pydantic validates the arguments in one go, and returns a plain dict
    # to call the function with. The variable is typed as Any because mypy only accepts literal fields.
    make_typed_dict: Any = TypedDict
    arguments = make_typed_dict("arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra=extra)
    adapter = adapter_for(arguments, subject)
    generator = JsonSchema(null=null)
    return adapter, json_schema_of(adapter, "validation", subject, generator), generator.bytes_in_json


class _Part(NamedTuple):
    """The core schema and the JSON Schema that pydantic makes for a type. All parameters of the type share them."""

    core: CoreSchema
    schema: dict[str, Any]


def put_together(parameters: Mapping[str, Parameter], null: bool) -> Contract | None:
    """Make a contract from cached parts, equal to the one that pydantic would make at once.

    Args:
        parameters: The parameters, by name.
        null: As `null_in_schemas` in `FunctionOptions`.

    Returns:
        The contract; None if it might differ from pydantic's, or if pydantic can't make one.
    """
    fields: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    try:
        frame = _frame()
        for name, parameter in parameters.items():
            fields[name], properties[name] = _described(parameter, null)
        schema = {**frame.schema, "properties": properties}
        if required := [name for name, field in fields.items() if field["required"]]:
            schema["required"] = required
        core: Any = {**frame.core, "fields": fields}
        validator = SchemaValidator(core)
    except Exception:  # a type hint can be any object; `made_at_once` reports the problem, with the parameter's name
        return None
    return Contract(validator.validate_python, validator.validate_json, _sorted(schema), False)


def _described(parameter: Parameter, null: bool) -> tuple[core_schema.TypedDictField, dict[str, Any]]:
    """Return a parameter as a field of pydantic's core schema, and its JSON Schema.

    Raises:
        Unclear: If pydantic might make a different field or schema.
    """
    metadata, default, description = parameter.metadata, parameter.default, parameter.description
    fields = [each for each in (*metadata, default) if isinstance(each, FieldInfo)]
    if fields:
        field, metadata = fields[0], [each for each in metadata if not isinstance(each, FieldInfo)]
        # pydantic merges several Fields by rules of its own, which are not reproduced here.
        if len(fields) > 1 or (metadata and field.metadata) or not (field.description is None or field.description):
            raise Unclear
        if any(getattr(field, name) != value for name, value in _ELSEWHERE.items()):
            raise Unclear
        metadata = metadata or field.metadata
        description = description or field.description
        default = field.default if default is field or default is _EMPTY else default
    core, schema = _part(kind_of(parameter.kind, metadata))
    required = default is _EMPTY or default is PydanticUndefined
    if not required:
        if type(default) not in _DEFAULTS or (type(default) is float and not math.isfinite(default)):
            raise Unclear
        core = core_schema.with_default_schema(core, default=default)
        schema = {**schema, "default": default}
        if not null:
            schema = without_null(schema)
    if description:
        schema = {**schema, "description": description}
    return core_schema.typed_dict_field(core, required=required), _sorted(schema)


def _sorted(schema: dict[str, Any]) -> dict[str, Any]:
    # The keywords are sorted because pydantic does so, too. The properties stay in the order of the parameters.
    return dict(sorted(schema.items()))


@functools.lru_cache(maxsize=1_000)  # the bound exceeds the number of types that a server uses
def _part(kind: Structure) -> _Part:
    # A Field is added because it is not hashable: typing could otherwise return a cached Annotated[int, Ge(1)] for
    # Annotated[int, Ge(1.0)].
    annotation = _annotated(kind.annotation, [*kind.constraints, Field()])
    adapter, schema, _ = _made({"x": annotation}, "forbid", True, "")
    made: Any = adapter.core_schema
    return _Part(made["fields"]["x"]["schema"], schema["properties"]["x"])


@functools.cache
def _frame() -> _Part:
    """Return the parts that pydantic makes for a function without parameters.

    Raises:
        Unclear: If pydantic has plugins, which must see every validator.
    """
    adapter, schema, _ = _made({}, "forbid", True, "")
    if type(adapter.validator) is not SchemaValidator:
        raise Unclear
    return _Part(adapter.core_schema, schema)
