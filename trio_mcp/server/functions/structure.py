"""Finds the structure of a type: the key under which all uses of the type share what pydantic makes for it."""

from __future__ import annotations

import datetime
import decimal
import types
import uuid
from collections.abc import Hashable, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel

from trio_mcp import _attrs as attrs

__all__ = ["Structure", "Unclear", "kind_of"]

_LEAVES = frozenset({
    str, int, float, bool, type(None), None, Any, object, list, dict,
    datetime.date, datetime.datetime, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal,
})  # fmt: skip
_CONTAINERS = (list, dict, set, frozenset)
_UNIONS = (Union, types.UnionType)
_LISTED = (str, int, bool, type(None))
# Each of these constraints has a single number, in the attribute that the dict names.
_CONSTRAINTS: dict[type, str] = {
    annotated_types.Ge: "ge",
    annotated_types.Gt: "gt",
    annotated_types.Le: "le",
    annotated_types.Lt: "lt",
    annotated_types.MultipleOf: "multiple_of",
    annotated_types.MinLen: "min_length",
    annotated_types.MaxLen: "max_length",
}


class Unclear(Exception):
    """Raised if it is uncertain how pydantic would treat a type."""


@attrs.frozen
class Structure:
    """A wrapper of a type, equal to the wrappers of all types of the same structure.

    Types themselves can't be compared for this purpose: ``int | str`` equals ``str | int``, and an ``Annotated`` with
    ``ge=1`` equals one with ``ge=1.0``, but pydantic treats them differently.

    Attributes:
        annotation: The type.
        constraints: Further constraints on values of the type.
    """

    annotation: Any = attrs.field(eq=False)
    constraints: tuple[Any, ...] = attrs.field(eq=False)
    _structure: Hashable


def kind_of(annotation: Any, constraints: Sequence[Any] = (), *, models: bool = False) -> Structure:
    """Return the structure of a type.

    Args:
        annotation: The type.
        constraints: Further constraints on values of the type, such as ``annotated_types.Ge(1)``.
        models: Whether the type may contain pydantic models.

    Raises:
        Unclear: If pydantic might treat another type of the same structure differently.
        TypeError: If the type, or a part of it, is not hashable.
    """
    structure = _structure(annotation, models), *map(_constraint, constraints)
    return Structure(annotation, tuple(constraints), structure)


def _structure(kind: Any, models: bool) -> Hashable:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is None:
        if kind in _LEAVES:
            return kind  # type: ignore[no-any-return]
        if models and isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind, kind.__pydantic_validator__  # a model that is rebuilt gets another validator
    elif origin is Literal:
        if all(type(value) in _LISTED for value in parts):
            return origin, *((type(value), value) for value in parts)  # with the types, because True equals 1
    elif origin is Annotated:
        return origin, _structure(parts[0], models), *map(_constraint, parts[1:])
    elif parts and origin in _CONTAINERS:
        return origin, *(_structure(part, models) for part in parts)
    elif origin in _UNIONS:
        return Union, *(_structure(part, models) for part in parts)
    raise Unclear


def _constraint(constraint: Any) -> Hashable:
    name = _CONSTRAINTS.get(type(constraint))
    value = getattr(constraint, name) if name else None
    if type(value) not in (int, float):
        raise Unclear
    return type(constraint), repr(value)  # compared as text, because 1.0 == 1, but the two constraints differ
