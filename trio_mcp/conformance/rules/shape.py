"""Checks whether a JSON value has the shape that the schema of a revision requires.

Elsewhere, the library is as lenient as it can be with a peer's messages. Here the same models are applied strictly, as
one revision defines them: types are JSON's, a field that the schema requires must be present, and null is not the
same as absent. Fields that a schema does not define may be present: the schemas allow them.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from trio_mcp.types import Annotations, CallToolResult, ModelPreferences, Tool
from trio_mcp.types._base import WireModel, class_span, field_span
from trio_mcp.types.versions import at_least

__all__ = ["flaw", "json_type"]

Check: TypeAlias = Callable[[Any, str], str | None]
"""A function that takes a value and its path in a message, and returns what is wrong in one line, or None."""

# These members may be null, although the schema doesn't say so, because the page on pagination mentions null cursors
# (2026-07-28 server/utilities/pagination, Implementation Guidelines).
NULLABLE: Final = {"nextCursor"}

# These members are left to rules of their own, which say more about what is wrong: one fault should break only one
# rule.
ELSEWHERE: Final = {"resultType", "ttlMs", "cacheScope"}


def flaw(model: type[WireModel], value: Any, revision: str, place: str = "") -> str | None:
    """Say where a JSON value departs from a model, as a revision defines it; return None if the value conforms."""
    return _compiled(model, revision)(value, place)


def json_type(value: Any) -> str:
    """Return JSON's name for the type of a value, with its article, such as ``a string``."""
    if value is None:
        return "null"
    names = {bool: "a boolean", str: "a string", int: "a number", float: "a number", list: "an array"}
    return names.get(type(value), "an object")


# The checks are cached by model and revision, because a long transcript needs the same few for every message.
@functools.cache
def _compiled(model: type[WireModel], revision: str) -> Check:
    if not model.__pydantic_fields_complete__:
        model.model_rebuild()
    name_of: Any = model.model_config["alias_generator"]
    fields = []
    for name, info in model.model_fields.items():
        span, wire = field_span(model, name), name_of(name)
        if revision in span.revisions and wire not in ELSEWHERE:
            # An optional field that is None in Python must be absent in JSON, not null. Only a required field may be
            # null, if its type allows that.
            null = info.is_required() and types.NoneType in typing.get_args(info.annotation)
            fields.append((wire, revision in span.required, null, _check(info.annotation, revision)))
    extra = EXTRAS.get(model)

    def check(value: Any, place: str) -> str | None:
        if not isinstance(value, dict):
            return f"{place or 'it'} must be an object, not {json_type(value)}"
        for wire, required, null, inner in fields:
            here = f"{place}.{wire}" if place else wire
            if wire not in value:
                if required:
                    return f"{here} is missing"
            elif value[wire] is not None or not (null or wire in NULLABLE):
                problem = inner(value[wire], here)
                if problem is not None:
                    return problem
        return extra(value, place, revision) if extra is not None else None

    return check


def _check(kind: Any, revision: str) -> Check:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _check(arguments[0], revision)
    if origin in (typing.Union, types.UnionType):
        return _union(_flat(kind), revision)
    if origin is Literal:
        return _literal(arguments)
    if origin is list:
        return _list(_check(arguments[0], revision))
    if origin is dict:
        return _dict(_check(arguments[1], revision))
    if isinstance(kind, type) and issubclass(kind, WireModel):
        # The model's check is looked up only when it is called: models refer to each other in cycles, so building all
        # checks at once would never end.
        return lambda value, place: flaw(kind, value, revision, place)
    return _SIMPLE.get(kind, _anything)


def _flat(kind: Any) -> list[Any]:
    """Return the members of a union, including those of nested unions, but not None."""
    if typing.get_origin(kind) is Annotated:
        return _flat(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [arm for each in typing.get_args(kind) for arm in _flat(each)]
    return [] if kind is types.NoneType else [kind]


def _union(arms: list[Any], revision: str) -> Check:
    models = [arm for arm in arms if isinstance(arm, type) and issubclass(arm, WireModel)]
    if not models:
        return _any_of([_check(arm, revision) for arm in arms])
    # A plain dict in a union with models is left out: it only makes the library tolerant, and no schema has such an
    # alternative.
    others = [_check(arm, revision) for arm in arms if arm not in models and typing.get_origin(arm) is not dict]
    known = [(model, _tags(model), _check(model, revision)) for model in models if revision in class_span(model)]

    def check(value: Any, place: str) -> str | None:
        if not isinstance(value, dict):
            return _any_of([*others, *[each for _, _, each in known]])(value, place)
        # The members of the union are chosen by their tags first, so that the problem is about the member that was
        # meant, not about the union's first member.
        fitting = [each for _, tags, each in known if all(value.get(key) in values for key, values in tags.items())]
        if not fitting:
            key = next((key for _, tags, _ in known for key in tags), "type")
            choices = sorted({str(choice) for _, tags, _ in known for choice in tags.get(key, ())})
            return f"{place or 'it'} must have one of the {key} values {', '.join(choices)}, not {value.get(key)!r:.60}"
        return _any_of(fitting)(value, place)

    return check


def _tags(model: type[WireModel]) -> dict[str, tuple[Any, ...]]:
    """Return the values that the fields ``type`` and ``method`` of a model may have, if it has such constant fields."""
    if not model.__pydantic_fields_complete__:
        model.model_rebuild()
    name_of: Any = model.model_config["alias_generator"]
    return {
        name_of(name): typing.get_args(info.annotation)
        for name, info in model.model_fields.items()
        if typing.get_origin(info.annotation) is Literal and name in ("type", "method")
    }


def _any_of(checks: Sequence[Check]) -> Check:
    def check(value: Any, place: str) -> str | None:
        problems = [each(value, place) for each in checks]
        return None if None in problems else next(iter(problems), None)

    return check


def _literal(choices: tuple[Any, ...]) -> Check:
    def check(value: Any, place: str) -> str | None:
        if any(type(value) is type(choice) and value == choice for choice in choices):
            return None
        return f"{place or 'it'} must be {' or '.join(map(repr, choices))}, not {value!r:.60}"

    return check


def _list(inner: Check) -> Check:
    def check(value: Any, place: str) -> str | None:
        if not isinstance(value, list):
            return f"{place or 'it'} must be an array, not {json_type(value)}"
        return next(filter(None, (inner(each, f"{place}[{i}]") for i, each in enumerate(value))), None)

    return check


def _dict(inner: Check) -> Check:
    def check(value: Any, place: str) -> str | None:
        if not isinstance(value, dict):
            return f"{place or 'it'} must be an object, not {json_type(value)}"
        return next(filter(None, (inner(each, f"{place}.{key:.60}") for key, each in value.items())), None)

    return check


def _simple(fits: Callable[[Any], bool], name: str) -> Check:
    return lambda value, place: None if fits(value) else f"{place or 'it'} must be {name}, not {json_type(value)}"


def _anything(value: Any, place: str) -> str | None:
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# In JSON Schema, 1.0 is an integer.
_SIMPLE: Final[dict[Any, Check]] = {
    str: _simple(lambda value: isinstance(value, str), "a string"),
    bool: _simple(lambda value: isinstance(value, bool), "a boolean"),
    int: _simple(lambda value: _is_number(value) and math.isfinite(value) and value == int(value), "an integer"),
    float: _simple(_is_number, "a number"),
}


# --- what the models don't check --------------------------------------------------------------------------------------


def _tool(value: dict[str, Any], place: str, revision: str) -> str | None:
    # Since 2026-07-28 structured content may be any JSON value, so a tool's output schema need not be that of an
    # object.
    schemas = ["inputSchema"] if at_least(revision, "2026-07-28") else ["inputSchema", "outputSchema"]
    for key in schemas:
        if key in value and value[key].get("type") != "object":
            return f"{place}.{key}.type must be 'object', not {value[key].get('type')!r:.60}"
    return None


def _from_0_to_1(*keys: str) -> Callable[[dict[str, Any], str, str], str | None]:
    def check(value: dict[str, Any], place: str, revision: str) -> str | None:
        wrong = [key for key in keys if key in value and not 0 <= value[key] <= 1]
        return f"{place}.{wrong[0]} must be from 0 to 1, not {value[wrong[0]]}" if wrong else None

    return check


def _tool_result(value: dict[str, Any], place: str, revision: str) -> str | None:
    content = value.get("structuredContent", {})
    if at_least(revision, "2026-07-28") or not at_least(revision, "2025-06-18") or isinstance(content, dict):
        return None
    return f"structuredContent must be an object, not {json_type(content)}"


EXTRAS: Final[dict[type[WireModel], Callable[[dict[str, Any], str, str], str | None]]] = {
    Tool: _tool,
    Annotations: _from_0_to_1("priority"),
    ModelPreferences: _from_0_to_1("costPriority", "speedPriority", "intelligencePriority"),
    CallToolResult: _tool_result,
}
