"""Makes values that conform to a JSON Schema; each is checked before it is returned."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
from fractions import Fraction
from typing import Any, TypeAlias

import attrs

from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.testing.strategies.choices import Choices, Random, Simplest, one_of
from trio_mcp.testing.strategies.formats import FORMATS
from trio_mcp.testing.strategies.patterns import Pattern, PatternError
from trio_mcp.testing.strategies.shapes import CannotGenerate, Key, Shape, Shapes, TooManySteps, bounded, same

__all__ = ["DeadEnd", "Path", "Values", "checked"]

ATTEMPTS = 12
"""The number of attempts to make a value, after which the simplest value is used. An arbitrary choice."""
PROBES = 60
"""The number of attempts to find a value that conforms: with the simplest choices, then with random ones. An arbitrary
choice."""
DEEPER = 3
"""How many levels a value may have beyond the required ones."""
LONGER = 20
"""How many characters a string may have beyond the required ones."""
WIDER = 4
"""How many items an array may have beyond the required ones."""
MAX_STRETCH = 5_000
"""How many repetitions a pattern may have beyond the required ones. An arbitrary choice."""

_ANY_NAME = "any name that a schema does not know"
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"

Path: TypeAlias = "tuple[str | int, ...]"
"""Names and indexes that lead to a place in a value."""


class DeadEnd(Exception):
    """The choices led to a place that can have no value."""


def checked(schema: Any, *, formats: bool = True) -> tuple[Any, SchemaValidator]:
    """Copy a schema, and make a validator for it.

    Raises:
        CannotGenerate: If the schema is unusable.
    """
    try:
        # Keys consist of the ids of subschemas, so later changes to the caller's schema must not affect the schema that
        # is used.
        schema = copy.deepcopy(schema)
        try:
            return schema, SchemaValidator(schema, formats=formats)
        except SchemaError:
            if not isinstance(schema, dict) or "$schema" in schema:
                raise
            # Some tools use keywords of draft-07 without naming the dialect.
            old = {"$schema": _DRAFT_7, **schema}
            with contextlib.suppress(SchemaError):
                return old, SchemaValidator(old, formats=formats)
            raise
    except SchemaError as exc:
        raise CannotGenerate(str(exc)) from None
    except RecursionError:
        raise CannotGenerate("the schema is nested too deeply") from None


class Values:
    """Makes values that conform to one schema.

    Args:
        schema: The schema.
        max_leaves: About how many leaves a value has at most, if the schema does not require more.

    Raises:
        CannotGenerate: If no values can be made.
    """

    def __init__(self, schema: Any, max_leaves: int) -> None:
        schema, self._checker = checked(schema)
        self.shapes = Shapes(schema)
        self.max_leaves = max_leaves
        self.simplest = self._find_simplest()
        """The simplest value that was found; every run finds the same one."""

    def _find_simplest(self) -> Any:
        problems: list[str] = []
        found: list[Any] = []
        for attempt in range(PROBES):
            # The simplest choices may contradict each other. In that case, the smallest of a few random values is used.
            choices: Choices = Random(random.Random(attempt)) if attempt else Simplest()
            value, problem = self._attempt(choices, attempt % 10, attempt % 2 == 0, attempt > PROBES // 3)
            if problem is not None:
                problems.append(problem)
                continue
            found.append(value)
            if not attempt or len(found) > 5:
                break
        if not found:
            raise CannotGenerate(f"no value that conforms to the schema was found: {problems[0]}")
        # Among values of equal length, the text decides, so that every run finds the same value.
        return min(found, key=lambda value: (len(json.dumps(value)), json.dumps(value)))

    def _attempt(self, choices: Choices, max_leaves: int, plain: bool, wild: bool = False) -> tuple[Any, str | None]:
        """Make a value; return it, and the reason why it does not conform to the schema, or None."""
        try:
            value = self.make(choices, max_leaves=max_leaves, plain=plain, wild=wild)
            return value, self._checker.problem(value)
        except (DeadEnd, SchemaError) as exc:
            return None, str(exc) or "the requirements of the schema exclude each other"

    def draw(self, choices: Choices) -> Any:
        """Make a value that conforms to the schema."""
        for attempt in range(1, ATTEMPTS + 1):
            # Each attempt makes a smaller value. Attempts after the second leave out defaults, examples and unknown
            # members, which are the usual reasons why a value does not conform.
            value, problem = self._attempt(choices, self.max_leaves // attempt, attempt > 2)
            if problem is None:
                return value
        # The simplest value is used, because Hypothesis gives up on a strategy that rejects many values.
        return copy.deepcopy(self.simplest)

    def conforms(self, value: Any) -> bool:
        """Return whether a value conforms to the schema, as far as that can be found out at a bounded cost."""
        try:
            return self._checker.problem(value) is None
        except SchemaError:
            return False

    def make(
        self,
        choices: Choices,
        *,
        max_leaves: int,
        plain: bool,
        wild: bool = False,
        path: Path = (),
        exemplary: bool = False,
    ) -> Any:
        """Make a value that probably conforms to the schema.

        Args:
            choices: The source of all choices.
            max_leaves: About how many leaves the value may have.
            plain: Whether to leave out defaults, examples and unknown members.
            wild: Whether to include types that are allowed, but probably not meant.
            path: A place that must exist in the value.
            exemplary: Whether to use defaults and examples wherever there are some, instead of now and then.

        Raises:
            DeadEnd: If the choices lead to no value.
        """
        # The steps are counted for each value by itself, because a long test draws any number of harmless values.
        self.shapes.rest()
        try:
            making = _Making(self.shapes, choices, max_leaves, plain, wild, exemplary)
            return making.value(self.shapes.root, self.shapes.depth + DEEPER, path)
        except TooManySteps:
            raise DeadEnd from None


@attrs.define(eq=False)
class _Making:
    """Makes one value of a schema, and counts the leaves that the value may still have."""

    shapes: Shapes
    choices: Choices
    leaves: int
    plain: bool
    wild: bool
    exemplary: bool

    def value(self, key: Key, depth: int, path: Path = ()) -> Any:
        shape = self.shapes.shape(key)
        while shape.groups:
            shape = self.shapes.shape(self._option(self.shapes.options(shape), depth, path))
        if shape.impossible is not None:
            raise DeadEnd
        if not path:
            # Examples usually work, so they show whether a tool can succeed. But if more than one value in eight were
            # an example, few faults would be found.
            if shape.samples and not self.plain and not self._few and (self.exemplary or self._chance(8)):
                return copy.deepcopy(one_of(self.choices, shape.samples))
            if shape.listed is not None:
                self.leaves -= 1
                return copy.deepcopy(shape.listed[0] if self._few else one_of(self.choices, shape.listed))
        match self._type(shape, depth, path):
            case "array":
                return self._array(shape, depth, path)
            case "object":
                return self._object(shape, depth, path)
            case "string":
                made: Any = self._text(shape)
            case "integer":
                made = self._integer(shape)
            case "number":
                made = self._number(shape)
            case kind:
                made = bool(self.choices.integer(0, 1)) if kind == "boolean" else None
        self.leaves -= 1
        return made

    @property
    def _few(self) -> bool:
        """Whether the value must have no further optional parts."""
        return self.leaves <= 0

    def _chance(self, one_in: int) -> bool:
        return self.choices.integer(0, one_in - 1) == one_in - 1

    def _option(self, options: list[Key], depth: int, path: Path) -> Key:
        if path:
            options = [option for option in options if _container(path) in self.shapes.shape(option).types]
        if self._few:
            option = self.shapes.smallest(options, depth)
        else:
            # One draw is enough, however many options are impossible: if the chosen option is impossible, the next
            # possible one is used.
            first = self.choices.integer(0, max(len(options) - 1, 0))
            possible = (each for each in options[first:] + options[:first] if self.shapes.size(each, depth) < math.inf)
            option = next(possible, None)
        if option is None:
            raise DeadEnd
        return option

    def _type(self, shape: Shape, depth: int, path: Path) -> str:
        types = shape.types
        if path:
            types = tuple({_container(path)} & {*types})
        elif shape.likely and not self.wild and (self.plain or self._few or not self._chance(10)):
            types = shape.likely
        possible = [kind for kind in types if self.shapes.size_of(shape, kind, depth) < math.inf]
        if not possible:
            raise DeadEnd
        if self._few:
            return min(possible, key=lambda kind: self.shapes.size_of(shape, kind, depth))
        return one_of(self.choices, possible)

    # --- scalars -----------------------------------------------------------------------------------------------------

    def _between(self, low: int, high: int) -> int:
        if low > high:
            raise DeadEnd
        return self.choices.integer(low, high)

    def _integer(self, shape: Shape) -> int:
        low, high = shape.whole_bounds
        if shape.steps:
            # The least common multiple of the numerators is a whole multiple of every step.
            step = math.lcm(*(each.numerator for each in shape.steps))
            return self._between(math.ceil(Fraction(low, step)), math.floor(Fraction(high, step))) * step
        # About half of the numbers are kept small, because a tool may count to the number, or wait for that many
        # seconds.
        is_small = low <= 0 and high >= 100 and self._chance(2)
        return self.choices.integer(0, 100) if is_small else self._between(low, high)

    def _number(self, shape: Shape) -> int | float:
        step = shape.steps[0] if shape.steps else Fraction(1)
        low, high = bounded(shape.low and shape.low[0] / step, shape.high and shape.high[0] / step)
        if shape.steps:
            for _ in range(4):
                made = self._between(math.ceil(low), math.floor(high)) * step
                # Many validators divide floats, and refuse 36.01 because 36.01 / 0.01 is not a whole number in floats.
                if made.denominator == 1 or (float(made) / float(step)).is_integer():
                    return int(made) if made.denominator == 1 else float(made)
            raise DeadEnd
        if shape.whole_bounds[0] <= shape.whole_bounds[1] and self.choices.integer(0, 1) == 0:
            return self._integer(shape)
        start, end = float(low), float(high)
        if shape.low is not None and shape.low[1]:
            start = math.nextafter(start, math.inf)
        if shape.high is not None and shape.high[1]:
            end = math.nextafter(end, -math.inf)
        if start > end:
            raise DeadEnd
        return self.choices.number(start, end)

    def _text(self, shape: Shape) -> str:
        if shape.patterns:
            return self._matching(shape)
        for name in shape.formats:
            if name in FORMATS:
                return FORMATS[name](self.choices)
        low, high = shape.length
        return self.choices.text(low, low if self._few else int(min(high, low + LONGER)))

    def _matching(self, shape: Shape) -> str:
        low, high = shape.length
        source, pattern = next(iter(shape.patterns.items()))
        most = int(min(high, MAX_STRETCH))
        # The usual stretch is tried first, then those that may reach the least length, and finally 0.
        for stretch in (0,) if self._few and not low else (min(8, most), low, min(low + 8, most), 0):
            try:
                made = pattern.text(self.choices, stretch)
            except PatternError:
                continue
            if low <= len(made) <= high and all(self.shapes.matches(each, made) for each in shape.patterns):
                return made
            # Most patterns that end in a repetition also match a string that repeats its last character.
            longer = made.ljust(low, made[-1:] or "a")
            if len(made) < low and self.shapes.matches(source, longer):
                return longer
        greatest = "any" if high == math.inf else int(high)
        sources = " and ".join(map(repr, shape.patterns))
        raise DeadEnd(f"no text of {low} to {greatest} characters was found for {sources}")

    # --- containers --------------------------------------------------------------------------------------------------

    def _array(self, shape: Shape, depth: int, path: Path) -> list[Any]:
        # An array on the path must be long enough to contain the item that the next step leads to.
        least = max(shape.least_items, int(path[0]) + 1 if path else 0)
        count = least
        if not self._few and depth > 0:
            usual = max(least, shape.prefix)
            count = self.choices.integer(least, int(min(usual + WIDER, max(shape.items[1], least))))
        items: list[Any] = []
        for index in range(count):
            below = self.shapes.item(shape, index)
            # An optional item is left out if earlier items have used up the leaves, or if it would make the value
            # impossible.
            if index >= least and (self._few or self.shapes.size(below, depth - 1) == math.inf):
                break
            inner = path[1:] if path and path[0] == index else ()
            try:
                items.append(self._item(below, depth, items if shape.unique else None, inner))
            except DeadEnd:
                if index < least:
                    raise
                break
        return items

    def _item(self, key: Key, depth: int, others: list[Any] | None, path: Path) -> Any:
        """Make an item, which differs from ``others`` if they are given.

        Raises:
            DeadEnd: If no such item was found.
        """
        if others is None:
            return self.value(key, depth - 1, path)
        for _ in range(10):
            item = self.value(key, depth - 1, path)
            if not any(same(item, other) for other in others):
                return item
            self.leaves = max(self.leaves, 1)  # without leaves, each attempt would give the simplest item again
        raise DeadEnd(f"not enough different items were found: only {len(others)}")

    def _object(self, shape: Shape, depth: int, path: Path) -> dict[str, Any]:
        names = dict.fromkeys([*shape.required, *map(str, path[:1])])
        least, most = shape.members
        optional = [name for name in shape.named if name not in names and self._possible(shape, name, depth)]
        for name in optional:
            if len(names) < most and not self._few and self.choices.integer(0, 1):
                names[name] = None
        for name in optional:
            if len(names) < least:
                names[name] = None
        pending = list(names) if shape.needs else []
        while pending:
            needed = [name for name in shape.needs.get(pending.pop(), ()) if name not in names]
            names |= dict.fromkeys(needed)
            pending += needed
        self._add_others(shape, depth, names)
        rest = {path[0]: path[1:]} if path else {}
        return {name: self.value(self.shapes.member(shape, name), depth - 1, rest.get(name, ())) for name in names}

    def _possible(self, shape: Shape, name: str, depth: int) -> bool:
        return self.shapes.size(self.shapes.member(shape, name), depth - 1) < math.inf

    def _add_others(self, shape: Shape, depth: int, names: dict[str, None]) -> None:
        """Add members that the schema does not name."""
        least = shape.members[0] - len(names)
        most = least
        if depth > 0 and not self._few and not self.plain:
            most = 3 if _is_map(shape) else 1 if self._chance(10) else 0
        most = int(min(max(most, least), shape.members[1] - len(names)))
        if most <= 0:
            return
        patterns = self.shapes.name_patterns(shape)
        if not patterns and not self._possible(shape, _ANY_NAME, depth):
            if least > 0:
                raise DeadEnd("the schema forbids members that it requires")
            return
        count = self.choices.integer(max(least, 0), most)
        # There are four attempts for each name, because some names are taken or forbidden. That is enough, unless the
        # schema allows hardly any names.
        for attempt in range(count * 4):
            if count <= 0:
                break
            name = self._name(shape, patterns, depth, attempt)
            if name is None or name in names or name in shape.named:
                continue
            if self._possible(shape, name, depth):
                names[name] = None
                count -= 1
        if len(names) < shape.members[0]:
            raise DeadEnd

    def _name(self, shape: Shape, patterns: list[Pattern], depth: int, attempt: int) -> str | None:
        # Every fourth name ignores the patterns, since too few names may match them.
        if patterns and attempt % 4 != 3:
            try:
                return one_of(self.choices, patterns).text(self.choices, 4)
            except PatternError:
                return None
        asked = self.shapes.names(shape)
        if self.shapes.size(asked, 1) == math.inf:
            return None
        if len(asked) > 1:
            name = self.value(asked, 1)
            return name if isinstance(name, str) else None
        return f"x{attempt}" if self._few else self.choices.text(1, 8)


def _container(path: Path) -> str:
    """Return the type of value that the first step of a path leads into."""
    return "object" if isinstance(path[0], str) else "array"


def _is_map(shape: Shape) -> bool:
    """Return whether an object is meant to have members that the schema does not name."""
    keywords = {"patternProperties", "propertyNames"}
    return not shape.named or any(
        isinstance(part.get("additionalProperties"), dict) or not keywords.isdisjoint(part) for part in shape.parts
    )
