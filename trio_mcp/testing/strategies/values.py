"""Values that conform to a JSON Schema, made from choices; each is checked before it is given out."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import attrs

from trio_mcp.schema.validator import SchemaError, SchemaValidator
from trio_mcp.testing.strategies.choices import Choices, Random, Simplest
from trio_mcp.testing.strategies.formats import FORMATS
from trio_mcp.testing.strategies.patterns import Pattern, PatternError
from trio_mcp.testing.strategies.shapes import (
    FAR,
    CannotGenerate,
    Key,
    Shape,
    Shapes,
    TooManySteps,
    least_items,
    prefix_length,
    same,
    whole_bounds,
)

__all__ = ["Values"]

ATTEMPTS = 12
"""How often a value is made before the simplest one takes its place. Chosen."""
PROBES = 60
"""How many random values are made to find one that conforms, if the simplest does not. Chosen."""
DEEPER = 3
"""Levels that a value may have beyond those that it must have."""
LONGER = 20
"""Characters that a text may have beyond those that it must have."""
WIDER = 4
"""Items that an array may have beyond those that it must have."""
MAX_STRETCH = 5_000
"""How often a repetition in a pattern is repeated at most. Chosen."""

_ANY_NAME = "any name that a schema does not know"
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"


class DeadEnd(Exception):
    """The choices led to a place where no value is possible."""


@attrs.define(eq=False)
class Values:
    """What makes values of one schema.

    Args:
        schema: The schema.
        max_leaves: About how many leaves a value has at most, if the schema does not demand more.

    Raises:
        CannotGenerate: If no values can be made.
    """

    shapes: Shapes
    checker: SchemaValidator
    max_leaves: int
    simplest: Any = None

    @classmethod
    def of(cls, schema: Any, max_leaves: int) -> Values:
        """Prepare to make values of a schema.

        Raises:
            CannotGenerate: If that is impossible.
        """
        schema, checker = checked(schema)
        values = cls(Shapes(schema), checker, max_leaves)
        values.simplest = values.find_simplest()
        return values

    def find_simplest(self) -> Any:
        """Find the simplest value; always the same one."""
        problems: list[str] = []
        found: list[Any] = []
        for attempt in range(PROBES):
            # Where the simplest choices contradict each other, the simplest of some random values.
            choices: Choices = Random(random.Random(attempt)) if attempt else Simplest()
            try:
                wild = attempt > PROBES // 3
                value = self.make(choices, max_leaves=attempt % 10, plain=attempt % 2 == 0, wild=wild)
            except DeadEnd as exc:
                problems.append(str(exc) or "what it asks for excludes each other")
                continue
            problem = self.problem(value)
            if problem is not None:
                problems.append(problem)
                continue
            found.append(value)
            # The simplest choices are good enough at once; of random ones a few are compared, as the first may be long.
            if not attempt or len(found) > 5:
                break
        if not found:
            raise CannotGenerate(f"found no value that conforms: {problems[0]}")
        # By the text too, where lengths are equal, so that it is the same one in every run.
        return min(found, key=lambda value: (len(json.dumps(value)), json.dumps(value)))

    def problem(self, value: Any) -> str | None:
        """Say why a value does not conform; None if it does."""
        try:
            return self.checker.problem(value)
        except SchemaError as exc:
            return str(exc)

    def draw(self, choices: Choices) -> Any:
        """Make a value that conforms."""
        for attempt in range(ATTEMPTS):
            try:
                # Smaller and plainer with each attempt: defaults, examples and further members are what most often does
                # not conform.
                value = self.make(choices, max_leaves=self.max_leaves // (attempt + 1), plain=attempt > 1)
            except DeadEnd:
                continue
            if self.problem(value) is None:
                return value
        # Rather than a rejection, of which Hypothesis allows only a few: a strategy promises values, and this one
        # conforms.
        return copy.deepcopy(self.simplest)

    def make(
        self,
        choices: Choices,
        *,
        max_leaves: int,
        plain: bool,
        wild: bool = False,
        path: tuple[str | int, ...] = (),
    ) -> Any:
        """Make a value that probably conforms.

        Args:
            choices: What decides.
            max_leaves: About how many leaves it may have.
            plain: Leave out defaults, examples and unknown members.
            wild: Also make values of types that are allowed, but probably not meant.
            path: A place that the value must have.

        Raises:
            Stuck: If the choices lead to no value.
        """
        # Steps are counted for each value: else a long test would end with an error after a number of harmless ones.
        self.shapes.rest()
        try:
            making = _Making(self.shapes, choices, max_leaves, plain, wild)
            return making.value(self.shapes.root, self.shapes.depth + DEEPER, path)
        except TooManySteps:
            raise DeadEnd from None


def checked(schema: Any, *, formats: bool = True) -> tuple[Any, SchemaValidator]:
    """Copy a schema, and make a validator for it.

    Raises:
        CannotGenerate: If it can't be used.
    """
    try:
        # Keys are made of identities, which a caller who changes the schema later would break.
        schema = copy.deepcopy(schema)
        try:
            return schema, SchemaValidator(schema, formats=formats)
        except SchemaError:
            # Tools in the wild don't name their dialect, and use what only draft-07 knows.
            if not isinstance(schema, dict) or "$schema" in schema:
                raise
            try:
                old = {"$schema": _DRAFT_7, **schema}
                return old, SchemaValidator(old, formats=formats)
            except SchemaError:
                pass
            raise
    except SchemaError as exc:
        raise CannotGenerate(str(exc)) from None
    except RecursionError:
        raise CannotGenerate("the schema is nested too deeply") from None


@attrs.define(eq=False)
class _Making:
    """The making of one value."""

    shapes: Shapes
    choices: Choices
    leaves: int
    plain: bool
    wild: bool

    def value(self, key: Key, depth: int, path: tuple[str | int, ...] = ()) -> Any:
        shape = self.shapes.shape(key)
        while shape.groups:
            key = self._option(self.shapes.options(key), depth, path)
            shape = self.shapes.shape(key)
        if shape.impossible is not None:
            raise DeadEnd
        if not path:
            # One in eight: authors write examples that work, so a tool's way to success is tried; but always the same
            # values find little else.
            if shape.samples and not self.plain and not self._few and self._chance(8):
                return copy.deepcopy(self._one_of(shape.samples))
            if shape.listed is not None:
                self.leaves -= 1
                return copy.deepcopy(shape.listed[0] if self._few else self._one_of(shape.listed))
        match self._type(key, shape, depth, path):
            case "null":
                made: Any = None
            case "boolean":
                made = bool(self.choices.integer(0, 1))
            case "integer":
                made = self._integer(shape)
            case "number":
                made = self._number(shape)
            case "string":
                made = self._text(shape)
            case "array":
                return self._array(key, shape, depth, path)
            case _:
                return self._object(key, shape, depth, path)
        self.leaves -= 1
        return made

    @property
    def _few(self) -> bool:
        """Whether there should be no more than there must be."""
        return self.leaves <= 0

    def _chance(self, one_in: int) -> bool:
        return self.choices.integer(0, one_in - 1) == one_in - 1

    def _one_of(self, things: Iterable[Any]) -> Any:
        known = list(things)
        return known[self.choices.integer(0, len(known) - 1)]

    def _option(self, options: list[Key], depth: int, path: tuple[str | int, ...]) -> Key:
        if path:
            kind = "object" if isinstance(path[0], str) else "array"
            options = [option for option in options if kind in self.shapes.shape(option).types]
        if self._few:
            smallest = self.shapes.smallest(options, depth)
            if smallest is None:
                raise DeadEnd
            return smallest
        # The options behind the chosen one follow in turn: one draw is enough, however many of them are impossible.
        first = self.choices.integer(0, max(len(options) - 1, 0))
        for option in options[first:] + options[:first]:
            if self.shapes.size(option, depth) < math.inf:
                return option
        raise DeadEnd

    def _type(self, key: Key, shape: Shape, depth: int, path: tuple[str | int, ...]) -> str:
        types = shape.types
        if path:
            types = ("object",) if isinstance(path[0], str) else ("array",)
        elif shape.likely and not self.wild and (self.plain or self._few or not self._chance(10)):
            types = shape.likely
        possible = [kind for kind in types if kind in shape.types and self.shapes.size_of(key, kind, depth) < math.inf]
        if not possible:
            raise DeadEnd
        if self._few:
            return min(possible, key=lambda kind: self.shapes.size_of(key, kind, depth))
        chosen: str = self._one_of(possible)
        return chosen

    # --- scalars -----------------------------------------------------------------------------------------------------

    def _integer(self, shape: Shape) -> int:
        bounds = whole_bounds(shape)
        if bounds is None:
            raise DeadEnd
        low, high = bounds
        if shape.steps:
            # The least common multiple of fractions.
            step = Fraction(math.lcm(*(each.numerator for each in shape.steps)))
            low, high = math.ceil(low / step), math.floor(high / step)
            if low > high:
                raise DeadEnd
            return int(self.choices.integer(low, high) * step)
        # Small numbers half of the time: a tool may count to it, or wait for so long.
        if low <= 0 and high >= 100 and self._chance(2):
            return self.choices.integer(0, 100)
        return self.choices.integer(low, high)

    def _number(self, shape: Shape) -> int | float:
        if shape.steps:
            step = shape.steps[0]
            low = -FAR if shape.low is None else math.ceil(shape.low[0] / step)
            high = max(FAR, low + FAR) if shape.high is None else math.floor(shape.high[0] / step)
            if shape.low is None:
                low = min(low, high - FAR)
            if low > high:
                raise DeadEnd
            for _ in range(4):
                made = self.choices.integer(low, high) * step
                # Many validators divide floats: what is not a whole number for them is refused, as 36.01 / 0.01 is.
                if made.denominator == 1 or (float(made) / float(step)).is_integer():
                    return int(made) if made.denominator == 1 else float(made)
            raise DeadEnd
        whole = whole_bounds(shape)
        if whole is not None and self.choices.integer(0, 1) == 0:
            return self._integer(shape)
        least = -float(FAR) if shape.low is None else float(shape.low[0])
        most = max(least + FAR, float(FAR)) if shape.high is None else float(shape.high[0])
        if shape.low is None:
            least = min(least, most - FAR)
        if shape.low is not None and shape.low[1]:
            least = math.nextafter(least, math.inf)
        if shape.high is not None and shape.high[1]:
            most = math.nextafter(most, -math.inf)
        if least > most:
            raise DeadEnd
        return self.choices.number(least, most)

    def _text(self, shape: Shape) -> str:
        text = shape.text
        if text.patterns:
            return self._matching(shape)
        known = [name for name in text.formats if name in FORMATS]
        if known:
            return FORMATS[known[0]](self.choices)
        high = int(min(text.high, text.low + LONGER))
        return self.choices.text(text.low, text.low if self._few else high)

    def _matching(self, shape: Shape) -> str:
        text = shape.text
        source, pattern = next(iter(text.patterns.items()))
        most = int(min(text.high, MAX_STRETCH))
        # The usual length, then one that may reach the bounds, then the least.
        for stretch in (0,) if self._few and not text.low else (min(8, most), text.low, min(text.low + 8, most), 0):
            try:
                made = pattern.text(self.choices, stretch)
            except PatternError:
                continue
            fits = text.low <= len(made) <= text.high
            if fits and all(self.shapes.matches(each, made) for each in text.patterns):
                return made
            if len(made) < text.low and (longer := self._padded(source, made, text.low)) is not None:
                return longer
        high = "any" if text.high == math.inf else int(text.high)
        raise DeadEnd(
            f"no text of {text.low} to {high} characters was found for {' and '.join(map(repr, text.patterns))}"
        )

    def _padded(self, source: str, text: str, length: int) -> str | None:
        """Lengthen a text by what it ends with, which is right for most patterns that end in a repetition."""
        padded = text + (text[-1:] or "a") * (length - len(text))
        return padded if self.shapes.matches(source, padded) else None

    # --- containers --------------------------------------------------------------------------------------------------

    def _array(self, key: Key, shape: Shape, depth: int, path: tuple[str | int, ...]) -> list[Any]:
        # Long enough to contain the place that is to be spoiled.
        least = max(least_items(shape), int(path[0]) + 1 if path else 0)
        count = least
        if not self._few and depth > 0:
            usual = max(least, prefix_length(shape))
            count = self.choices.integer(least, int(min(usual + WIDER, max(shape.max_items, least))))
        items: list[Any] = []
        for index in range(count):
            below = self.shapes.item(key, index)
            # The budget may have been used up by the items before, and an item that need not be there must not get the
            # value stuck.
            if index >= least and (self._few or self.shapes.size(below, depth - 1) == math.inf):
                break
            inner = path[1:] if path and path[0] == index else ()
            try:
                item = (
                    self._new_item(below, depth, items, inner) if shape.unique else self.value(below, depth - 1, inner)
                )
            except DeadEnd:
                if index < least:
                    raise
                break
            items.append(item)
        return items

    def _new_item(self, key: Key, depth: int, others: list[Any], path: tuple[str | int, ...]) -> Any:
        """Make an item that is equal to none of the others.

        Raises:
            Stuck: If none was found.
        """
        for _ in range(10):
            item = self.value(key, depth - 1, path)
            if not any(same(item, other) for other in others):
                return item
            self.leaves = max(self.leaves, 1)  # the simplest is taken, and there are others
        raise DeadEnd(f"not enough different items were found, after {len(others)}")

    def _object(self, key: Key, shape: Shape, depth: int, path: tuple[str | int, ...]) -> dict[str, Any]:
        names = dict.fromkeys(shape.required)
        if path:
            names[str(path[0])] = None
        optional = [name for name in shape.named if name not in names and self._possible(key, name, depth)]
        for name in optional:
            if len(names) < shape.max_members and not self._few and self.choices.integer(0, 1):
                names[name] = None
        for name in optional:
            if len(names) < shape.min_members:
                names[name] = None
        self._add_needed(shape, names)
        self._add_others(key, shape, depth, names)
        made = {}
        for name in names:
            made[name] = self.value(
                self.shapes.member(key, name), depth - 1, path[1:] if path and path[0] == name else ()
            )
        return made

    def _possible(self, key: Key, name: str, depth: int) -> bool:
        return self.shapes.size(self.shapes.member(key, name), depth - 1) < math.inf

    def _add_needed(self, shape: Shape, names: dict[str, None]) -> None:
        """Add the members that are required because others are there."""
        pending = list(names) if shape.needs else []
        while pending:
            for name in shape.needs.get(pending.pop(), ()):
                if name not in names:
                    names[name] = None
                    pending.append(name)

    def _add_others(self, key: Key, shape: Shape, depth: int, names: dict[str, None]) -> None:
        """Add members that the schema does not name."""
        least = shape.min_members - len(names)
        most = least
        if depth > 0 and not self._few and not self.plain:
            most = 3 if self._is_map(shape) else 1 if self._chance(10) else 0
        most = int(min(max(most, least), shape.max_members - len(names)))
        if most <= 0:
            return
        patterns = self.shapes.name_patterns(key)
        if not patterns and not self._possible(key, _ANY_NAME, depth):
            if least > 0:
                raise DeadEnd("it forbids the members that it asks for")
            return
        count = self.choices.integer(max(least, 0), most)
        # Some names will be taken, or forbidden; four attempts for each are enough unless the schema allows hardly any.
        for attempt in range(count * 4):
            if count <= 0:
                break
            name = self._name(key, patterns, depth, attempt)
            if name is not None and name not in names and name not in shape.named and self._possible(key, name, depth):
                names[name] = None
                count -= 1
        if len(names) < shape.min_members:
            raise DeadEnd

    def _is_map(self, shape: Shape) -> bool:
        """Whether it is meant to have members with any names."""
        keywords = ("patternProperties", "propertyNames")
        return not shape.named or any(
            isinstance(part.get("additionalProperties"), dict) or any(each in part for each in keywords)
            for part in shape.parts
        )

    def _name(self, key: Key, patterns: list[Pattern], depth: int, attempt: int) -> str | None:
        # Every fourth name is made without them: names that fit no pattern may be needed, if those that do are too few.
        if patterns and attempt % 4 != 3:
            try:
                pattern: Pattern = self._one_of(patterns)
                return pattern.text(self.choices, 4)
            except PatternError:
                return None
        asked = self.shapes.names(key)
        if self.shapes.size(asked, 1) == math.inf:
            return None
        if len(asked) > 1:
            name = self.value(asked, 1)
            return name if isinstance(name, str) else None
        return f"x{attempt}" if self._few else self.choices.text(1, 8)
