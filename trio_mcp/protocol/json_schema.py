"""JSON Schema validation of what a peer sent, against a schema that a peer sent: both are hostile.

2026-07-28 `basic/index`, section JSON Schema Usage: 2020-12 unless the schema names another dialect, no network
``$ref``, and bounds on what a schema may cost. The validation itself is done by ``jsonschema-rs``: it is far faster
than the pure-Python library, loads in a fraction of the time, and matches patterns in linear time. It can't be
interrupted, so what a validation could cost is counted before it starts: how often each part of the schema would look
at each part of the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["SchemaError", "SchemaValidator"]

MAX_SUBSCHEMAS = 10_000
MAX_SCHEMA_DEPTH = 100
MAX_WORK = 2_000_000
"""Looks of a subschema at a value; a fraction of a second."""

DIALECTS = {
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
}

_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_MAPS = ("dependentSchemas", "dependencies")
_REFS = ("$ref", "$dynamicRef", "$recursiveRef")
_MEMBER = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ITEM = ("additionalItems", "unevaluatedItems", "contains")
_DEFINITIONS = ("$defs", "definitions")
_ANCHORS = ("$anchor", "$dynamicAnchor")


class SchemaError(ValueError):
    """The schema can't be used: it is invalid, reaches outside itself, or costs too much."""


class SchemaValidator:
    """A compiled schema.

    Args:
        schema: A JSON Schema, as plain data.

    Raises:
        SchemaError: It can't be used; the message says why.
    """

    def __init__(self, schema: Any) -> None:
        import jsonschema_rs  # on first use: most programs validate nothing

        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        if dialect is not None and str(dialect).rstrip("#") not in DIALECTS:
            raise SchemaError(f"the schema dialect {dialect!r} is not supported; 2020-12 is")
        self._schema = schema
        self._anchors: dict[str, Any] = {}
        self._size = sum(1 for _ in self._walk(schema, 0))
        if self._size > MAX_SUBSCHEMAS:
            raise SchemaError(f"the schema has more than {MAX_SUBSCHEMAS} subschemas")
        self._has_refs = any(key in part for part in self._walk(schema, 0) for key in _REFS)
        try:
            self._validator = jsonschema_rs.validator_for(
                schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions(size_limit=1_000_000)
            )
        except (ValueError, jsonschema_rs.ReferencingError) as exc:
            raise SchemaError(f"the schema is invalid: {str(exc).splitlines()[0]}") from None

    def problem(self, value: Any) -> str | None:
        """What is wrong with a value, in one line; None if it conforms.

        Raises:
            SchemaError: Finding out would cost too much.
        """
        if self._has_refs or self._size * _count(value, MAX_WORK) > MAX_WORK:
            self._estimate(value)
        for error in self._validator.iter_errors(value):
            place = "".join(f"[{step!r}]" for step in error.instance_path)
            return f"{place or 'the value'}: {error.message[:500]}"
        return None

    # --- what it could cost --------------------------------------------------------------------------------------

    def _walk(self, part: Any, depth: int) -> Iterator[dict[str, Any]]:
        """Every subschema."""
        if not isinstance(part, dict):
            return
        if depth > MAX_SCHEMA_DEPTH:
            raise SchemaError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} deep")
        for key in _REFS:
            target = part.get(key)
            if isinstance(target, str) and not target.startswith("#"):
                raise SchemaError(f"the schema refers to {target!r}, outside itself; such references are not followed")
        if depth and isinstance(part.get("$id"), str):
            raise SchemaError("the schema embeds another one with an $id of its own, which is not supported")
        for key in _ANCHORS:
            if isinstance(part.get(key), str):
                self._anchors[part[key]] = part
        yield part
        for child in (*_in_place(part), *_below(part), *_defined(part)):
            yield from self._walk(child, depth + 1)

    def _estimate(self, value: Any) -> None:
        """Count how often parts of the schema would look at parts of the value, or raise.

        Each part of the value carries the subschemas that look at it, with how often: shared and recursive references
        multiply, which is how a small schema can cost exponential time.
        """
        work = 0
        pending: list[tuple[Any, list[tuple[dict[str, Any], int]]]] = [(value, [(self._schema, 1)])]
        while pending:
            current, lookers = pending.pop()
            here = self._closure(lookers)
            work += sum(times for _, times in here) + 1
            if work > MAX_WORK:
                raise SchemaError(f"validating this value could take more than {MAX_WORK} steps")
            if isinstance(current, dict):
                pending += [(child, _lookers(here, key)) for key, child in current.items()]
            elif isinstance(current, list):
                pending += [(child, _lookers(here, index)) for index, child in enumerate(current)]

    def _closure(self, lookers: list[tuple[dict[str, Any], int]]) -> list[tuple[dict[str, Any], int]]:
        """The lookers and all whom they send to look at the same place."""
        counts: dict[int, tuple[dict[str, Any], int]] = {}
        pending = [(part, times, 0) for part, times in lookers]
        steps = 0
        while pending:
            part, times, depth = pending.pop()
            if not isinstance(part, dict):
                continue
            steps += 1
            if depth > MAX_SUBSCHEMAS or steps > MAX_WORK // 10:
                raise SchemaError("the schema refers to itself in a circle, or branches without end")
            known = counts.get(id(part))
            counts[id(part)] = (part, times + (known[1] if known else 0))
            pending += [(child, times, depth + 1) for child in _in_place(part)]
            pending += [(self._resolve(part[key]), times, depth + 1) for key in _REFS if isinstance(part.get(key), str)]
        return list(counts.values())

    def _resolve(self, reference: str) -> Any:
        if not reference.startswith("#/"):
            return self._anchors.get(reference[1:]) if len(reference) > 1 else self._schema
        target = self._schema
        for step in reference[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and step.isdigit() and int(step) < len(target):
                target = target[int(step)]
            elif isinstance(target, dict):
                target = target.get(step)
        return target


def _in_place(part: dict[str, Any]) -> Iterator[Any]:
    """The subschemas that look at the same place."""
    for key in _LISTS:
        if isinstance(part.get(key), list):
            yield from part[key]
    for key in _SINGLE:
        if key in part:
            yield part[key]
    for key in _MAPS:
        if isinstance(part.get(key), dict):
            yield from part[key].values()


def _below(part: dict[str, Any]) -> Iterator[Any]:
    """The subschemas that look at members and items."""
    for key in ("properties", "patternProperties"):
        if isinstance(part.get(key), dict):
            yield from part[key].values()
    for key in (*_MEMBER, *_ITEM):
        if key in part:
            yield part[key]
    for key in ("prefixItems", "items"):
        if isinstance(part.get(key), list):
            yield from part[key]
        elif key in part:
            yield part[key]


def _defined(part: dict[str, Any]) -> Iterator[Any]:
    for key in _DEFINITIONS:
        if isinstance(part.get(key), dict):
            yield from part[key].values()


def _lookers(here: list[tuple[dict[str, Any], int]], step: str | int) -> list[tuple[dict[str, Any], int]]:
    """Who looks at one member or item: at most these."""
    found: list[tuple[Any, int]] = []
    for part, times in here:
        if isinstance(step, str):
            own = part.get("properties")
            if isinstance(own, dict) and step in own:
                found.append((own[step], times))
            patterns = part.get("patternProperties")
            if isinstance(patterns, dict):
                found += [(child, times) for child in patterns.values()]
            found += [(part[key], times) for key in _MEMBER if key in part]
        else:
            for key in ("prefixItems", "items"):
                listed = part.get(key)
                if isinstance(listed, list):
                    found += [(listed[step], times)] if step < len(listed) else []
                elif listed is not None:
                    found.append((listed, times))
            found += [(part[key], times) for key in _ITEM if key in part]
    return found


def _count(value: Any, limit: int) -> int:
    """How many parts a value has, counted up to a limit."""
    count, pending = 0, [value]
    while pending and count <= limit:
        current = pending.pop()
        count += 1
        if isinstance(current, dict):
            pending += current.values()
        elif isinstance(current, list):
            pending += current
    return count


def _refuse(uri: str) -> Any:
    raise LookupError(f"references outside the schema are not followed: {uri}")
