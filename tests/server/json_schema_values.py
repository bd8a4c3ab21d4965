"""JSON values that conform to a schema, for the vocabulary that tools' schemas are written in."""

from __future__ import annotations

import datetime
import re
from typing import Any

from hypothesis import strategies as st

from tests.strategies import integers, json_values, texts

__all__ = ["conforming"]

_FORMATS: dict[str, st.SearchStrategy[Any]] = {
    "date": st.dates().map(datetime.date.isoformat),
    "date-time": st.datetimes(timezones=st.just(datetime.UTC)).map(datetime.datetime.isoformat),
    "time": st.times(timezones=st.just(datetime.UTC)).map(datetime.time.isoformat),
    "duration": st.sampled_from(["P1D", "PT3S", "P1DT2H3M4S", "PT0.5S"]),
    "uuid": st.uuids().map(str),
    "binary": texts(),
}


_HUGE_EXPONENT = re.compile(r"[eE][+-]?[0-9]{5}")


def conforming(schema: dict[str, Any], root: dict[str, Any] | None = None, depth: int = 0) -> st.SearchStrategy[Any]:
    """Values that conform to a schema; beyond a depth of 3 optional things are left out."""
    root = schema if root is None else root
    if "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        return st.deferred(lambda: conforming(target, root, depth + 1))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            options = [option for option in schema[key] if depth < 3 or "$ref" not in option] or schema[key]
            return st.one_of(*(conforming(option, root, depth) for option in options))
    if "type" not in schema:
        return json_values()
    return _OF_TYPE[schema["type"]](schema, root, depth)


def _string(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "pattern" in schema:
        matching = st.from_regex(schema["pattern"], fullmatch=True, alphabet=st.characters(codec="ascii"))
        # Pydantic's pattern for a Decimal allows exponents that no Decimal can have.
        return matching.filter(lambda text: not _HUGE_EXPONENT.search(text))
    if "format" in schema:
        return _FORMATS[schema["format"]]
    return texts(schema.get("maxLength", 10)).filter(lambda text: len(text) >= schema.get("minLength", 0))


def _integer(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "minimum" in schema or "maximum" in schema:
        return st.integers(schema.get("minimum"), schema.get("maximum"))
    return integers() | integers().map(lambda number: float(number) if abs(number) < 2**31 else number)


def _number(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    return integers() | st.floats(allow_nan=False, allow_infinity=False)


def _array(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    if "prefixItems" in schema:
        return st.tuples(*(conforming(item, root, depth) for item in schema["prefixItems"])).map(list)
    if depth >= 3 and not schema.get("minItems"):
        return st.just([])
    items = conforming(schema.get("items", {}), root, depth)
    return st.lists(items, max_size=3, unique_by=repr if schema.get("uniqueItems") else None)


def _object(schema: dict[str, Any], root: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
    properties = {name: conforming(each, root, depth) for name, each in schema.get("properties", {}).items()}
    required = {name: each for name, each in properties.items() if name in schema.get("required", ())}
    optional = {name: each for name, each in properties.items() if name not in required}
    if properties or schema.get("additionalProperties") is False:
        return st.fixed_dictionaries(required, optional=optional if depth < 3 else {})
    more = schema.get("additionalProperties", True)
    keys = conforming({"type": "string", **schema.get("propertyNames", {})}, root, depth)
    return st.dictionaries(keys, json_values(3) if more is True else conforming(more, root, depth), max_size=2)


_OF_TYPE = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "array": _array,
    "object": _object,
    "boolean": lambda schema, root, depth: st.booleans(),
    "null": lambda schema, root, depth: st.none(),
}
