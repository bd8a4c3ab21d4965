"""Merges the subschemas that apply to the same place in a value into one shape, from which values are made.

Several subschemas may apply to one place. The ids of these subschemas form the place's key; together the subschemas
require a shape. Where a value has a choice (``anyOf``, ``oneOf``, ``if``), the shape has groups of options, and each
option leads to another key. Shapes are made on demand and kept. A recursive schema therefore has finitely many shapes,
and the analysis of a hostile one stops after a number of steps.

`jsonschema_rs.canonicalize` would multiply all choices at once, and can't be interrupted. For a schema with eight
conditions, which is harmless here, version 0.61 took two seconds, and returned the schema unchanged.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, TypeAlias
from urllib.parse import unquote

import attrs

from trio_mcp.schema.validator import SchemaValidator
from trio_mcp.testing.strategies.patterns import Pattern, PatternError

__all__ = [
    "MAX_ITEMS",
    "MAX_TEXT",
    "TYPES",
    "CannotGenerate",
    "Key",
    "Shape",
    "Shapes",
    "TooManySteps",
    "bounded",
    "same",
]

MAX_STEPS = 30_000
"""The maximum number of steps of the analysis of a schema; so many steps take less than a second. The schemas of tools
take a few dozen."""
MAX_DEPTH = 40
"""The maximum number of levels of nesting in a value: the JSON parser of a peer may refuse more than 100."""
MAX_LEAVES = 3_000
"""The maximum number of leaves of the smallest value of a schema. An arbitrary choice."""
MAX_ITEMS = 1_000
"""The maximum number of items or members that a schema may require. An arbitrary choice."""
MAX_TEXT = 10_000
"""The maximum length of a string, in characters, that a schema may require. An arbitrary choice."""
FAR = 10_000
"""The maximum distance of a number from zero, or from its only bound. An arbitrary choice."""

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
"""Keywords that show which type the author probably meant where ``type`` is absent."""

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_APPLIED = {*_REFERENCES, "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas", "dependencies"}

Schema: TypeAlias = "dict[str, Any] | bool"
Key: TypeAlias = "tuple[int, ...]"
Bound: TypeAlias = "tuple[Fraction, bool]"
"""The number at a bound, and whether the number itself is excluded."""


class CannotGenerate(ValueError):
    """No values can be made from the schema: it is invalid, requires too much, or no conforming value was found."""


class TooManySteps(Exception):
    """The subschemas have too many combinations."""


@attrs.frozen(eq=False)
class _Group:
    """A choice between options: a value must conform to all the schemas of one option."""

    options: list[list[Schema]]


@attrs.frozen(eq=False)
class Shape:
    """The requirements that all the subschemas of a place make together.

    Attributes:
        parts: The subschemas, without keywords that apply other subschemas to the same place.
        groups: The choices that must be made before a value can be made.
        types: The types that are allowed.
        likely: The types that the author probably meant if ``type`` is absent; else empty.
        listed: The values that are allowed, if the schema lists them.
        impossible: The reason why no value conforms, or None.
        samples: Defaults and examples.
        low: The lower bound of a number.
        high: The upper bound of a number.
        steps: The divisors of a number, from ``multipleOf``.
        length: The least and greatest length of a string.
        formats: The formats of a string.
        patterns: The patterns of a string.
        items: The least and greatest number of items.
        contains: Schemas that some items conform to, each with the least number of such items.
        unique: Whether the items must differ.
        members: The least and greatest number of members.
        required: The names of required members.
        named: The names of members that the schema names.
        needs: For each member by name, the names of the members that it requires.
    """

    parts: list[dict[str, Any]]
    groups: list[_Group]
    types: tuple[str, ...]
    likely: tuple[str, ...]
    listed: list[Any] | None
    impossible: str | None
    samples: list[Any]
    low: Bound | None
    high: Bound | None
    steps: list[Fraction]
    length: tuple[int, float]
    formats: list[str]
    patterns: dict[str, Pattern]
    items: tuple[int, float]
    contains: list[tuple[Schema, int]]
    unique: bool
    members: tuple[int, float]
    required: dict[str, None]
    named: dict[str, None]
    needs: dict[str, list[str]]

    @functools.cached_property
    def least_items(self) -> int:
        """The least number of items, including those of ``contains``."""
        return max(self.items[0], *(count for _, count in self.contains), 0)

    @functools.cached_property
    def prefix(self) -> int:
        """The number of items that have a schema of their own."""
        return max((len(_items(part)[0]) for part in self.parts), default=0)

    @functools.cached_property
    def whole_bounds(self) -> tuple[int, int]:
        """Inclusive bounds for an integer; the lower one is greater if no integer fits."""
        low = None if self.low is None else math.floor(self.low[0]) + 1 if self.low[1] else math.ceil(self.low[0])
        high = None if self.high is None else math.ceil(self.high[0]) - 1 if self.high[1] else math.floor(self.high[0])
        return bounded(low, high)


def bounded(low: Any, high: Any) -> tuple[Any, Any]:
    """Replace a missing bound with a nearby one: a valid argument must not keep a tool busy for years."""
    if low is None:
        low = -FAR if high is None else min(-FAR, high - FAR)
    return low, max(FAR, low + FAR) if high is None else high


class Shapes:
    """All the shapes of one schema.

    Args:
        schema: A schema that `SchemaValidator` accepts: it refers to nothing outside itself, and no cycle of references
            leads back to the same place in a value.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        # The objects that keys refer to, by id.
        self._known: dict[int, Any] = {}
        # The objects that `_make` has memoized, by the id of their origin and a name.
        self._made: dict[tuple[int, str], Any] = {}
        self._sizes: dict[tuple[Key, int], float] = {}
        self._steps = 0
        self._reasons: dict[str, None] = {}
        self._anchors = dict(_anchors(schema))
        self.shape = functools.cache(self._shape)
        self.options = functools.cache(self._options)
        # This cache is bounded, because a value may have any number of members that the schema does not name.
        self.member = functools.lru_cache(10_000)(self._member)
        self.size_of = functools.cache(self._size_of)
        self.pattern = functools.cache(self._pattern)
        self._matcher = functools.cache(lambda source: SchemaValidator({"pattern": source}))
        self.root = self.key([schema])
        self.depth = self._least_depth()

    def _least_depth(self) -> int:
        """Return a depth that is enough for a small value."""
        try:
            # Not every depth is tried, because each costs steps. Nearly all schemas of tools need two or three levels.
            for depth in (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, MAX_DEPTH):
                if self.size(self.root, depth) <= MAX_LEAVES:
                    return depth
        except (TooManySteps, RecursionError):
            raise CannotGenerate("the subschemas have too many combinations to be analysed") from None
        endless = f"the schema refers to itself without an end, or is nested more than {MAX_DEPTH} levels deep"
        raise CannotGenerate(next(iter(self._reasons), endless))

    def rest(self) -> None:
        """Reset the count of steps."""
        self._steps = 0

    def _spend(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooManySteps

    # --- keys --------------------------------------------------------------------------------------------------------

    def key(self, schemas: Iterable[Schema | _Group]) -> Key:
        """Return the key of a place that these subschemas apply to."""
        # Empty schemas are left out, because they require nothing. Thus more places share a key, and with it the
        # analysis.
        asking = {id(schema): schema for schema in schemas if schema is not True and schema != {}}
        self._known |= asking
        # Keys compare schemas by id: comparing the content of large schemas each time would cost more than analysing a
        # few equal ones twice.
        return tuple(asking)

    def _options(self, shape: Shape) -> list[Key]:
        """Return the keys that a place may have after the choice from its first group."""
        # The choices of the other groups are left open: the product of all choices may be huge, and most combinations
        # are never drawn.
        first, *rest = shape.groups
        return [self.key([*shape.parts, *rest, *option]) for option in first.options]

    def _make(self, origin: Any, name: str, made: Any) -> Any:
        """Memoize ``made`` by origin and name, so that equal requests share a key."""
        # Python may reuse the id of a collected object, so the origin stays referenced.
        self._known[id(origin)] = origin
        return self._made.setdefault((id(origin), name), made)

    def _spread(self, key: Key) -> tuple[list[dict[str, Any]], list[_Group], bool]:
        """Collect all the subschemas that apply to a place, by following references and keywords such as ``allOf``.

        Returns:
            The subschemas without these keywords, the choices, and whether a subschema is false.
        """
        parts: dict[int, dict[str, Any]] = {}
        groups: dict[int, _Group] = {}
        # This is a loop rather than a recursion, because chains of references and `allOf` may be longer than Python's
        # stack.
        pending = [self._known[each] for each in reversed(key)]
        seen: set[int] = set()
        while pending:
            current = pending.pop()
            if current is False:
                return [], [], True
            # Each subschema is visited once: in a hostile schema, two references to the same subschema would double the
            # work at each level.
            if current is True or id(current) in seen:
                continue
            seen.add(id(current))
            self._spend()
            if isinstance(current, _Group):
                groups[id(current)] = current
                continue
            if plain := self._plain(current):
                parts[id(plain)] = plain
            below = [self._resolve(current[keyword]) for keyword in _REFERENCES if keyword in current]
            pending += [*below, *reversed(_get(current, "allOf", list)), *reversed(list(self._groups(current)))]
        return list(parts.values()), list(groups.values()), False

    def _plain(self, schema: dict[str, Any]) -> dict[str, Any]:
        if _APPLIED.isdisjoint(schema):
            return schema
        plain = {keyword: value for keyword, value in schema.items() if keyword not in _APPLIED}
        lists = {name: below for name, below in _get(schema, "dependencies", dict).items() if isinstance(below, list)}
        if lists:
            plain["dependentRequired"] = {**_get(schema, "dependentRequired", dict), **lists}
        made: dict[str, Any] = self._make(schema, "plain", plain)
        return made

    def _groups(self, schema: dict[str, Any]) -> Iterator[_Group]:
        # The options of `oneOf`, `if` and `dependentSchemas` exclude one another. The groups don't say so, but the
        # final check of the value ensures it.
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield self._make(schema, keyword, _Group([[option] for option in _get(schema, keyword, list)]))
        if "if" in schema:
            options = [[schema["if"], schema.get("then", True)], [schema.get("else", True)]]
            yield self._make(schema, "if", _Group(options))
        for name, below in {**_get(schema, "dependencies", dict), **_get(schema, "dependentSchemas", dict)}.items():
            if isinstance(below, (dict, bool)):
                absent: Schema = self._make(self, f"without {name}", {"properties": {name: False}})
                yield self._make(schema, f"dependent {name}", _Group([[absent], [below]]))

    def _resolve(self, reference: str) -> Schema:
        # A pointer in a URI is percent-encoded (RFC 6901, section 6). The replacements are made in this order, so that
        # "~01" becomes "~1".
        fragment = unquote(reference.partition("#")[2])
        if fragment and not fragment.startswith("/"):
            return self._anchors[fragment]
        target: Any = self._schema
        for step in fragment.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            target = target[int(name)] if isinstance(target, list) else target[name]
        schema: Schema = target
        return schema

    # --- merging -----------------------------------------------------------------------------------------------------

    def _shape(self, key: Key) -> Shape:
        """Return the shape of a place."""
        parts, groups, impossible = self._spread(key)

        def asked(keyword: str, *kinds: type) -> list[Any]:
            return [part[keyword] for part in parts if keyword in part and isinstance(part[keyword], kinds or object)]

        def bounds(keyword: str, exclusive: str) -> list[Bound]:
            # In draft-04 `exclusiveMinimum` and `exclusiveMaximum` are booleans that qualify `minimum` and `maximum`.
            pairs: list[tuple[Any, bool]] = [(part.get(keyword), part.get(exclusive) is True) for part in parts]
            pairs += [(part.get(exclusive), True) for part in parts]
            return [(Fraction(value), excluded) for value, excluded in pairs if _is_number(value)]

        def counts(least: str, greatest: str) -> tuple[int, float]:
            return max(map(int, asked(least)), default=0), min(asked(greatest), default=math.inf)

        patterns = {source: self.pattern(source) for source in asked("pattern", str)}
        types = tuple(kind for kind in TYPES if all(_allows(each, kind) for each in asked("type")))
        if None in patterns.values():
            # A pattern that this module does not support rules out strings, but no other values.
            types = tuple(kind for kind in types if kind != "string")
        listed = _common([*([each] for each in asked("const")), *asked("enum", list)], types)
        if impossible:
            reason: str | None = "a subschema is false, so no value conforms"
        elif not types:
            reason = "the schema requires two types at once"
        elif any(each in (True, {}) for each in asked("not")):
            reason = "a subschema excludes every value"
        else:
            reason = "none of the listed values is allowed" if listed == [] else None
        # A schema with `properties` but no `type` also allows, for example, a number. But a tool that gets a number
        # fails in a way that says nothing about the protocol, so the keywords hint at the type.
        hinted = [kind for kind, hints in _HINTS.items() if any(hint in part for part in parts for hint in hints)]
        needs: dict[str, list[str]] = {}
        for name, needed in _pairs(asked("dependentRequired", dict)):
            needs.setdefault(name, []).extend(needed if isinstance(needed, list) else ())
        return Shape(
            parts=parts,
            groups=groups,
            types=types,
            likely=tuple(hinted) if types == TYPES else (),
            listed=listed,
            impossible=reason,
            samples=[*asked("default"), *itertools.chain(*asked("examples", list))],
            # Of two equal bounds, the exclusive one is stricter.
            low=max(bounds("minimum", "exclusiveMinimum"), default=None),
            high=min(bounds("maximum", "exclusiveMaximum"), key=lambda bound: (bound[0], not bound[1]), default=None),
            # A step is read from its decimal form: an author who wrote 0.01 meant that, and not the double nearest to
            # it.
            steps=[Fraction(str(step)) for step in asked("multipleOf")],
            length=counts("minLength", "maxLength"),
            formats=asked("format", str),
            patterns={source: pattern for source, pattern in patterns.items() if pattern is not None},
            items=counts("minItems", "maxItems"),
            # `minContains: 0` requires nothing (2020-12 core, section 10.3.1.3).
            contains=[
                (part["contains"], least)
                for part in parts
                if "contains" in part and (least := int(part.get("minContains", 1))) > 0
            ],
            unique=True in asked("uniqueItems", bool),
            members=counts("minProperties", "maxProperties"),
            # Some tools still write `required` as a boolean, as in draft-03; such a keyword is ignored.
            required=dict.fromkeys(itertools.chain(*asked("required", list))),
            named=dict.fromkeys(name for name, _ in _pairs(asked("properties", dict))),
            needs=needs,
        )

    def _pattern(self, source: str) -> Pattern | None:
        """Return a pattern that strings can be made from; if that fails, note the reason and return None."""
        try:
            return Pattern(source)
        except PatternError as exc:
            self._note(f"no strings can be made from the pattern {source[:80]!r}: {exc}")
            return None

    def matches(self, source: str, text: str) -> bool:
        """Return whether a string matches a pattern of the schema."""
        return self._matcher(source).problem(text) is None

    # --- members and items -------------------------------------------------------------------------------------------

    def _member(self, shape: Shape, name: str) -> Key:
        """Return the `Key` of the schemas that apply to the object member with a name."""
        return self.key(self._member_schemas(shape, name))

    def _member_schemas(self, shape: Shape, name: str) -> Iterator[Schema]:
        for part in shape.parts:
            self._spend()
            own = [part["properties"][name]] if name in _get(part, "properties", dict) else []
            patterns = _get(part, "patternProperties", dict)
            own += [schema for source, schema in patterns.items() if self.matches(source, name)]
            yield from own
            if not own and "additionalProperties" in part:
                yield part["additionalProperties"]
            # A member that another subschema names has most likely been evaluated by that subschema; the final check
            # decides.
            elif not own and "unevaluatedProperties" in part and name not in shape.named:
                yield part["unevaluatedProperties"]

    def names(self, shape: Shape) -> Key:
        """Return the `Key` of the schemas that apply to the names of members that the schema does not name."""
        string: Schema = self._make(self, "string", {"type": "string"})
        return self.key([*(part["propertyNames"] for part in shape.parts if "propertyNames" in part), string])

    def name_patterns(self, shape: Shape) -> list[Pattern]:
        """Return the patterns from which to make names of members that the schema does not name."""
        sources = [source for part in shape.parts for source in _get(part, "patternProperties", dict)]
        return [pattern for source in sources if (pattern := self.pattern(source)) is not None]

    def item(self, shape: Shape, index: int) -> Key:
        """Return the `Key` of the schemas that apply to the array item at an index."""
        return self.key(self._item_schemas(shape, index))

    def _item_schemas(self, shape: Shape, index: int) -> Iterator[Schema]:
        for part in shape.parts:
            prefix, rest = _items(part)
            yield prefix[index] if index < len(prefix) else rest
            if index >= len(prefix) and "unevaluatedItems" in part and "items" not in part:
                yield part["unevaluatedItems"]
        for schema, count in shape.contains:
            # The items for `contains` follow those with a schema of their own, if there is room.
            first = shape.prefix if shape.prefix + count <= shape.items[1] else 0
            if first <= index < first + count:
                yield schema

    # --- sizes -------------------------------------------------------------------------------------------------------

    def size(self, key: Key, depth: int) -> float:
        """Estimate how many leaves the smallest value of at most ``depth`` levels has; infinity if no value exists."""
        size = self._sizes.get((key, depth))
        if size is None:
            self._spend()
            # The smallest value contains no cycle: the infinity stops a search that comes back to this key.
            self._sizes[key, depth] = math.inf
            size = self._sizes[key, depth] = self._find_size(key, depth)
        return size

    def _find_size(self, key: Key, depth: int) -> float:
        shape = self.shape(key)
        if shape.impossible is not None:
            return self._no(shape.impossible)
        size = 1 if shape.listed is not None else min(self.size_of(shape, kind, depth) for kind in shape.types)
        # Options only add requirements, so they can't help if the shape alone is too large.
        if not shape.groups or size == math.inf:
            return size
        option = self.smallest(self.options(shape), depth)
        return math.inf if option is None else self.size(option, depth)

    def smallest(self, options: list[Key], depth: int) -> Key | None:
        """Return an option whose smallest value is small; None if all options are impossible."""
        best, found = math.inf, None
        for option in options:
            size = self.size(option, depth)
            if size < best:
                best, found = size, option
            # An option that is small enough will do, because there may be many options, each with options of its own.
            if best <= 2 or (best < math.inf and self._steps > MAX_STEPS // 10):
                break
        return found

    def _size_of(self, shape: Shape, kind: str, depth: int) -> float:
        """Estimate how many leaves the smallest value of one type has, ignoring the shape's groups of options."""
        match kind:
            case "object":
                least = max(shape.members[0], len(shape.required))
                if not self._fits((least, shape.members[1]), "object", "members", max(MAX_ITEMS, len(shape.required))):
                    return math.inf
                size = 1.0 + least - len(shape.required)
                return self._total(size, least, (self.member(shape, name) for name in shape.required), depth)
            case "array":
                count = shape.least_items
                if not self._fits((count, shape.items[1]), "array", "items", MAX_ITEMS):
                    return math.inf
                # All items after those of the prefix and of `contains` have the same schema.
                last = min(count, shape.prefix + sum(least for _, least in shape.contains) + 1)
                keys = (self.item(shape, index) for index in range(last))
                rest = itertools.repeat(self.item(shape, max(count - 1, 0)), count - last)
                return self._total(1.0, count, itertools.chain(keys, rest), depth)
            case "string":
                return (
                    1 + shape.length[0] / 100 if self._fits(shape.length, "text", "characters", MAX_TEXT) else math.inf
                )
            case "integer" | "number" if shape.low is not None and shape.high is not None:
                low, high = shape.low[0], shape.high[0]
                if low > high or (low == high and (shape.low[1] or shape.high[1])):
                    return self._no(f"no number is at least {float(low):g} and at most {float(high):g}")
                if kind == "integer" and shape.whole_bounds[0] > shape.whole_bounds[1]:
                    return self._no(f"no integer is between {float(low):g} and {float(high):g}")
        return 1

    def _fits(self, counts: tuple[int, float], kind: str, unit: str, limit: int) -> bool:
        least, greatest = counts
        if least > greatest:
            self._note(f"no {kind} has at least {least} {unit} and at most {greatest:g}")
        elif least > limit:
            self._note(f"the schema requires {least} {unit}, but at most {limit} can be generated")
        return least <= min(greatest, limit)

    def _total(self, size: float, count: int, keys: Iterable[Key], depth: int) -> float:
        if count and depth <= 0:
            return math.inf
        for key in keys:
            size += self.size(key, depth - 1)
            if size == math.inf:
                return size
            if size > MAX_LEAVES:
                return self._no(f"the smallest value has more than {MAX_LEAVES} leaves")
        return size

    def _no(self, reason: str) -> float:
        self._note(reason)
        return math.inf

    def _note(self, reason: str) -> None:
        # Only a few reasons are kept: the user sees only the first one, and a hostile schema has thousands.
        if len(self._reasons) < 10:
            self._reasons[reason] = None


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, but not true."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other  # in Python, `True == 1`
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _common(lists: list[list[Any]], types: tuple[str, ...]) -> list[Any] | None:
    """Return the values of the allowed types that are in all the lists; None if there are no lists."""
    if not lists:
        return None
    first, *others = lists
    typed = [value for value in first if any(kind in types for kind in _types_of(value))]
    return [value for value in typed if all(any(same(value, each) for each in other) for other in others)]


def _types_of(value: Any) -> tuple[str, ...]:
    if _is_number(value):
        return ("integer", "number") if value == int(value) else ("number",)
    names = ((bool, "boolean"), (str, "string"), (list, "array"), (dict, "object"))
    return tuple(name for kind, name in names if isinstance(value, kind)) or ("null",)


def _allows(asked: Any, kind: str) -> bool:
    """Return whether ``type`` allows a type: "number" includes the integers."""
    names = asked if isinstance(asked, list) else [asked]
    return kind in names or (kind == "integer" and "number" in names)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _get(schema: dict[str, Any], keyword: str, kind: type[Any]) -> Any:
    """Return the value of a keyword, or an empty value if it is absent, or of another type, as in some old drafts."""
    value = schema.get(keyword)
    return value if isinstance(value, kind) else kind()


def _pairs(mappings: list[dict[str, Any]]) -> Iterable[tuple[str, Any]]:
    return itertools.chain.from_iterable(each.items() for each in mappings)


def _items(part: dict[str, Any]) -> tuple[list[Schema], Schema]:
    """Return the schemas of the first items, and the schema of the rest."""
    if isinstance(part.get("items"), list):
        return part["items"], part.get("additionalItems", True)
    return part.get("prefixItems", []), part.get("items", True)


def _anchors(schema: Any) -> Iterator[tuple[str, Schema]]:
    """Yield the anchors of a schema, each with its subschema."""
    pending = [schema]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            # A dynamic anchor differs from a plain one only if an outer resource repeats its name. In that case, the
            # final check decides.
            for keyword in ("$anchor", "$dynamicAnchor"):
                if isinstance(current.get(keyword), str):
                    yield current[keyword], current
            pending += current.values()
        elif isinstance(current, list):
            pending += current
