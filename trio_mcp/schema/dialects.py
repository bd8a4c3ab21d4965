"""The dialects of JSON Schema that models' vendors take, and what can't be said in them.

The facts were read on 2026-11-29: for Gemini, the reference of `Schema` and `FunctionDeclaration` and google-genai
3.6.1; for OpenAI, a digest of the guide to structured outputs, section Supported schemas (February 2026), and
`lib/_pydantic.py` of openai 3.57.0.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from trio_mcp.schema.validator import take_apart

__all__ = [
    "CONSTRUCTS",
    "DIALECT_NAMES",
    "LIMITS",
    "SHAPING",
    "Construct",
    "DialectLimits",
    "DialectName",
    "Fate",
    "SchemaRefusal",
    "check_dialect",
    "looks_around",
    "refusals",
]

DialectName: TypeAlias = Literal["gemini", "openai-strict"]
DIALECT_NAMES: tuple[str, ...] = get_args(DialectName)


class Fate(enum.Enum):
    """The ways in which a construct ends up in the schema for a model."""

    SAID = "said"
    """The dialect has it."""
    REWRITTEN = "rewritten"
    """It is said in another form, and the model's arguments are mapped back; nothing is lost."""
    LEFT_OUT = "left out"
    """It is not said, so the model may break it; the server still refuses what breaks it."""
    TEXT = "text"
    """The value is asked for as JSON in a string, of a shape that the dialect can't say."""


class DialectLimits(NamedTuple):
    """How large a schema may be.

    Attributes:
        levels: How many levels of objects may be nested.
        properties: How many properties there may be, in all objects together.
        values: How many values all enumerations may have together.
        characters: The total length of all names and values.
    """

    levels: int
    properties: int
    values: int
    characters: int


# OpenAI documents its limits. Gemini documents none, and says that it may refuse a schema that is large or deep.
LIMITS: Mapping[str, DialectLimits] = {
    "gemini": DialectLimits(levels=20, properties=5_000, values=1_000, characters=120_000),
    "openai-strict": DialectLimits(levels=10, properties=5_000, values=1_000, characters=120_000),
}

FORMATS: Mapping[str, frozenset[str]] = {
    "gemini": frozenset({"enum", "date-time", "float", "double", "int32", "int64"}),
    "openai-strict": frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"},
    ),
}
"""The formats that a dialect has. Gemini's API refuses other formats of strings, whatever its reference lists."""

# The names that the reference of Gemini's FunctionDeclaration allows for parameters.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
# Look-around and references to groups, which engines of linear time don't have.
_BEYOND_REGULAR = re.compile(r"\(\?[=!<]|\\[1-9]|\\k<|\(\?P=")

_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = ("items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else")
_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")


SHAPING = ("type", "enum", "const", "$ref", "anyOf", "oneOf", "allOf", "properties", "items", "prefixItems")
"""The keywords that say what a value looks like; others only restrict it."""


def looks_around(pattern: object) -> bool:
    """Return whether a pattern needs more than a regular expression in the strict sense."""
    return isinstance(pattern, str) and _BEYOND_REGULAR.search(pattern) is not None


Found: TypeAlias = Callable[[Mapping[str, Any], bool, str], bool]


class Construct(NamedTuple):
    """A construct of JSON Schema, and what becomes of it.

    Attributes:
        name: The keyword, or what to call it.
        gemini: Its fate in the dialect of Gemini.
        openai_strict: Its fate in the dialect of OpenAI.
        found: Tells whether a subschema has it; it gets the subschema, whether that is the root, and the dialect.
    """

    name: str
    gemini: Fate
    openai_strict: Fate
    found: Callable[[Mapping[str, Any], bool, str], bool]

    def fate(self, dialect: str) -> Fate:
        """Return what becomes of the construct in a dialect."""
        return self.gemini if dialect == "gemini" else self.openai_strict


def _has(*keywords: str) -> Found:
    return lambda schema, root, dialect: any(keyword in schema for keyword in keywords)


def _types(schema: Mapping[str, Any]) -> list[Any]:
    kinds = schema.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, Mapping) else {}


def _optional(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    required = schema.get("required", [])
    return any(name not in required for name in _properties(schema))


def _any_value(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    return not root and not any(keyword in schema for keyword in SHAPING)


def _free_object(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    closed = schema.get("additionalProperties") is False and dialect != "gemini"
    extra = isinstance(schema.get("additionalProperties"), dict) or "patternProperties" in schema
    return "object" in _types(schema) and not _properties(schema) and not closed and not extra and not root


def _open(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    extra = schema.get("additionalProperties")
    return isinstance(extra, dict) or (extra is True and bool(_properties(schema)))


def _unclosed(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    said = "additionalProperties" in schema
    return (
        (said if dialect == "gemini" else not said) and "object" in _types(schema) and not _open(schema, root, dialect)
    )


def _not_strings(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    values = schema.get("enum", [])
    wrong: Any = (dict, list) if dialect == "openai-strict" else ()
    if wrong:
        return any(isinstance(value, wrong) for value in values)
    return any(not isinstance(value, str) or not value for value in values if value is not None)


def _restricting(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    branches = schema.get("anyOf")
    return isinstance(branches, list) and not any(
        isinstance(each, dict) and any(key in each for key in SHAPING) for each in branches
    )


def _exclusive(schema: Mapping[str, Any], root: bool, dialect: str) -> bool:
    return "exclusiveMinimum" in schema or "exclusiveMaximum" in schema


_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_S, _R, _L, _T = Fate.SAID, Fate.REWRITTEN, Fate.LEFT_OUT, Fate.TEXT

# The order is that of the table in the documentation.
CONSTRUCTS: Mapping[str, Construct] = {
    row.name: row
    for row in (
        Construct("$ref", _R, _S, _has(*_REFERENCES)),
        Construct("recursion", _T, _S, lambda schema, root, dialect: False),  # seen by the conversion only
        Construct("list of types", _R, _R, lambda schema, root, dialect: isinstance(schema.get("type"), list)),
        Construct(
            "null", _R, _S, lambda schema, root, dialect: "null" in _types(schema) or None in schema.get("enum", [])
        ),
        Construct("anyOf of restrictions", _L, _L, _restricting),
        Construct("oneOf", _L, _L, _has("oneOf")),
        Construct("allOf", _R, _R, _has("allOf")),
        Construct(
            "union at the root", _R, _R, lambda schema, root, dialect: root and ("anyOf" in schema or "oneOf" in schema)
        ),
        Construct("const", _R, _S, _has("const")),
        Construct("enum of other values", _R, _R, _not_strings),
        Construct("optional property", _S, _R, _optional),
        Construct("optional property that may be null", _S, _L, lambda schema, root, dialect: False),
        Construct(
            "property name",
            _R,
            _S,
            lambda schema, root, dialect: any(NAME.fullmatch(name) is None for name in _properties(schema)),
        ),
        Construct("closed object", _R, _R, _unclosed),
        Construct("additionalProperties", _R, _R, _open),
        Construct("patternProperties", _L, _L, _has("patternProperties")),
        Construct("object without properties", _T, _T, _free_object),
        Construct("any value", _T, _T, _any_value),
        Construct(
            "array without items",
            _T,
            _T,
            lambda schema, root, dialect: "array" in _types(schema) and not {"items", "prefixItems"} & schema.keys(),
        ),
        Construct(
            "prefixItems",
            _R,
            _R,
            lambda schema, root, dialect: "prefixItems" in schema or isinstance(schema.get("items"), list),
        ),
        Construct("default", _R, _R, _has("default")),
        Construct(
            "format",
            _L,
            _L,
            lambda schema, root, dialect: "format" in schema and schema["format"] not in FORMATS[dialect],
        ),
        Construct(
            "pattern with look-around", _L, _L, lambda schema, root, dialect: looks_around(schema.get("pattern"))
        ),
        Construct("minLength, maxLength", _S, _L, _has("minLength", "maxLength")),
        Construct("minProperties, maxProperties", _S, _L, _has("minProperties", "maxProperties")),
        Construct("exclusiveMinimum, exclusiveMaximum", _L, _S, _exclusive),
        Construct("multipleOf", _L, _S, _has("multipleOf")),
        Construct("uniqueItems", _L, _L, _has("uniqueItems")),
        Construct("contains", _L, _L, _has("contains", "minContains", "maxContains")),
        Construct("propertyNames", _L, _L, _has("propertyNames")),
        Construct("dependentRequired", _L, _L, _has("dependentRequired", "dependentSchemas", "dependencies")),
        Construct("not", _L, _L, _has("not")),
        Construct("if", _L, _L, _has("if")),
        Construct("unevaluatedProperties", _L, _L, _has("unevaluatedProperties", "unevaluatedItems")),
        Construct(
            "too many values",
            _L,
            _L,
            lambda schema, root, dialect: len(schema.get("enum", ())) > LIMITS[dialect].values,
        ),
        Construct("too deep or too large", _T, _T, lambda schema, root, dialect: False),
    )
}
"""The constructs that a dialect lacks, by name; what is not listed is said in both."""


class SchemaRefusal(NamedTuple):
    """A construct that a dialect does not have, where a schema uses it.

    Attributes:
        path: A JSON pointer to the subschema.
        construct: The name of the construct, a key of the table in the documentation.
        fate: What a `ModelSchema` makes of it.
    """

    path: str
    construct: str
    fate: Fate


def check_dialect(value: object) -> None:
    """Raise ValueError or TypeError if this is not the name of a dialect."""
    if not isinstance(value, str):
        raise TypeError(f"a dialect is one of {', '.join(map(repr, DIALECT_NAMES))}, not {value!r}")
    if value not in DIALECT_NAMES:
        raise ValueError(f"there is no dialect {value!r}; use one of {', '.join(map(repr, DIALECT_NAMES))}")


def refusals(schema: dict[str, Any], dialect: DialectName) -> list[SchemaRefusal]:
    """Return what a vendor's API would refuse or ignore in a schema if it got the schema as it is.

    Args:
        schema: The input schema of a tool.
        dialect: ``"gemini"`` or ``"openai-strict"``.

    Raises:
        SchemaError: If the schema is too large or too deep, or refers to something outside itself.
        ValueError: If there is no such dialect.
    """
    check_dialect(dialect)
    take_apart(schema)  # bounds the size and the depth
    return [
        SchemaRefusal(path, row.name, row.fate(dialect))
        for path, part in _subschemas(schema)
        for row in CONSTRUCTS.values()
        if row.fate(dialect) is not Fate.SAID and row.found(part, not path, dialect)
    ]


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all subschemas, each with a JSON pointer to it."""
    pending: list[tuple[str, Any]] = [("", schema)]
    while pending:
        path, part = pending.pop()
        if not isinstance(part, dict):
            continue
        yield path, part
        children = [(f"{path}/{key}", part[key]) for key in _SINGLE if isinstance(part.get(key), dict)]
        for key in (*_LISTS, "items"):
            if isinstance(part.get(key), list):
                children += [(f"{path}/{key}/{index}", each) for index, each in enumerate(part[key])]
        for key in _MAPS:
            if isinstance(part.get(key), dict):
                children += [(f"{path}/{key}/{pointer(name)}", each) for name, each in part[key].items()]
        pending += reversed(children)


def pointer(step: str) -> str:
    """Escape a step of a JSON pointer (RFC 6901, section 3)."""
    return step.replace("~", "~0").replace("/", "~1")
