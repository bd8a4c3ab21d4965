"""Makes values that break exactly one keyword of a JSON Schema, by changing a conforming value at one place."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from trio_mcp.schema.validator import SchemaError
from trio_mcp.testing.strategies.choices import Choices, Drawn, Random, one_of
from trio_mcp.testing.strategies.shapes import MAX_ITEMS, MAX_TEXT, TYPES, CannotGenerate, Key, Shape, Shapes
from trio_mcp.testing.strategies.values import DeadEnd, Path, Values, checked

__all__ = ["NearValid", "near_valid"]

MAX_FAULTS = 100
"""The maximum number of faults that are tried for one schema. An arbitrary choice."""
MAX_DEPTH = 4
"""The maximum depth at which a value is made invalid. An arbitrary choice."""
TRIES = 6
"""The maximum number of attempts to make a value invalid in one way. An arbitrary choice."""

_ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**6, "", "no such value", [], [[]], {}, {"no such name": 0})
"""Values of every type, at least one of which is usually invalid at a given place."""
_ODD_TEXTS = ("", " ", "!", "\n", "0", "a", "A", "é", "no such value!", "\x00")
_ODD_NAMES = ("no such name!", "", " ", "0", "A", "é", "x" * 200)
_OF_OTHERS = {"additionalProperties", "unevaluatedProperties", "propertyNames", "patternProperties"}


@attrs.frozen
class NearValid:
    """A value that breaks exactly one keyword of a schema.

    Attributes:
        value: The value.
        keyword: The keyword, such as ``"minimum"``.
        place: The place in the value that breaks the keyword, as a JSON pointer: empty for the whole value.
    """

    value: Any
    keyword: str
    place: str

    def __str__(self) -> str:
        return f"breaks {self.keyword} at {self.place or 'the top'}"


@attrs.frozen(eq=False)
class _Way:
    """A way to make a conforming value invalid.

    Attributes:
        applies: Returns whether a shape has a keyword that this way may break.
        kind: The types of the values that this way can make invalid.
        spoil: Returns an invalid replacement for a value.
    """

    applies: Callable[[Shape], bool]
    kind: type | tuple[type, ...]
    spoil: Callable[[Shape, Any, Choices], Any]


_Fault: TypeAlias = tuple[Path, Shape, _Way]


def near_valid(schema: Any, *, max_leaves: int = 30) -> st.SearchStrategy[NearValid]:
    """Return a strategy of values that break exactly one keyword of a JSON Schema.

    Each value is checked before it is returned. ``format`` is never broken, because it is an annotation in 2020-12: a
    receiver may accept any string.

    Args:
        schema: The schema, as plain data.
        max_leaves: About how many scalars a value has at most, if the schema does not require more.

    Raises:
        CannotGenerate: If no conforming value can be made, or no value that breaks exactly one keyword.
    """
    return _broken(_Spoiled(schema, max_leaves))


@st.composite
def _broken(draw: st.DrawFn, spoiled: _Spoiled) -> NearValid:
    return spoiled.draw(Drawn(draw))


class _Spoiled:
    """Makes values that break exactly one keyword of one schema."""

    def __init__(self, schema: Any, max_leaves: int) -> None:
        self._values = Values(schema, max_leaves)
        self._checker = checked(schema, formats=False)[1]
        # Each fault is tried once before the first draw, to find out which ones work. Therefore draws never fail, and a
        # schema for which no fault works is refused here rather than in the middle of a test.
        faults = itertools.islice(_faults(self._values.shapes), MAX_FAULTS)
        found = [(fault, self._find(fault, Random(random.Random(number)))) for number, fault in enumerate(faults)]
        self._known = [(fault, value) for fault, value in found if value is not None]
        if not self._known:
            raise CannotGenerate("no value that breaks exactly one keyword of the schema was found")

    def draw(self, choices: Choices) -> NearValid:
        fault, known = one_of(choices, self._known)
        # The known value is a fallback: if failures were filtered out instead, Hypothesis would give up on schemas
        # whose values are hard to make invalid.
        return self._find(fault, choices) or copy.deepcopy(known)

    def _find(self, fault: _Fault, choices: Choices) -> NearValid | None:
        """Make a value invalid in one way; return None if no attempt breaks exactly one keyword."""
        path, shape, way = fault
        for attempt in range(1, TRIES + 1):
            try:
                # Each attempt makes a smaller value, in which the change is less likely to break a second keyword.
                leaves = self._values.max_leaves // attempt
                holder: Any = [self._values.make(choices, max_leaves=leaves, plain=True, path=path)]
                value = _spoiled(holder, path, shape, way, choices)
                broken = self._checker.broken(value)
            except (DeadEnd, SchemaError, LookupError):
                continue
            # The value must break only one keyword: if it broke two, a tool that checks only one of them would refuse
            # the value as well.
            if len(broken) == 1:
                return NearValid(value, *broken[0])
        return None


def _spoiled(whole: list[Any], path: Path, shape: Shape, way: _Way, choices: Choices) -> Any:
    """Make the only item of a list invalid at a place within that item, and return the item.

    Raises:
        DeadEnd: If the value at the place is not of a type that ``way`` applies to.
    """
    holder: Any = whole
    *steps, last = (0, *path)
    for step in steps:
        holder = holder[step]
    current = holder[last]
    # A boolean is checked for separately, because in Python True is an int.
    if way.kind is not object and (isinstance(current, bool) or not isinstance(current, way.kind)):
        raise DeadEnd
    holder[last] = way.spoil(shape, current, choices)
    return whole[0]


def _faults(shapes: Shapes) -> Iterator[_Fault]:
    """Yield the faults that values of a schema can have, those near the top of the value first."""
    pending: list[tuple[Key, Path]] = [(shapes.root, ())]
    seen: set[tuple[Key, int]] = set()
    while pending:
        key, path = pending.pop(0)
        if (key, len(path)) in seen:
            continue
        seen.add((key, len(path)))
        shape = shapes.shape(key)
        yield from ((path, shape, way) for way in _WAYS if way.applies(shape))
        if shape.groups:
            # Only a few options are followed, because some schemas have hundreds, which would use up the limit on
            # faults.
            pending += [(option, path) for option in shapes.options(shape)[:4]]
        if len(path) < MAX_DEPTH:
            pending += [(shapes.member(shape, name), (*path, name)) for name in shape.named]
            if any("items" in part or "prefixItems" in part for part in shape.parts):
                # Only the first item is looked at: the faults of other items would be much the same, unless the array
                # is a tuple.
                pending.append((shapes.item(shape, 0), (*path, 0)))


def _one_of(values: Sequence[Any], choices: Choices) -> Any:
    if not values:
        raise DeadEnd
    return copy.deepcopy(one_of(choices, values))


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _spoil_choice(shape: Shape, _: Any, choices: Choices) -> Any:
    texts = [f"{value}!" for value in shape.listed or () if isinstance(value, str)]
    return _one_of(texts or _ODD, choices)


def _spoil_bound(name: str, sign: int) -> Callable[[Shape, Any, Choices], Any]:
    def spoil(shape: Shape, _: Any, choices: Choices) -> Any:
        bound, excluded = getattr(shape, name)
        # The value is near the bound, because off-by-one errors, and `minimum` in place of `exclusiveMinimum`, show
        # only there.
        return _number(bound + sign * choices.integer(0 if excluded else 1, 5))

    return spoil


def _spoil_step(shape: Shape, value: Any, choices: Choices) -> Any:
    step = one_of(choices, shape.steps)
    # If a whole number fits between two multiples, it is the one added, so that the value keeps the type "integer".
    part = Fraction(1) if step.denominator == 1 and step > 1 else step / 2
    return _number(Fraction(str(value)) + part)


def _longer(shape: Shape, value: Any, choices: Choices) -> Any:
    # The last character is repeated, because most patterns also match the string that results.
    return value.ljust(int(shape.length[1]) + choices.integer(1, 5), value[-1:] or "a")


def _other_text(shape: Shape, value: Any, choices: Choices) -> Any:
    text = _one_of(_ODD_TEXTS, choices)
    # The length of the string stays within its limits, so that only the pattern is broken.
    return text.ljust(shape.length[0], text[-1:] or "!")[: max(int(min(shape.length[1], 100)), 0)]


def _more_items(shape: Shape, value: Any, _: Choices) -> Any:
    items, most = value or [0], int(shape.items[1])
    return (items * (most // len(items) + 1))[:most] + items[:1]


def _more_members(shape: Shape, value: Any, _: Choices) -> Any:
    # If unknown members have a schema, null most likely breaks a second keyword. The final check then rejects the
    # value.
    return value | {f"x{number}": None for number in range(int(shape.members[1]) + 1 - len(value))}


def _without(names: Sequence[str], value: Any) -> Any:
    return {name: each for name, each in value.items() if name not in names}


def _without_needed(shape: Shape, value: Any, choices: Choices) -> Any:
    return _without(shape.needs[_one_of([name for name in shape.needs if name in value], choices)], value)


def _is_narrow(shape: Shape) -> bool:
    return shape.types != TYPES or bool(shape.groups) or any("not" in part for part in shape.parts)


_WAYS = (
    _Way(_is_narrow, object, lambda _, __, choices: _one_of(_ODD, choices)),
    _Way(lambda shape: shape.listed is not None, object, _spoil_choice),
    _Way(lambda shape: shape.low is not None, object, _spoil_bound("low", -1)),
    _Way(lambda shape: shape.high is not None, object, _spoil_bound("high", 1)),
    _Way(lambda shape: bool(shape.steps), (int, float), _spoil_step),
    # A half is added, because the result is still within most bounds.
    _Way(lambda shape: "integer" in shape.types and "number" not in shape.types, int, lambda _, value, __: value + 0.5),
    _Way(lambda shape: shape.length[0] > 0, str, lambda shape, _, choices: choices.text(0, shape.length[0] - 1)),
    _Way(lambda shape: shape.length[1] < MAX_TEXT, str, _longer),
    _Way(lambda shape: bool(shape.patterns), str, _other_text),
    _Way(
        lambda shape: shape.items[0] > 0,
        list,
        lambda shape, value, choices: value[: choices.integer(0, shape.items[0] - 1)],
    ),
    _Way(lambda shape: shape.items[1] < MAX_ITEMS, list, _more_items),
    _Way(lambda shape: shape.unique, list, lambda _, value, choices: [*value, _one_of(value, choices)]),
    # Each item is replaced, so that the number of items stays within its limits.
    _Way(lambda shape: bool(shape.contains), list, lambda _, value, choices: [_one_of(_ODD, choices) for _ in value]),
    _Way(
        lambda shape: bool(shape.required),
        dict,
        lambda shape, value, choices: _without([_one_of([*shape.required], choices)], value),
    ),
    _Way(
        lambda shape: not all(_OF_OTHERS.isdisjoint(part) for part in shape.parts),
        dict,
        lambda _, value, choices: {**value, _one_of(_ODD_NAMES, choices): _one_of(_ODD, choices)},
    ),
    _Way(lambda shape: shape.members[1] < MAX_ITEMS, dict, _more_members),
    _Way(
        lambda shape: shape.members[0] > 0,
        dict,
        lambda shape, value, _: dict(list(value.items())[: shape.members[0] - 1]),
    ),
    _Way(lambda shape: bool(shape.needs), dict, _without_needed),
)
"""All the ways to make a value invalid. Each usually breaks one keyword of the shapes that it applies to."""
