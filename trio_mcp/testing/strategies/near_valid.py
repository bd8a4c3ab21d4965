"""Values that break one keyword of a JSON Schema: conforming ones, spoiled at one place."""

from __future__ import annotations

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import attrs
from hypothesis import strategies as st

from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.testing.strategies.choices import Choices, Drawn, Random
from trio_mcp.testing.strategies.shapes import MAX_ITEMS, MAX_TEXT, TYPES, CannotGenerate, Key, Shape, Shapes
from trio_mcp.testing.strategies.values import DeadEnd, Values, checked

__all__ = ["NearValid", "near_valid"]

MAX_FAULTS = 100
"""Ways to spoil a value that are tried. Chosen."""
MAX_DEPTH = 4
"""Levels at which values are spoiled. Chosen."""
TRIES = 6
"""How often a way is tried before another one takes its place. Chosen."""

_Spoil: TypeAlias = Callable[[Shape, Any, Choices], Any]

_ODD: tuple[Any, ...] = (None, True, 0, -1, 1.5, 10**6, "", "no such value", [], [[]], {}, {"no such name": 0})
"""Values of every type, of which some break what is asked of a place."""
_ODD_TEXTS = ("", " ", "!", "\n", "0", "a", "A", "é", "no such value!", "\x00")
_ODD_NAMES = ("no such name!", "", " ", "0", "A", "é", "x" * 200)


_OF_OTHERS = ("additionalProperties", "unevaluatedProperties", "propertyNames", "patternProperties")


@attrs.frozen
class NearValid:
    """A value that breaks exactly one keyword of a schema.

    Attributes:
        value: The value.
        keyword: The keyword, such as ``"minimum"``.
        place: Where in the value, as a JSON pointer: empty for the whole value.
    """

    value: Any
    keyword: str
    place: str

    def __str__(self) -> str:
        return f"breaks {self.keyword} at {self.place or 'the top'}"


@attrs.frozen(eq=False)
class _Fault:
    """A way to spoil a value at a place."""

    path: tuple[str | int, ...]
    shape: Shape
    kind: Any
    spoil: _Spoil

    def spoiled(self, value: Any, choices: Choices) -> Any:
        """Spoil a value at the place.

        Raises:
            Stuck: If what is there can't be spoiled in this way.
        """
        holder: Any = [value]
        steps = (0, *self.path)
        for step in steps[:-1]:
            holder = holder[step]
        current = holder[steps[-1]]
        # To Python True is an int, but the ways for numbers are not for booleans.
        if self.kind is not object and (isinstance(current, bool) or not isinstance(current, self.kind)):
            raise DeadEnd
        spoiled = holder[steps[-1]] = self.spoil(self.shape, current, choices)
        return value if self.path else spoiled


def near_valid(schema: Any, *, max_leaves: int = 30) -> st.SearchStrategy[NearValid]:
    """Return a strategy of values that break exactly one keyword of a JSON Schema.

    Each is checked before it is given out. ``format`` is not among the keywords, since it is an annotation in 2020-12:
    a receiver may accept what breaks it.

    Args:
        schema: The schema, as plain data.
        max_leaves: About how many scalars a value has at most, if the schema does not demand more.

    Raises:
        CannotGenerate: If no values can be made that conform, or none that don't.
    """
    return _broken(_Spoiled.of(schema, max_leaves))


@st.composite
def _broken(draw: st.DrawFn, spoiled: _Spoiled) -> NearValid:
    return spoiled.draw(Drawn(draw))


@attrs.frozen(eq=False)
class _Spoiled:
    """What makes near-valid values of one schema: the ways that are known to work, each with a value made that way."""

    values: Values
    checker: SchemaValidator
    ways: list[tuple[_Fault, NearValid]]

    @classmethod
    def of(cls, schema: Any, max_leaves: int) -> _Spoiled:
        values = Values.of(schema, max_leaves)
        spoiled = cls(values, checked(schema, formats=False)[1], [])
        # Tried once, ahead: a way that works for a schema is known then, so that drawing never fails, and a schema of
        # which no value can be spoiled is refused when the strategy is made, not in the middle of a test.
        for number, fault in enumerate(itertools.islice(_faults(values.shapes), MAX_FAULTS)):
            found = spoiled.find(fault, Random(random.Random(number)))
            if found is not None:
                spoiled.ways.append((fault, found))
        if not spoiled.ways:
            raise CannotGenerate("found no value that breaks exactly one keyword of it")
        return spoiled

    def draw(self, choices: Choices) -> NearValid:
        fault, known = self.ways[choices.integer(0, len(self.ways) - 1)]
        # Drawing may not fail, and a filter would make Hypothesis give up on schemas that are hard to spoil.
        return self.find(fault, choices) or copy.deepcopy(known)

    def find(self, fault: _Fault, choices: Choices) -> NearValid | None:
        """Spoil a value in one way; None if it does not work."""
        for attempt in range(TRIES):
            try:
                # Smaller each time: the more a value has in it, the likelier it is that the change breaks something
                # else as well.
                leaves = self.values.max_leaves // (attempt + 1)
                value = self.values.make(choices, max_leaves=leaves, plain=True, path=fault.path)
                value = fault.spoiled(value, choices)
                broken = self.checker.broken(value)
            except (DeadEnd, SchemaError, LookupError):
                continue
            # Exactly one: a tool that misses one keyword can't be told from one that validates if another keyword
            # refuses the value.
            if len(broken) == 1:
                return NearValid(value, *broken[0])
        return None


def _faults(shapes: Shapes) -> Iterator[_Fault]:
    """Yield ways to spoil a value, those near the top first."""
    pending: list[tuple[Key, tuple[str | int, ...]]] = [(shapes.root, ())]
    seen: set[tuple[Key, int]] = set()
    while pending:
        key, path = pending.pop(0)
        if (key, len(path)) in seen:
            continue
        seen.add((key, len(path)))
        shape = shapes.shape(key)
        yield from (_Fault(path, shape, kind, spoil) for applies, kind, spoil in _WAYS if applies(shape))
        if shape.groups:
            # Not all: a schema may have hundreds of options, and the limit on faults would be used up before any member
            # is reached.
            pending += [(option, path) for option in shapes.options(key)[:4]]
        if len(path) < MAX_DEPTH:
            pending += [(shapes.member(key, name), (*path, name)) for name in shape.named]
            if any("items" in part or "prefixItems" in part for part in shape.parts):
                # The first item stands for all, except in a tuple, where the others go untested: their faults would be
                # much the same.
                pending.append((shapes.item(key, 0), (*path, 0)))


def _one_of(values: Sequence[Any], choices: Choices) -> Any:
    if not values:
        raise DeadEnd
    return copy.deepcopy(values[choices.integer(0, len(values) - 1)])


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def _odd(_: Shape, __: Any, choices: Choices) -> Any:
    return _one_of(_ODD, choices)


def _spoil_choice(shape: Shape, _: Any, choices: Choices) -> Any:
    texts = [f"{value}!" for value in shape.listed or () if isinstance(value, str)]
    return _one_of(texts or _ODD, choices)


# Near the bound, since off-by-one errors and mixed up `minimum` and `exclusiveMinimum` show only there.
def _spoil_low(shape: Shape, _: Any, choices: Choices) -> Any:
    low, excluded = shape.low or (Fraction(0), False)
    return _number(low - choices.integer(0 if excluded else 1, 5))


def _spoil_high(shape: Shape, _: Any, choices: Choices) -> Any:
    high, excluded = shape.high or (Fraction(0), False)
    return _number(high + choices.integer(0 if excluded else 1, 5))


def _spoil_step(shape: Shape, value: Any, choices: Choices) -> Any:
    step = shape.steps[choices.integer(0, len(shape.steps) - 1)]
    # A whole number where one fits between two multiples: anything else breaks `type` as well, where it is "integer".
    part = Fraction(1) if step.denominator == 1 and step > 1 else step / 2
    return _number(Fraction(str(value)) + part)


def _spoil_fraction(_: Shape, value: Any, __: Choices) -> Any:
    # Only 0.5 away: a change that leaves the bounds would break these too.
    return value + 0.5


def _shorter(shape: Shape, _: Any, choices: Choices) -> Any:
    return choices.text(0, shape.text.low - 1)


def _longer(shape: Shape, value: Any, choices: Choices) -> Any:
    # By what it ends with, which patterns mostly allow.
    return value.ljust(int(shape.text.high) + choices.integer(1, 5), value[-1:] or "a")


def _other_text(shape: Shape, value: Any, choices: Choices) -> Any:
    text = _one_of(_ODD_TEXTS, choices)
    # Within the bounds of the length, so that the pattern alone is broken.
    return text.ljust(shape.text.low, text[-1:] or "!")[: max(int(min(shape.text.high, 100)), 0)]


def _fewer_items(shape: Shape, value: Any, choices: Choices) -> Any:
    return value[: choices.integer(0, shape.min_items - 1)]


def _more_items(shape: Shape, value: Any, _: Choices) -> Any:
    items = value or [0]
    return (items * (int(shape.max_items) // len(items) + 1))[: int(shape.max_items)] + items[:1]


def _again(_: Shape, value: Any, choices: Choices) -> Any:
    return [*value, _one_of(value, choices)]


def _without_contained(_: Shape, value: Any, choices: Choices) -> Any:
    # As many items as before, so that the bounds on their number still hold.
    return [_one_of(_ODD, choices) for _ in value]


def _without_required(shape: Shape, value: Any, choices: Choices) -> Any:
    missing = _one_of(list(shape.required), choices)
    return {name: each for name, each in value.items() if name != missing}


def _with_unknown(_: Shape, value: Any, choices: Choices) -> Any:
    return {**value, _one_of(_ODD_NAMES, choices): _one_of(_ODD, choices)}


def _more_members(shape: Shape, value: Any, _: Choices) -> Any:
    missing = int(shape.max_members) + 1 - len(value)
    # Null conforms to no type but its own, so where further members have a schema this breaks two keywords, and is
    # dropped by the check at the end; where they are free, it is the simplest.
    return {**value, **{f"x{number}": None for number in range(missing)}}


def _fewer_members(shape: Shape, value: Any, _: Choices) -> Any:
    return dict(list(value.items())[: shape.min_members - 1])


def _without_needed(shape: Shape, value: Any, choices: Choices) -> Any:
    needed = shape.needs[_one_of([name for name in shape.needs if name in value], choices)]
    return {name: each for name, each in value.items() if name not in needed}


_WAYS: tuple[tuple[Callable[[Shape], bool], Any, _Spoil], ...] = (
    (
        lambda shape: shape.types != TYPES or bool(shape.groups) or any("not" in part for part in shape.parts),
        object,
        _odd,
    ),
    (lambda shape: shape.listed is not None, object, _spoil_choice),
    (lambda shape: shape.low is not None, object, _spoil_low),
    (lambda shape: shape.high is not None, object, _spoil_high),
    (lambda shape: bool(shape.steps), (int, float), _spoil_step),
    (lambda shape: "integer" in shape.types and "number" not in shape.types, int, _spoil_fraction),
    (lambda shape: shape.text.low > 0, str, _shorter),
    (lambda shape: shape.text.high < MAX_TEXT, str, _longer),
    (lambda shape: bool(shape.text.patterns), str, _other_text),
    (lambda shape: shape.min_items > 0, list, _fewer_items),
    (lambda shape: shape.max_items < MAX_ITEMS, list, _more_items),
    (lambda shape: shape.unique, list, _again),
    (lambda shape: bool(shape.contains), list, _without_contained),
    (lambda shape: bool(shape.required), dict, _without_required),
    (lambda shape: any(keyword in part for part in shape.parts for keyword in _OF_OTHERS), dict, _with_unknown),
    (lambda shape: shape.max_members < MAX_ITEMS, dict, _more_members),
    (lambda shape: shape.min_members > 0, dict, _fewer_members),
    (lambda shape: bool(shape.needs), dict, _without_needed),
)
"""Which shapes and types of values a way to spoil them is for, and the way: mostly it breaks one keyword."""
