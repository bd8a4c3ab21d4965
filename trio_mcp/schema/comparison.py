"""Compares two JSON Schemas: which values are valid under one, but not under the other.

The schemas come from a peer, so the comparison has a bounded cost, executes no pattern and fetches nothing. Where it
can't tell, it says so: it never claims that a schema was only widened, or only narrowed, without a proof. The keywords
are those of 2020-12. A keyword that is unknown there is an annotation, and so can't make a value invalid.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote

from trio_mcp import _attrs as attrs

__all__ = ["MISSING", "SchemaChange", "becomes", "canonical", "compare_schemas", "is_deeper"]

Change: TypeAlias = Literal["widened", "narrowed", "changed", "reads"]

# Arbitrary limits, beyond what real schemas need. Shared references multiply, so the work is counted, too. A
# unit takes about a microsecond: a comparison takes 100, and 20 characters of text one more.
MAX_DEPTH = 64
MAX_VALUES = 20_000
MAX_TEXT = 1_000_000
MAX_COMPARING = 1_000_000
MAX_CHANGES = 100
MAX_SHOWN = 100
"""The maximum number of characters of a value in a text."""

_TYPES: Final = ("null", "boolean", "string", "array", "object", "integer", "number")
_ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
# Keywords for subschemas in the same place: other keywords beside them don't describe the whole object.
_IN_PLACE: Final = ("$ref", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
# Keywords for subschemas of other places.
_INTO: Final = (
    *("properties", "patternProperties", "additionalProperties", "propertyNames"),
    *("items", "prefixItems", "contains"),
)
# Keywords whose effect depends on other places, so that parts of a schema with them can't be compared one by one.
_ENTANGLED: Final = (
    *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef", "$dynamicAnchor"),
    *("$recursiveAnchor", "$anchor", "dependencies", "additionalItems", "$vocabulary"),
)
# Keywords that are compared only as a whole.
_WHOLE: Final = ("format", "contentEncoding", "contentMediaType", "pattern")
_SCHEMAS: Final = ("not", "dependentSchemas", "contentSchema")
_DEFINITIONS: Final = ("$defs", "definitions")
_LEAST: Final = ("minLength", "minItems", "minProperties")
_MOST: Final = ("maxLength", "maxItems", "maxProperties")
MISSING: Final = object()
"""The argument of `becomes` for a value that is missing."""


@attrs.frozen
class SchemaChange:
    """A difference between two schemas.

    Attributes:
        change: ``"widened"``: what was valid still is, and more is valid. ``"narrowed"``: what is valid was valid
            before, and something no longer is. ``"changed"``: neither can be shown. ``"reads"``: the same values are
            valid, but the schema describes them differently.
        path: The place in the value, such as ``items[].price``; empty for the whole value.
        text: What has changed.
    """

    change: Change
    path: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def canonical(value: Any) -> str:
    """Return the one text of a JSON value: members sorted, ASCII only, without spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def is_deeper(value: Any, most: int) -> bool:
    """Return whether a JSON value is nested more than ``most`` levels deep, without recursion."""
    level = [value]
    for _ in range(most):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ())
        ]
        if not level:
            return False
    return any(isinstance(each, (Mapping, list)) for each in level)


def compare_schemas(before: Any, after: Any, *, closed: bool = False) -> tuple[SchemaChange, ...]:
    """Return what differs between two JSON Schemas; nothing if only the order of their members does.

    Args:
        before: The earlier schema, as JSON data.
        after: The later one.
        closed: Whether to assume that senders of values use only the properties that the earlier schema names, if it
            names any, and has no ``additionalProperties``. So a new optional property widens a schema, and a property
            that vanished narrows it. Without this assumption, a schema admits any property that it does not name.

    The schemas may be hostile: deep, huge, recursive. If they exceed a limit, the result is one ``"changed"``.
    """
    if problem := _problem(before) or _problem(after):
        return (SchemaChange("changed", "", f"the schemas can't be compared: {problem}"),)
    texts = canonical(before), canonical(after)
    if texts[0] == texts[1]:
        return ()
    if max(map(len, texts)) > MAX_TEXT:
        return (SchemaChange("changed", "", f"the schemas can't be compared: one has more than {MAX_TEXT} characters"),)
    try:
        found = _Comparison(before, after).compare(before, after, closed, "")
    except _TooMuch as exc:
        return (SchemaChange("changed", "", f"the schemas can't be compared: {exc}"),)
    # The texts differ, so there must be a difference, for example in definitions that nothing refers to.
    return _merged(found) or (SchemaChange("reads", "", "parts that no value is checked against have changed"),)


def _problem(schema: Any) -> str | None:
    """Return why a schema can't be compared, without recursion."""
    values, count = [(schema, 0)], 0
    while values:
        value, depth = values.pop()
        count += 1
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} levels deep"
        if count > MAX_VALUES:
            return f"it has more than {MAX_VALUES} parts"
        if isinstance(value, Mapping):
            values += [(each, depth + 1) for each in value.values()]
        elif isinstance(value, list):
            values += [(each, depth + 1) for each in value]
    return None


def _merged(found: Sequence[SchemaChange]) -> tuple[SchemaChange, ...]:
    unique = tuple(dict.fromkeys(found))
    if len(unique) <= MAX_CHANGES:
        return unique
    # The changes that are left out must not be the worst, so the most serious changes come first.
    ranked = sorted(unique, key=lambda each: ("changed", "narrowed", "widened", "reads").index(each.change))
    return (*ranked[:MAX_CHANGES], SchemaChange("changed", "", f"and {len(unique) - MAX_CHANGES} more changes"))


class _TooMuch(Exception):
    """The comparison would cost too much."""


class _Comparison:
    """Compares the parts of two schemas.

    A schema is the conjunction of its keywords: it is widened if each of them is widened or the same. So each keyword
    yields its changes, and they are collected.

    Args:
        before: The whole earlier schema, in which its references are looked up.
        after: The whole later one.
    """

    def __init__(self, before: Any, after: Any) -> None:
        self._roots = (before, after)
        self._left = MAX_COMPARING
        self._running: dict[tuple[int, int, bool], str] = {}
        # The schemas outlive this object, so their parts can be known by their ids.
        self._known: dict[int, tuple[bytes, int, bool]] = {}
        # References into definitions that are the same mean the same.
        definitions = [canonical([_object(each).get(name) for name in _DEFINITIONS]) for each in self._roots]
        self._same_definitions = definitions[0] == definitions[1] and _refers_to_definitions(definitions[0])

    def compare(self, before: Any, after: Any, closed: bool, path: str) -> list[SchemaChange]:
        """Return the changes between two subschemas."""
        (one, size, refers), (other, more, _) = self._text(before), self._text(after)
        self._left -= 100 + (size + more) // 20
        if self._left < 0:
            raise _TooMuch("that takes too long")
        if one == other and not refers:
            return []
        key = (id(before), id(after), closed)
        if key in self._running:
            # A comparison that leads back to itself adds nothing, if there is a step into the value between: a value is
            # finite, so what holds for its parts holds for it. Without such a step, the schema has no meaning.
            return [] if path != self._running[key] else [_changed(path, "refers to itself")]
        self._running[key] = path
        try:
            return self._compared(before, after, closed, path)
        finally:
            del self._running[key]

    def _text(self, schema: Any) -> tuple[bytes, int, bool]:
        """Return a digest of a subschema's text, its length, and whether it has references that may lead elsewhere."""
        found = self._known.get(id(schema))
        if found is None:
            text = canonical(schema)
            refers = 'ref":' in text and not (self._same_definitions and _refers_to_definitions(text))
            found = hashlib.sha256(text.encode()).digest(), len(text), refers
            if isinstance(schema, (Mapping, list)):
                self._known[id(schema)] = found
        return found

    def _compared(self, before: Any, after: Any, closed: bool, path: str) -> list[SchemaChange]:
        first, second = self._resolved(before, 0), self._resolved(after, 1)
        if first is None or second is None or _entangled(first) or _entangled(second):
            return [_changed(path, "uses keywords that can't be compared part by part")]
        if first is False or second is False:
            if first is second:
                return []
            return [SchemaChange("narrowed" if second is False else "widened", path, becomes(before, after))]
        # `additionalProperties` describes what a whole object may have only if nothing beside it names properties.
        whole = closed and _is_whole(first) and _is_whole(second)
        found = _annotations(first, second, path)
        found += _types(first, second, path)
        found += _enums(first, second, path)
        found += _bounds(first, second, path)
        found += _sizes(first, second, path)
        found += _required(first, second, path)
        found += [each for name in _WHOLE for each in _whole(name, first, second, path)]
        found += [each for name in _SCHEMAS for each in self._whole_schema(name, first, second, path)]
        # A schema that names no properties at all may well stand for any.
        found += self._properties(first, second, whole and "properties" in first, path)
        found += self._items(first, second, whole, path)
        found += self._contains(first, second, path)
        found += self._alternatives(first, second, whole, path)
        found += self._all_of(first, second, path)
        found += self._conditions(first, second, path)
        return found

    def _resolved(self, schema: Any, side: int) -> Any:
        """Return a subschema with its ``$ref`` replaced; None if it can't be read."""
        seen: set[int] = set()
        annotations: dict[str, Any] = {}
        while True:
            if schema is True:
                return annotations
            if schema is False:
                return False
            if not isinstance(schema, Mapping):
                return None
            # Inside an `$id`, references begin elsewhere.
            if "$id" in schema and schema is not self._roots[side]:
                return None
            if "$ref" not in schema:
                return {**schema, **annotations}
            # Only annotations may stand beside a reference: other keywords would be one more conjunction.
            if schema.keys() - {"$ref", "$id", *_DEFINITIONS, "$schema", *_ANNOTATIONS}:
                return None
            own = {name: schema[name] for name in _ANNOTATIONS if name in schema}
            annotations = {**own, **annotations}
            target = self._target(schema["$ref"], side)
            if target is MISSING or id(target) in seen:
                return None
            seen.add(id(target))
            schema = target

    def _target(self, ref: Any, side: int) -> Any:
        if not isinstance(ref, str) or (ref != "#" and not ref.startswith("#/")):
            return MISSING
        found = self._roots[side]
        for word in ref[2:].split("/") if ref != "#" else ():
            key = unquote(word).replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping) and key in found:
                found = found[key]
            elif isinstance(found, list) and key.isascii() and key.isdigit() and int(key[:9]) < len(found):
                found = found[int(key[:9])]
            else:
                return MISSING
            # A pointer that leads through an `$id` means something else for every implementation.
            if isinstance(found, Mapping) and isinstance(found.get("$id"), str):
                return MISSING
        return found

    def _whole_schema(self, name: str, before: Any, after: Any, path: str) -> list[SchemaChange]:
        """Return the change of a keyword whose schemas are compared only as a text."""
        if name in before and name in after and self._text(before[name])[2]:
            return [_changed(path, f"its {name} has references that may have changed")]
        return _whole(name, before, after, path)

    # --- objects ------------------------------------------------------------------------------------------------------

    def _properties(self, before: Any, after: Any, closed: bool, path: str) -> list[SchemaChange]:
        names = ("properties", "patternProperties")
        if any(not isinstance(each.get(name, {}), Mapping) for each in (before, after) for name in names):
            return [_changed(path, "its properties are malformed")]
        old, new = (_object(each.get("properties")) for each in (before, after))
        old_patterns, new_patterns = (_object(each.get("patternProperties")) for each in (before, after))
        old_rest, new_rest = (each.get("additionalProperties", True) for each in (before, after))
        found = self.compare(old_rest, new_rest, False, _below(path, "*"))
        if closed and "additionalProperties" not in before:
            found = [attrs.evolve(each, change="reads") for each in found]  # senders don't use them
        if old_patterns or new_patterns:
            found += self._patterns(old_patterns, new_patterns, path)
            # Which names match a pattern is not found out, so what a name is checked against without its own schema is
            # known only if all else is the same.
            if old.keys() != new.keys() and not (old_rest is True and new_rest is True):
                found.append(_changed(path, "names other properties, beside patterns for names"))
        required = {each for each in _list(after.get("required")) if isinstance(each, str)}
        for name in [*old, *(each for each in new if each not in old)]:
            place = _below(path, name)
            if name in old and name in new:
                found += self.compare(old[name], new[name], closed, place)
            elif closed and name in new and "additionalProperties" not in before:
                # That a new property is required is reported by `_required`.
                if name not in required:
                    found.append(SchemaChange("widened", place, "is new, and may be left out"))
            elif closed and name in old:
                # Even if it may still be sent, its meaning is unknown then.
                gone = new_rest is False or "additionalProperties" not in after
                found.append(SchemaChange("narrowed" if gone else "changed", place, "is gone"))
            elif name in new:
                found += self._named(self.compare(old_rest, new[name], False, place), place, "is new")
            else:
                found += self._named(self.compare(old[name], new_rest, False, place), place, "is gone")
        named = self.compare(before.get("propertyNames", True), after.get("propertyNames", True), False, path)
        return found + [attrs.evolve(each, text=f"the names of properties: {each.text}") for each in named]

    @staticmethod
    def _named(changes: list[SchemaChange], path: str, text: str) -> list[SchemaChange]:
        """Return the changes of a property that is named in one of the schemas only, as a single change."""
        kinds = {each.change for each in changes} - {"reads"}
        if not kinds:
            return [SchemaChange("reads", path, text)]
        return [SchemaChange(kinds.pop() if len(kinds) == 1 else "changed", path, text)]

    def _patterns(self, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> list[SchemaChange]:
        found = []
        for pattern in [*old, *(each for each in new if each not in old)]:
            place = _below(path, f"/{_short(pattern)}/")
            found += self.compare(old.get(pattern, True), new.get(pattern, True), False, place)
        if old.keys() != new.keys():
            found.append(_changed(path, "has other patterns for the names of properties"))
        return found

    # --- arrays -------------------------------------------------------------------------------------------------------

    def _items(self, before: Any, after: Any, closed: bool, path: str) -> list[SchemaChange]:
        old, new = before.get("items", True), after.get("items", True)
        # A list of schemas is that of older drafts, in which other keywords mean other things.
        if isinstance(old, list) or isinstance(new, list):
            return self._whole_schema("items", before, after, path)
        first, second = _list(before.get("prefixItems")), _list(after.get("prefixItems"))
        found = self.compare(old, new, closed, f"{path}[]")
        for place in range(max(len(first), len(second))):
            one = first[place] if place < len(first) else old
            other = second[place] if place < len(second) else new
            found += self.compare(one, other, closed, f"{path}[{place}]")
        return found

    def _contains(self, before: Any, after: Any, path: str) -> list[SchemaChange]:
        if "contains" not in before or "contains" not in after:
            if "contains" in after:
                return [SchemaChange("narrowed", path, "must contain certain items")]
            return [SchemaChange("widened", path, "need not contain certain items any more")] * ("contains" in before)
        if all(_same(name, before, after) for name in ("minContains", "maxContains")):
            inner = self.compare(before["contains"], after["contains"], False, f"{path}[]")
            # A limit on how many items match turns the direction around.
            if not inner or "maxContains" not in before:
                return inner
        return [_changed(path, "must contain other items")]

    # --- schemas in the same place ------------------------------------------------------------------------------------

    def _alternatives(self, before: Any, after: Any, closed: bool, path: str) -> list[SchemaChange]:
        found = []
        for name in ("anyOf", "oneOf"):
            old, new = before.get(name, MISSING), after.get(name, MISSING)
            if old is MISSING and new is MISSING:
                continue
            if not isinstance(old, list) or not isinstance(new, list):
                found += _whole(name, before, after, path)
                continue
            found += self._any_of(old, new, closed, path) if name == "anyOf" else self._one_of(old, new, path)
        return found

    def _any_of(self, old: list[Any], new: list[Any], closed: bool, path: str) -> list[SchemaChange]:
        if len(old) == len(new):
            pairs = [self.compare(one, other, closed, path) for one, other in zip(old, new, strict=True)]
            # If the order is the same, each change is reported at its own place.
            if all(_allows(each, "widened") or _allows(each, "narrowed") for each in pairs):
                return [change for each in pairs for change in each]
        found = []
        for one in old:
            if not any(_allows(self.compare(one, other, closed, path), "widened") for other in new):
                found.append(SchemaChange("narrowed", path, f"no longer allows {_short(one)}"))
        for other in new:
            if not any(_allows(self.compare(one, other, closed, path), "narrowed") for one in old):
                found.append(SchemaChange("widened", path, f"also allows {_short(other)}"))
        return found

    def _one_of(self, old: list[Any], new: list[Any], path: str) -> list[SchemaChange]:
        """Compare lists of which exactly one schema must match: a schema that admits more may make others fail."""
        if len(old) == len(new):
            pairs = [self.compare(one, other, False, path) for one, other in zip(old, new, strict=True)]
            if all(each.change == "reads" for changes in pairs for each in changes):
                return [change for each in pairs for change in each]
        return [_changed(path, "exactly one of other schemas must match")]

    def _all_of(self, before: Any, after: Any, path: str) -> list[SchemaChange]:
        old, new = _list(before.get("allOf")), _list(after.get("allOf"))
        if len(old) == len(new):
            pairs = [self.compare(one, other, False, path) for one, other in zip(old, new, strict=True)]
            if all(_allows(each, "widened") or _allows(each, "narrowed") for each in pairs):
                return [change for each in pairs for change in each]
        found = []
        for other in new:
            if not any(_allows(self.compare(one, other, False, path), "widened") for one in old):
                found.append(SchemaChange("narrowed", path, f"must also be {_short(other)}"))
        for one in old:
            if not any(_allows(self.compare(one, other, False, path), "narrowed") for other in new):
                found.append(SchemaChange("widened", path, f"need not be {_short(one)} any more"))
        return found

    def _conditions(self, before: Any, after: Any, path: str) -> list[SchemaChange]:
        names = ("if", "then", "else")
        if not any(name in before or name in after for name in names):
            return []
        if any(("if" in each) != ("if" in before) for each in (before, after)):
            change: Change = "narrowed" if "if" in after else "widened"
            return [SchemaChange(change, path, f"has {'a' if 'if' in after else 'no'} condition")]
        found = [
            change
            for name in names
            for change in self.compare(before.get(name, True), after.get(name, True), False, path)
            if change.change != "reads"
        ]
        return [_changed(path, "has another condition")] if found else []


# --- single keywords --------------------------------------------------------------------------------------------------


def _changed(path: str, text: str) -> SchemaChange:
    return SchemaChange("changed", path, text)


def _allows(changes: Sequence[SchemaChange], change: Change) -> bool:
    """Return whether all the changes are of one kind, or none that matters."""
    return all(each.change in (change, "reads") for each in changes)


def _entangled(schema: Any) -> bool:
    # `exclusiveMinimum: true` is of draft 4, where it changes the meaning of `minimum`.
    return isinstance(schema, Mapping) and (
        any(name in schema for name in _ENTANGLED)
        or any(isinstance(schema.get(name), bool) for name in ("exclusiveMinimum", "exclusiveMaximum"))
    )


def _is_whole(schema: Mapping[str, Any]) -> bool:
    """Return whether the properties of an object are named in one place: here, or in the alternatives."""
    others = [name for name in _IN_PLACE if name in schema]
    return not others or (others == ["anyOf"] and schema.keys().isdisjoint(_INTO))


def _mapping(value: Any) -> Mapping[str, Any] | None:
    """Return a mapping, empty if the value is missing; None for a value of another type."""
    return {} if value is None else value if isinstance(value, Mapping) else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _refers_to_definitions(text: str) -> bool:
    """Return whether each reference in a canonical text leads to a definition of the whole schema."""
    # Quotes in strings are escaped, so each match is a member. An `$id` would change where references begin.
    into = sum(text.count(f'"$ref":"#/{each}/') for each in _DEFINITIONS)
    return text.count('ref":') == into and '"$id":' not in text


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _below(path: str, name: str) -> str:
    return f"{path}.{_short(name)}" if path else _short(name)


def _short(value: Any) -> str:
    # The schema chose the value, so the text is made of printable ASCII, and cut.
    text = value if isinstance(value, str) else canonical(value)
    shown = "".join(each if each.isascii() and each.isprintable() else ascii(each)[1:-1] for each in text[:MAX_SHOWN])
    return shown if len(text) <= MAX_SHOWN else f"{shown}..."


def becomes(before: Any, after: Any) -> str:
    """Return a text that shows two JSON values, or `MISSING`, in printable ASCII, where they differ."""
    # A long text may differ only at its end, where a cut would hide it.
    if isinstance(before, str) and isinstance(after, str):
        pairs = enumerate(zip(before, after, strict=False))
        same = next((place for place, (one, other) in pairs if one != other), min(len(before), len(after)))
        if same > MAX_SHOWN // 2:
            before, after = (f"...{each[same - MAX_SHOWN // 4 :]}" for each in (before, after))
    shown = ["nothing" if each is MISSING else f"'{_short(each)}'" for each in (before, after)]
    return f"was {shown[0]}, is {shown[1]}"


def _same(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    if (name in before) != (name in after):
        return False
    return name not in before or canonical(before[name]) == canonical(after[name])


def _annotations(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    known = {"type", "enum", "const", "required", "properties", "patternProperties", "additionalProperties"}
    known |= {"propertyNames", "items", "prefixItems", "contains", "minContains", "maxContains", "uniqueItems"}
    known |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "dependentRequired"}
    known |= {*_IN_PLACE, *_ENTANGLED, *_WHOLE, *_SCHEMAS, *_LEAST, *_MOST, *_DEFINITIONS, "$schema", "$id"}
    found = [
        SchemaChange("reads", path, f"{_short(name)} {becomes(before.get(name, MISSING), after.get(name, MISSING))}")
        for name in sorted((before.keys() | after.keys()) - known)
        if not _same(name, before, after)
    ]
    # Another dialect gives other meanings to the same keywords.
    return found + ([] if _same("$schema", before, after) else [_changed(path, "is written in another dialect")])


def _subset(path: str, text: str, wider: bool, narrower: bool) -> list[SchemaChange]:
    """Return the change of a keyword.

    Args:
        path: The place.
        text: What has changed.
        wider: Whether all that it admitted is still admitted.
        narrower: Whether all that it admits was admitted before.
    """
    if wider and narrower:
        return []
    return [SchemaChange("widened" if wider else "narrowed" if narrower else "changed", path, text)]


def _type_names(schema: Mapping[str, Any]) -> set[str] | None:
    """Return the types that a schema admits; None if they can't be told."""
    given = schema.get("type", MISSING)
    if given is MISSING:
        values = _values(schema)
        # Without a type, the values that are admitted decide about it.
        return set(_TYPES) if values is None else {_type_of(json.loads(each)) for each in values}
    names = {given} if isinstance(given, str) else given if isinstance(given, list) else []
    if not names or not all(isinstance(each, str) and each in _TYPES for each in names):
        return None
    return {*names, "integer"} if "number" in names else set(names)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case int():
            return "integer"
    return "integer" if math.isfinite(value) and value == int(value) else "number"


def _types(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    old, new = _type_names(before), _type_names(after)
    if old is None or new is None:
        return _whole("type", before, after, path)
    text = f"its type {becomes(before.get('type', MISSING), after.get('type', MISSING))}"
    return _subset(path, text, old <= new, new <= old)


def _plain(value: Any) -> Any:
    """Return a JSON value in which equal numbers are written in the same way: 1.0 is 1."""
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {name: _plain(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _values(schema: Mapping[str, Any]) -> set[str] | None:
    """Return the values that ``enum`` and ``const`` admit, as texts; None if there is neither."""
    found: set[str] | None = None
    if isinstance(schema.get("enum"), list):
        found = {canonical(_plain(each)) for each in schema["enum"]}
    if "const" in schema:
        only = {canonical(_plain(schema["const"]))}
        found = only if found is None else found & only
    return found


def _enums(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    old, new = _values(before), _values(after)
    if old is None or new is None:
        wider, narrower = new is None, old is None
        text = "is limited to certain values" if old is None else "is not limited to certain values any more"
        return _subset(path, text, wider, narrower)
    gone, come = sorted(old - new), sorted(new - old)
    text = " and ".join(
        [f"no longer admits {_short(', '.join(gone))}"] * bool(gone)
        + [f"also admits {_short(', '.join(come))}"] * bool(come)
    )
    return _subset(path, text, not gone, not come)


def _number(value: Any) -> bool:
    return type(value) in (int, float) and (type(value) is int or math.isfinite(value))


def _bound(schema: Mapping[str, Any], inclusive: str, exclusive: str, sign: int) -> tuple[float, bool] | None:
    """Return the strictest bound, times ``sign``, and whether it is exclusive; None if it can't be read."""
    found: tuple[float, bool] = (-math.inf, False)
    for name, is_open in ((inclusive, False), (exclusive, True)):
        value = schema.get(name, MISSING)
        if value is MISSING:
            continue
        if not _number(value):
            return None
        found = max(found, (sign * value, is_open))
    return found


def _bounds(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    found = []
    for inclusive, exclusive, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        old, new = (_bound(each, inclusive, exclusive, sign) for each in (before, after))
        if old is None or new is None:
            found += _whole(inclusive, before, after, path) + _whole(exclusive, before, after, path)
            continue
        shown = [each.get(inclusive, each.get(exclusive, MISSING)) for each in (before, after)]
        found += _subset(path, f"its {inclusive} {becomes(*shown)}", new <= old, old <= new)
    old_step, new_step = (each.get("multipleOf", MISSING) for each in (before, after))
    if old_step is MISSING or new_step is MISSING or not _same("multipleOf", before, after):
        text = f"its step {becomes(old_step, new_step)}"
        found += _subset(path, text, _divides(new_step, old_step), _divides(old_step, new_step))
    return found


def _divides(step: Any, multiple: Any) -> bool:
    """Return whether every multiple of one number is known to be one of another; a missing number admits anything."""
    if step is MISSING:
        return True
    # Only integers are compared: dividing floats is not exact.
    return type(step) is int and type(multiple) is int and step > 0 and multiple > 0 and multiple % step == 0


def _sizes(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    found = []
    for names, default, sign in ((_LEAST, 0, 1), (_MOST, math.inf, -1)):
        for name in names:
            old, new = before.get(name, default), after.get(name, default)
            if not all(value == math.inf or _number(value) for value in (old, new)):
                found += _whole(name, before, after, path)
                continue
            shown = becomes(before.get(name, MISSING), after.get(name, MISSING))
            found += _subset(path, f"its {name} {shown}", sign * new <= sign * old, sign * old <= sign * new)
    old, new = before.get("uniqueItems", False), after.get("uniqueItems", False)
    if not isinstance(old, bool) or not isinstance(new, bool):
        return found + _whole("uniqueItems", before, after, path)
    text = "its items must differ" if new else "its items need not differ any more"
    return found + _subset(path, text, old or not new, new or not old)


def _required(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    old, new = ({each for each in _list(one.get("required")) if isinstance(each, str)} for one in (before, after))
    found = [SchemaChange("narrowed", _below(path, name), "is required now") for name in sorted(new - old)]
    found += [SchemaChange("widened", _below(path, name), "need not be given any more") for name in sorted(old - new)]
    first, second = (_mapping(each.get("dependentRequired")) for each in (before, after))
    if first is None or second is None:
        return found + _whole("dependentRequired", before, after, path)
    for name in sorted(first.keys() | second.keys()):
        then, now = ({each for each in _list(one.get(name)) if isinstance(each, str)} for one in (first, second))
        found += _subset(_below(path, name), "needs other properties beside it", now <= then, then <= now)
    return found


def _whole(name: str, before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[SchemaChange]:
    """Return the change of a keyword that only its text is known of."""
    if _same(name, before, after):
        return []
    text = f"its {name} {becomes(before.get(name, MISSING), after.get(name, MISSING))}"
    return _subset(path, text, name not in after, name not in before)
