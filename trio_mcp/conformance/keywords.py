"""Finds the keywords of a JSON Schema, and which of them apply to a value.

Both the schema and its size are a peer's choice, so every walk is bounded. Nothing is matched against a pattern here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import attrs

__all__ = ["Keywords"]

MOST_KEYWORDS: Final = 100
"""The maximum number of keywords of a schema that are counted (arbitrary)."""

MOST_STEPS: Final = 2_000
"""The maximum number of subschemas that are looked at for one value (arbitrary)."""

DEEPEST: Final = 24
"""How deep in a schema keywords are counted (arbitrary)."""

# Keywords that say nothing about a value, or only contain others.
_SILENT: Final = frozenset(
    {"$schema", "$id", "$comment", "$defs", "definitions", "$anchor", "$vocabulary", "title", "description", "default"}
    | {"examples", "deprecated", "readOnly", "writeOnly", "properties", "then", "else", "$dynamicAnchor"}
)
_BRANCHES: Final = ("anyOf", "oneOf")


@attrs.frozen
class _At:
    """A subschema that applies to a value.

    Attributes:
        schema: The subschema.
        pointer: Its place in the schema.
        value: The value.
        place: The place of the value in the whole one, as a JSON pointer.
    """

    schema: Any
    pointer: str
    value: Any
    place: str


class Keywords:
    """The keywords of one schema.

    Args:
        schema: The schema.

    Attributes:
        known: The places of the keywords, as JSON pointers; members that are named count as keywords, too.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.known: tuple[str, ...] = tuple(self._listed())

    def applying(self, value: Any) -> dict[str, tuple[str, str]]:
        """Return the known keywords that apply to a value, each with its name and the place in the value.

        A branch of ``anyOf`` or ``oneOf`` applies if the value has the type, the constants and the members that the
        branch requires. Conditions with ``if`` are not followed.
        """
        found: dict[str, tuple[str, str]] = {}
        known = frozenset(self.known)
        pending = [_At(self._schema, "", value, "")]
        seen: set[tuple[int, int]] = set()
        for _ in range(MOST_STEPS):
            if not pending:
                break
            at = pending.pop()
            # A reference may lead back to where it stands.
            if not isinstance(at.schema, dict) or (id(at.schema), id(at.value)) in seen:
                continue
            seen.add((id(at.schema), id(at.value)))
            for keyword in at.schema:
                if (pointer := _joined(at.pointer, keyword)) in known:
                    found.setdefault(pointer, (keyword, at.place))
            pending += self._below(at, found, known)
        return found

    def _below(self, at: _At, found: dict[str, tuple[str, str]], known: frozenset[str]) -> Iterator[_At]:
        schema, value = at.schema, at.value
        if (target := self._target(schema)) is not None:
            yield _At(target[1], target[0], value, at.place)
        for number, each in enumerate(_list(schema, "allOf")):
            yield _At(each, f"{at.pointer}/allOf/{number}", value, at.place)
        for keyword in _BRANCHES:
            for number, each in enumerate(_list(schema, keyword)):
                pointer = f"{at.pointer}/{keyword}/{number}"
                if self._fits(each, value):
                    if pointer in known:
                        found.setdefault(pointer, (keyword, at.place))
                    yield _At(each, pointer, value, at.place)
        if isinstance(value, dict):
            named = _map(schema, "properties")
            for name, each in value.items():
                if name in named:
                    pointer = _joined(f"{at.pointer}/properties", name)
                    if pointer in known:
                        found.setdefault(pointer, ("properties", _joined(at.place, name)))
                    yield _At(named[name], pointer, each, _joined(at.place, name))
                else:
                    more = schema.get("additionalProperties")
                    yield _At(more, f"{at.pointer}/additionalProperties", each, _joined(at.place, name))
        elif isinstance(value, list):
            prefix = _list(schema, "prefixItems")
            for number, each in enumerate(value):
                is_first = number < len(prefix)
                below = prefix[number] if is_first else schema.get("items")
                pointer = f"{at.pointer}/prefixItems/{number}" if is_first else f"{at.pointer}/items"
                yield _At(below, pointer, each, f"{at.place}/{number}")

    def _listed(self) -> Iterator[str]:
        """Yield the places of all keywords, those near the top first."""
        pending: list[tuple[str, Any]] = [("", self._schema)]
        seen: set[int] = set()
        count = 0
        while pending and count < MOST_KEYWORDS:
            pointer, schema = pending.pop(0)
            if not isinstance(schema, dict) or id(schema) in seen or pointer.count("/") > DEEPEST:
                continue
            seen.add(id(schema))
            own = [_joined(pointer, keyword) for keyword in schema if keyword not in _SILENT]
            below = [
                (_joined(f"{pointer}/properties", name), each) for name, each in _map(schema, "properties").items()
            ]
            branches = [
                (f"{pointer}/{keyword}/{number}", each)
                for keyword in _BRANCHES
                for number, each in enumerate(_list(schema, keyword))
            ]
            for each in [*own, *(name for name, _ in [*below, *branches])][: MOST_KEYWORDS - count]:
                yield each
                count += 1
            pending += [*below, *branches]
            pending += [(f"{pointer}/{name}", schema.get(name)) for name in ("items", "additionalProperties")]
            for name in ("allOf", "prefixItems"):
                pending += [(f"{pointer}/{name}/{number}", each) for number, each in enumerate(_list(schema, name))]
            if (target := self._target(schema)) is not None:
                pending.append(target)

    def _target(self, schema: Mapping[str, Any]) -> tuple[str, Any] | None:
        """Return where a local reference leads, and what is there; None without one."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            return None
        found = self._schema
        for step in reference[2:].split("/") if reference != "#" else ():
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict):
                found = found.get(step)
            elif isinstance(found, list) and step.isascii() and step.isdecimal() and len(step) < 9:
                found = found[int(step)] if int(step) < len(found) else None
            else:
                return None
        return reference[1:], found

    def _fits(self, schema: Any, value: Any) -> bool:
        """Return whether a value may belong to a branch, as far as the branch itself says so without other schemas."""
        if isinstance(schema, dict) and (target := self._target(schema)) is not None:
            schema = target[1]
        if not isinstance(schema, dict):
            return schema is not False
        kinds = schema.get("type", _kinds(value))
        listed = schema.get("enum", [value])
        if not _kinds(value) & {*(kinds if isinstance(kinds, (list, set)) else [kinds])}:
            return False
        if value not in (listed if isinstance(listed, list) else ()) or schema.get("const", value) != value:
            return False
        if not isinstance(value, dict):
            return True
        constants = {
            n: s["const"] for n, s in _map(schema, "properties").items() if isinstance(s, dict) and "const" in s
        }
        return all(isinstance(name, str) and name in value for name in _list(schema, "required")) and all(
            value.get(name, constant) == constant for name, constant in constants.items()
        )


def _kinds(value: Any) -> set[str]:
    match value:
        case None:
            return {"null"}
        case bool():
            return {"boolean"}
        case int():
            return {"integer", "number"}
        case float():
            return {"number", "integer"} if value.is_integer() else {"number"}
        case str():
            return {"string"}
    return {"array"} if isinstance(value, list) else {"object"}


def _joined(pointer: str, name: Any) -> str:
    return f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"


def _map(schema: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = schema.get(name)
    return found if isinstance(found, dict) else {}


def _list(schema: Mapping[str, Any], name: str) -> list[Any]:
    found = schema.get(name)
    return found if isinstance(found, list) else []
