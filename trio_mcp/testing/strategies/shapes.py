"""What a JSON Schema asks of the value at each place, put together from all the subschemas that examine the place.

A place is examined by some subschemas at once. Their names are the place's key; what they ask together is its shape.
Where a value has a choice (``anyOf``, ``oneOf``, ``if``), the shape has groups of options, and each option gives
another key. Shapes are made when something first leads to them, and kept: a schema that refers to itself has finitely
many, and a hostile one is given up after a number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import attrs

from trio_mcp.testing.strategies.patterns import Pattern, PatternError

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "MAX_ITEMS",
    "MAX_TEXT",
    "TYPES",
    "CannotGenerate",
    "Key",
    "Shape",
    "Shapes",
    "TextShape",
    "TooManySteps",
    "same",
]

MAX_STEPS = 30_000
"""Steps to analyse a schema: under a second. Those of a tool take some dozens."""
MAX_DEPTH = 40
"""Levels of the values that are made: a JSON parser of a peer may refuse more than 100."""
MAX_LEAVES = 3_000
"""Leaves of the smallest value that is still made. Chosen."""
MAX_ITEMS = 1_000
"""Items of an array, or members of an object, that a schema may demand. Chosen."""
MAX_TEXT = 10_000
"""Characters of a text that a schema may demand. Chosen."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

_HINTS = {
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems", "additionalItems"),
    "object": (
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
    ),
}
"""Keywords that say of which type a value is probably meant to be, where ``type`` does not."""

_APPLIED = ("$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas")

Schema: TypeAlias = "dict[str, Any] | bool"
Key: TypeAlias = "tuple[int, ...]"


class CannotGenerate(ValueError):
    """No values can be made from the schema: it is invalid, nothing conforms to it, or it asks for too much."""


class TooManySteps(Exception):
    """The subschemas have too many combinations."""


@attrs.define(eq=False)
class _Group:
    """A choice: a value conforms to one of these options, each of which is a list of schemas."""

    options: list[list[Schema]]


@attrs.define(eq=False)
class TextShape:
    """What is asked of a text."""

    low: int = 0
    high: float = math.inf
    formats: dict[str, None] = attrs.Factory(dict)
    patterns: dict[str, Pattern] = attrs.Factory(dict)


@attrs.define(eq=False)
class Shape:
    """What the subschemas that examine a place ask of its value together.

    Attributes:
        types: The types that are allowed.
        likely: Those that it is probably meant to have, where ``type`` does not say.
        impossible: Why no value conforms, or None.
        groups: The choices to be made first.
        parts: The subschemas without what has been followed: references, options and the like.
        listed: The values that are allowed, if they are listed.
        samples: Defaults and examples.
        low: The least number, and whether it is excluded.
        high: The same for the greatest.
        steps: What a number has to be a multiple of.
        text: For texts.
        min_items: The least number of items.
        max_items: The greatest.
        contains: Schemas that some items have to conform to, with the least number of these.
        unique: Whether no two items may be equal.
        required: Names of members.
        needs: Names of members that are required if another is there.
        named: Names of members that the schema knows.
        min_members: The least number of members.
        max_members: The greatest.
    """

    types: tuple[str, ...] = TYPES
    likely: tuple[str, ...] = ()
    impossible: str | None = None
    groups: list[_Group] = attrs.Factory(list)
    parts: list[dict[str, Any]] = attrs.Factory(list)
    listed: list[Any] | None = None
    samples: list[Any] = attrs.Factory(list)
    low: tuple[Fraction, bool] | None = None
    high: tuple[Fraction, bool] | None = None
    steps: list[Fraction] = attrs.Factory(list)
    text: TextShape = attrs.Factory(TextShape)
    min_items: int = 0
    max_items: float = math.inf
    contains: list[tuple[Schema, int]] = attrs.Factory(list)
    unique: bool = False
    required: dict[str, None] = attrs.Factory(dict)
    needs: dict[str, list[str]] = attrs.Factory(dict)
    named: dict[str, None] = attrs.Factory(dict)
    min_members: int = 0
    max_members: float = math.inf


class Shapes:
    """All the shapes of one schema.

    Args:
        schema: A schema that has been checked by `SchemaValidator`: it refers to nothing outside itself, and does not
            refer to itself in a circle that consumes no input.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # The objects that keys refer to, by their id; and those made here, by what they were made from.
        self._known: dict[int, Any] = {}
        self._made: dict[tuple[int, str], Any] = {}
        self._shapes: dict[Key, Shape] = {}
        self._options: dict[Key, list[Key]] = {}
        self._members: dict[tuple[Key, str], Key] = {}
        self._sizes: dict[tuple[Key, int], float] = {}
        self._type_sizes: dict[tuple[Key, str, int], float] = {}
        self._matchers: dict[str, jsonschema_rs.Validator] = {}
        self._patterns: dict[str, Pattern | None] = {}
        self._steps = 0
        self._reasons: dict[str, None] = {}
        self._anchors = dict(_anchors(schema))
        self.root = self.key([schema])
        self.depth = self._least_depth()

    def _least_depth(self) -> int:
        """Return the depth of the smallest value."""
        try:
            # From shallow to deep, as each depth costs steps of its own: nearly all schemas of tools are done after two
            # or three.
            for depth in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, MAX_DEPTH):
                if self.size(self.root, depth) <= MAX_LEAVES:
                    return depth
        except (TooManySteps, RecursionError):
            raise CannotGenerate("its subschemas have too many combinations to be analysed") from None
        endless = f"it refers to itself without an end, or is nested more than {MAX_DEPTH} levels deep"
        raise CannotGenerate(next(iter(self._reasons), endless))

    # --- keys --------------------------------------------------------------------------------------------------------

    def key(self, schemas: Iterable[Schema | _Group]) -> Key:
        """Return the key of a place that these subschemas examine."""
        ids = []
        for schema in schemas:
            # Left out, because they ask for nothing: places that differ only in these then share one key, and its
            # analysis.
            if schema is not True and schema != {}:
                self._known[id(schema)] = schema
                ids.append(id(schema))
        # By identity rather than by content: comparing large schemas at each step would cost more than the few keys
        # that are equal but not the same. Each once, as asking for a thing twice changes nothing.
        return tuple(dict.fromkeys(ids))

    def shape(self, key: Key) -> Shape:
        """Return the shape of a place."""
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = self._merged(key)
        return shape

    def options(self, key: Key) -> list[Key]:
        """Return the keys that a place has after its first group has been chosen from."""
        options = self._options.get(key)
        if options is None:
            shape = self.shape(key)
            first, *rest = shape.groups
            # Only the first group is opened: all combinations of several at once would be their product, and most are
            # never drawn.
            options = [self.key([*shape.parts, *rest, *option]) for option in first.options]
            self._options[key] = options
        return options

    def _make(self, origin: Any, name: str, made: Any) -> Any:
        """Return what was first made from an origin under a name, so that keys are the same each time."""
        # Kept alive, because an id may be given again to another object once the first is collected.
        self._known[id(origin)] = origin
        return self._made.setdefault((id(origin), name), made)

    def forbidding(self, name: str) -> Schema:
        """Return a schema that a member is not there."""
        schema: Schema = self._make(self, f"without {name}", {"properties": {name: False}})
        return schema

    def typed(self, kind: str) -> Schema:
        """Return a schema that only asks for a type."""
        schema: Schema = self._make(self, f"type {kind}", {"type": kind})
        return schema

    def _spread(self, key: Key) -> tuple[list[dict[str, Any]], list[_Group], bool]:
        """Follow what a place's subschemas apply to the same place.

        Returns:
            The subschemas without that, the choices, and whether one of the subschemas is false.
        """
        parts: dict[int, dict[str, Any]] = {}
        groups: dict[int, _Group] = {}
        # With a stack of its own instead of recursion: references and `allOf` may form chains longer than Python's
        # stack.
        pending = [self._known[each] for each in reversed(key)]
        seen: set[int] = set()
        while pending:
            current = pending.pop()
            if current is False:
                return [], [], True
            # Two references may lead to the same subschema, which in a hostile schema multiplies at each level.
            if current is True or id(current) in seen:
                continue
            seen.add(id(current))
            self._spend()
            if isinstance(current, _Group):
                groups[id(current)] = current
                continue
            plain = self._plain(current)
            if plain:
                parts[id(plain)] = plain
            below = [self.resolve(current[ref]) for ref in ("$ref", "$dynamicRef", "$recursiveRef") if ref in current]
            pending += [*below, *reversed(_schemas(current, "allOf")), *reversed(self._groups(current))]
        return list(parts.values()), list(groups.values()), False

    def _plain(self, schema: dict[str, Any]) -> dict[str, Any]:
        if not any(keyword in schema for keyword in (*_APPLIED, "dependencies")):
            return schema
        plain = {keyword: value for keyword, value in schema.items() if keyword not in _APPLIED}
        if isinstance(schema.get("dependencies"), dict):  # those that are schemas are followed, too
            lists = {name: needed for name, needed in schema["dependencies"].items() if isinstance(needed, list)}
            plain["dependencies"] = lists
        made: dict[str, Any] = self._make(schema, "plain", plain)
        return made

    def _groups(self, schema: dict[str, Any]) -> list[_Group]:
        groups = []
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                # `oneOf` is treated like `anyOf`: that no second option fits can't be built in, and the check of the
                # whole value sees it.
                options = [[option] for option in _schemas(schema, keyword)]
                groups.append(self._make(schema, keyword, _Group(options)))
        if "if" in schema:
            # That a value of the second option does not conform to the condition is left to the final check.
            options = [[schema["if"], schema.get("then", True)], [schema.get("else", True)]]
            groups.append(self._make(schema, "if", _Group(options)))
        dependent = {**_mapping(schema, "dependencies"), **_mapping(schema, "dependentSchemas")}
        for name, below in dependent.items():
            if isinstance(below, (dict, bool)):
                options = [[self.forbidding(name)], [below]]
                groups.append(self._make(schema, f"dependent {name}", _Group(options)))
        return groups

    def resolve(self, reference: str) -> Schema:
        """Return what a reference refers to."""
        # A pointer in a URI is percent-encoded first (RFC 6901, section 6), and then has escapes of its own, undone in
        # this order so that "~01" becomes "~1".
        fragment = unquote(reference.partition("#")[2])
        if fragment and not fragment.startswith("/"):
            return self._anchors[fragment]
        target: Any = self._schema
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target[int(name)] if isinstance(target, list) else target[name]
        schema: Schema = target
        return schema

    def rest(self) -> None:
        """Forget the steps taken: from here on, so many more are allowed."""
        self._steps = 0

    def _spend(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooManySteps

    # --- merging -----------------------------------------------------------------------------------------------------

    def _merged(self, key: Key) -> Shape:
        parts, groups, impossible = self._spread(key)
        if impossible:
            return Shape(impossible="a subschema of it is false: no value conforms")
        shape = Shape(groups=groups, parts=parts)
        for part in parts:
            _merge_types(shape, part)
            _merge_listed(shape, part)
            _merge_numbers(shape, part)
            self._merge_texts(shape, part)
            _merge_arrays(shape, part)
            _merge_objects(shape, part)
            if part.get("not") in (True, {}):
                shape.impossible = "a subschema of it excludes every value"
        if not shape.types:
            shape.impossible = "it asks for two types at once"
        # Filtered here and not when a value is chosen: a list of which nothing is left must count as impossible
        # beforehand.
        elif shape.listed is not None:
            shape.listed = [value for value in shape.listed if _has_type(value, shape.types)]
            if not shape.listed:
                shape.impossible = "none of the values that it lists is allowed"
        # A schema with `properties` but no `type` also allows a number; but its author hardly meant that, and a tool
        # that gets one fails in a way that says nothing about the protocol.
        hinted = [kind for kind, hints in _HINTS.items() if any(hint in part for part in parts for hint in hints)]
        shape.likely = tuple(kind for kind in hinted if kind in shape.types) if shape.types == TYPES else ()
        return shape

    def _merge_texts(self, shape: Shape, part: dict[str, Any]) -> None:
        text = shape.text
        text.low = max(text.low, int(part.get("minLength", 0)))
        text.high = min(text.high, part.get("maxLength", math.inf))
        if isinstance(part.get("format"), str):
            text.formats[part["format"]] = None
        if "pattern" in part and (pattern := self.pattern(part["pattern"])) is not None:
            text.patterns[part["pattern"]] = pattern
        elif "pattern" in part:
            # The rest of the types remain: a pattern that is not understood here excludes texts, not every value.
            shape.types = tuple(kind for kind in shape.types if kind != "string")

    def pattern(self, source: str) -> Pattern | None:
        """Return a pattern to make texts from; None, with the reason noted, if there can be none."""
        if source not in self._patterns:
            try:
                self._patterns[source] = Pattern(source)
            except PatternError as exc:
                self._patterns[source] = None
                self._note(f"no texts can be made from the pattern {source[:80]!r}: {exc}")
        return self._patterns[source]

    def matches(self, source: str, text: str) -> bool:
        """Return whether a text matches a pattern of the schema."""
        if source not in self._matchers:
            import jsonschema_rs

            # The linear engine first; one that backtracks only where the pattern needs it (look-around, back
            # references), with a limit on its steps, as both the pattern and the text may be hostile.
            linear = jsonschema_rs.RegexOptions(size_limit=50_000)
            fancy = jsonschema_rs.FancyRegexOptions(backtrack_limit=10_000, size_limit=200_000)
            options: list[jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions] = [linear, fancy]
            for each in options:
                try:
                    matcher = jsonschema_rs.validator_for({"pattern": source}, pattern_options=each)
                except ValueError:
                    continue
                self._matchers[source] = matcher
                break
        return self._matchers[source].is_valid(text)

    # --- what is inside ----------------------------------------------------------------------------------------------

    def member(self, key: Key, name: str) -> Key:
        """Return the key of a member of an object."""
        found = self._members.get((key, name))
        if found is None:
            shape = self.shape(key)
            found = self.key(self._member_schemas(shape, name))
            if name in shape.named:  # only those: of other names there are ever more
                self._members[key, name] = found
        return found

    def _member_schemas(self, shape: Shape, name: str) -> Iterator[Schema]:
        for part in shape.parts:
            self._spend()
            known = False
            if name in _mapping(part, "properties"):
                known = True
                yield part["properties"][name]
            for source, schema in _mapping(part, "patternProperties").items():
                if self.matches(source, name):
                    known = True
                    yield schema
            if not known and "additionalProperties" in part:
                yield part["additionalProperties"]
            # What other subschemas have evaluated is exempt; that the shape names it is near enough, and the check
            # decides.
            elif not known and "unevaluatedProperties" in part and name not in shape.named:
                yield part["unevaluatedProperties"]

    def names(self, key: Key) -> Key:
        """Return the key of the names of further members."""
        asked = [part["propertyNames"] for part in self.shape(key).parts if "propertyNames" in part]
        # Names are texts anyway: with the type asked for, a schema of names without one can't lead to a number.
        return self.key([*asked, self.typed("string")])

    def name_patterns(self, key: Key) -> list[Pattern]:
        """Return the patterns that names of further members may be made from."""
        sources = [source for part in self.shape(key).parts for source in _mapping(part, "patternProperties")]
        return [pattern for source in sources if (pattern := self.pattern(source)) is not None]

    def item(self, key: Key, index: int) -> Key:
        """Return the key of an item of an array."""
        shape = self.shape(key)
        return self.key([*_item_schemas(shape, index), *self._contained(shape, index)])

    def _contained(self, shape: Shape, index: int) -> Iterator[Schema]:
        """Yield the schemas of ``contains`` that the item at an index is made to conform to."""
        start = prefix_length(shape)
        for schema, count in shape.contains:
            # Behind the items that have a schema of their own, if there is room.
            first = start if start + count <= shape.max_items else 0
            if first <= index < first + count:
                yield schema

    # --- sizes -------------------------------------------------------------------------------------------------------

    def size(self, key: Key, depth: int) -> float:
        """Return about how many leaves the smallest value has that is at most so deep, or infinity."""
        size = self._sizes.get((key, depth))
        if size is None:
            self._spend()
            # Infinite while it is being computed, so that a schema that leads back to itself at the same depth is not
            # followed again: the smallest value never needs to go round.
            self._sizes[key, depth] = math.inf
            size = self._sizes[key, depth] = self._find_size(key, depth)
        return size

    def _find_size(self, key: Key, depth: int) -> float:
        shape = self.shape(key)
        if shape.impossible is not None:
            self._note(shape.impossible)
            return math.inf
        size = 1 if shape.listed is not None else min(self.size_of(key, kind, depth) for kind in shape.types)
        # Options only add to what is asked: what is too much before is too much with any of them.
        if not shape.groups or size == math.inf:
            return size
        option = self.smallest(self.options(key), depth)
        return math.inf if option is None else self.size(option, depth)

    def smallest(self, options: list[Key], depth: int) -> Key | None:
        """Return an option whose smallest value is small; None if all are impossible."""
        best, found = math.inf, None
        for option in options:
            size = self.size(option, depth)
            if size < best:
                best, found = size, option
            # Good enough: there may be many options, and options of options.
            if best <= 2 or (best < math.inf and self._steps > MAX_STEPS // 10):
                break
        return found

    def size_of(self, key: Key, kind: str, depth: int) -> float:
        """Return the same for values of one type, whatever is chosen from groups."""
        found = self._type_sizes.get((key, kind, depth))
        if found is None:
            shape = self.shape(key)
            if kind == "object":
                found = self._object_size(key, shape, depth)
            elif kind == "array":
                found = self._array_size(key, shape, depth)
            elif kind == "string":
                found = self._text_size(shape)
            elif kind in ("integer", "number"):
                found = self._number_size(shape, kind)
            else:
                found = 1
            self._type_sizes[key, kind, depth] = found
        return found

    def _number_size(self, shape: Shape, kind: str) -> float:
        if shape.low is not None and shape.high is not None:
            low, high = shape.low[0], shape.high[0]
            excluded = shape.low[1] or shape.high[1]
            if low > high or (low == high and excluded):
                return self._no(f"no number is at least {float(low):g} and at most {float(high):g}")
            if kind == "integer" and whole_bounds(shape) is None:
                return self._no(f"no integer is between {float(low):g} and {float(high):g}")
        return 1

    def _text_size(self, shape: Shape) -> float:
        text = shape.text
        if text.low > text.high:
            return self._no(f"no text has at least {text.low} characters and at most {text.high:g}")
        if text.low > MAX_TEXT:
            return self._no(f"it asks for texts of {text.low} characters; at most {MAX_TEXT} are made")
        return 1 + text.low / 100

    def _array_size(self, key: Key, shape: Shape, depth: int) -> float:
        count = least_items(shape)
        if count > shape.max_items:
            return self._no(f"no array has at least {count} items and at most {shape.max_items:g}")
        if count > MAX_ITEMS:
            return self._no(f"it asks for {count} items; at most {MAX_ITEMS} are made")
        if count and depth <= 0:
            return math.inf
        size = 1.0
        # Items behind the prefix and those contained are alike.
        different = min(count, prefix_length(shape) + sum(least for _, least in shape.contains) + 1)
        for index in range(different):
            size += self.size(self.item(key, index), depth - 1)
            if size > MAX_LEAVES:
                return self._too_large(size)
        if count > different:
            size += (count - different) * self.size(self.item(key, count - 1), depth - 1)
        return size if size <= MAX_LEAVES else self._too_large(size)

    def _object_size(self, key: Key, shape: Shape, depth: int) -> float:
        if max(len(shape.required), shape.min_members) > shape.max_members:
            least = max(len(shape.required), shape.min_members)
            return self._no(f"no object has at least {least} members and at most {shape.max_members:g}")
        if shape.min_members > MAX_ITEMS:
            return self._no(f"it asks for {shape.min_members} members; at most {MAX_ITEMS} are made")
        if (shape.required or shape.min_members) and depth <= 0:
            return math.inf
        size = 1.0 + max(0, shape.min_members - len(shape.required))
        for name in shape.required:
            size += self.size(self.member(key, name), depth - 1)
            if size > MAX_LEAVES:
                return self._too_large(size)
        return size

    def _too_large(self, size: float) -> float:
        return math.inf if size == math.inf else self._no(f"its smallest value has more than {MAX_LEAVES} leaves")

    def _no(self, reason: str) -> float:
        self._note(reason)
        return math.inf

    # Only a few are kept: the first is what the user sees, and a hostile schema has thousands.
    def _note(self, reason: str) -> None:
        if len(self._reasons) < 10:
            self._reasons[reason] = None


def least_items(shape: Shape) -> int:
    """Return the least number of items of an array."""
    return max(shape.min_items, *(count for _, count in shape.contains), 0)


def prefix_length(shape: Shape) -> int:
    """Return the number of items that have a schema of their own."""
    return max((len(_prefix(part)) for part in shape.parts), default=0)


def _prefix(part: dict[str, Any]) -> list[Schema]:
    prefix: list[Schema] = part["items"] if isinstance(part.get("items"), list) else part.get("prefixItems", [])
    return prefix


def _item_schemas(shape: Shape, index: int) -> Iterator[Schema]:
    for part in shape.parts:
        prefix = _prefix(part)
        rest = part.get("additionalItems", True) if isinstance(part.get("items"), list) else part.get("items", True)
        yield prefix[index] if index < len(prefix) else rest
        if index >= len(prefix) and "unevaluatedItems" in part and "items" not in part:
            yield part["unevaluatedItems"]


def whole_bounds(shape: Shape) -> tuple[int, int] | None:
    """Return bounds for an integer, both included; with some for one that has no bounds. None if no integer fits."""
    low, high = shape.low, shape.high
    least = None if low is None else math.floor(low[0]) + 1 if low[1] else math.ceil(low[0])
    most = None if high is None else math.ceil(high[0]) - 1 if high[1] else math.floor(high[0])
    # Without a bound, no huge numbers: a valid argument is not meant to keep a tool busy for years.
    if least is None:
        least = -FAR if most is None else min(-FAR, most - FAR)
    if most is None:
        most = max(FAR, least + FAR)
    return (least, most) if least <= most else None


FAR = 10_000
"""How far numbers are from zero, or from their only bound. Chosen."""


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if isinstance(one, bool) or isinstance(other, bool):
        # In Python `True == 1`, and so would be 1 and true in an `enum`, or as items that must be unique.
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _has_type(value: Any, types: Sequence[str]) -> bool:
    match value:
        case bool():
            return "boolean" in types
        case int() | float():
            return "number" in types or ("integer" in types and value == int(value))
        case str():
            return "string" in types
        case list():
            return "array" in types
        case dict():
            return "object" in types
    return "null" in types


def _schemas(schema: dict[str, Any], keyword: str) -> list[Schema]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []


def _mapping(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _merge_types(shape: Shape, part: dict[str, Any]) -> None:
    if "type" not in part:
        return
    asked = part["type"] if isinstance(part["type"], list) else [part["type"]]
    # "number" includes the integers, so that together with another subschema's "integer" it leaves integers, not
    # nothing.
    allowed = [*asked, "integer"] if "number" in asked else asked
    shape.types = tuple(kind for kind in shape.types if kind in allowed)


def _merge_listed(shape: Shape, part: dict[str, Any]) -> None:
    for values in ([part["const"]] if "const" in part else None, part.get("enum")):
        if values is not None:
            known = shape.listed
            shape.listed = [each for each in values if known is None or any(same(each, other) for other in known)]
    if "default" in part:
        shape.samples.append(part["default"])
    if isinstance(part.get("examples"), list):
        shape.samples += part["examples"]


def _merge_numbers(shape: Shape, part: dict[str, Any]) -> None:
    # In draft-04 `exclusiveMinimum` is a word on `minimum`.
    low = [(part.get("minimum"), part.get("exclusiveMinimum") is True), (part.get("exclusiveMinimum"), True)]
    high = [(part.get("maximum"), part.get("exclusiveMaximum") is True), (part.get("exclusiveMaximum"), True)]
    for bound, excluded in low:
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            asked = Fraction(bound), excluded
            # As tuples: of two equal bounds the one that excludes is the stricter, and True is greater than False. For
            # the upper bound that order has to be turned round.
            shape.low = asked if shape.low is None else max(shape.low, asked)
    for bound, excluded in high:
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            asked = Fraction(bound), excluded
            shape.high = (
                asked if shape.high is None else min(shape.high, asked, key=lambda each: (each[0], not each[1]))
            )
    if "multipleOf" in part:
        # From the text, since the author wrote 0.01, not the double nearest to it.
        shape.steps.append(Fraction(str(part["multipleOf"])))


def _merge_arrays(shape: Shape, part: dict[str, Any]) -> None:
    shape.min_items = max(shape.min_items, int(part.get("minItems", 0)))
    shape.max_items = min(shape.max_items, part.get("maxItems", math.inf))
    shape.unique = shape.unique or part.get("uniqueItems") is True
    # With `minContains` 0 the keyword asks for nothing (2020-12 core, section 10.3.1.3).
    if "contains" in part and (least := int(part.get("minContains", 1))) > 0:
        shape.contains.append((part["contains"], least))


def _merge_objects(shape: Shape, part: dict[str, Any]) -> None:
    required = part.get("required")
    # In draft-03 it was a boolean, which some tools still write.
    if isinstance(required, list):
        shape.required.update(dict.fromkeys(required))
    shape.named.update(dict.fromkeys(_mapping(part, "properties")))
    for keyword in ("dependentRequired", "dependencies"):
        for name, needed in _mapping(part, keyword).items():
            if isinstance(needed, list):
                shape.needs[name] = [*shape.needs.get(name, []), *needed]
    shape.min_members = max(shape.min_members, int(part.get("minProperties", 0)))
    shape.max_members = min(shape.max_members, part.get("maxProperties", math.inf))


def _anchors(schema: Any) -> Iterator[tuple[str, Schema]]:
    """Yield the anchors anywhere in a schema, and what they are at."""
    pending = [schema]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            # A dynamic anchor is resolved like a plain one: they differ only where an outer resource has the same name,
            # and the check of the value decides there.
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(current.get(keyword), str):
                    yield current[keyword], current
            pending += current.values()
        elif isinstance(current, list):
            pending += current
