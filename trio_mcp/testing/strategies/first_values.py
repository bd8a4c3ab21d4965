"""Lists the values of a schema to try first: those made of examples and defaults, then those at its boundaries."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from trio_mcp.testing.strategies.choices import Simplest
from trio_mcp.testing.strategies.values import DeadEnd, Values

__all__ = ["first_values"]

MOST_VALUES: Final = 16
"""The maximum number of values that are returned (arbitrary)."""

MOST_LISTED: Final = 8
"""How many values of an ``enum`` are tried at most (arbitrary)."""

MOST_OPTIONAL: Final = 16
"""How many optional members a value has at most (arbitrary)."""

LONGEST: Final = 1000
"""The maximum length of a text at a boundary, in characters (arbitrary)."""


@attrs.define
class _Whole(Simplest):
    """Makes the simplest choices, but includes optional members, as many as there may be: a schema may be recursive."""

    left: int = MOST_OPTIONAL

    def integer(self, low: int, high: int) -> int:
        if (low, high) != (0, 1) or not self.left:
            return super().integer(low, high)
        self.left -= 1
        return 1


def first_values(schema: Any) -> list[Any]:
    """Return values of a schema, those first that tell most about the function that takes them; all conform to it.

    The first is made of defaults and examples, and has only what is required; the second has everything. Each of the
    others is the first with one member at a boundary of its own schema.

    Raises:
        CannotGenerate: If no values can be made, as in `from_schema`.
    """
    values = Values(schema, 0)
    bases = []
    for choices in (Simplest(), _Whole()):
        with contextlib.suppress(DeadEnd):
            bases.append(values.make(choices, max_leaves=100, plain=False, exemplary=True))
    found: dict[str, Any] = {}
    bases = [base for base in bases if values.conforms(base)] or [copy.deepcopy(values.simplest)]
    for value in [*bases, *_at_edges(schema, bases[0])]:
        # True and 1 are equal in Python, but have different texts.
        if (text := json.dumps(value, sort_keys=True)) not in found and values.conforms(value):
            found[text] = value
        if len(found) == MOST_VALUES:
            break
    return list(found.values())


def _at_edges(schema: Any, base: Any) -> Iterator[Any]:
    """Yield the values that differ from ``base`` in a single member, which is at a boundary."""
    members = schema.get("properties") if isinstance(schema, Mapping) and isinstance(base, dict) else None
    for name, member in members.items() if isinstance(members, Mapping) else ():
        yield from ({**base, name: edge} for edge in (_edges(member) if isinstance(member, Mapping) else ()))


def _edges(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the values at the boundaries of a schema, as far as its own keywords tell them."""
    listed = schema.get("enum")
    if isinstance(listed, list):
        yield from listed[:MOST_LISTED]
    if schema.get("type") == "boolean":
        yield from (False, True)
    for keyword, step in {"minimum": 0, "exclusiveMinimum": 1, "maximum": 0, "exclusiveMaximum": -1}.items():
        bound = schema.get(keyword)
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            yield bound + step
    for keyword in ("minLength", "maxLength"):
        length = schema.get(keyword)
        if isinstance(length, int) and 0 <= length <= LONGEST:
            yield "a" * length
