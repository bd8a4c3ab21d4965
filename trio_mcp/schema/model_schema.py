"""Says a tool's input schema in the dialect of a model, and maps the model's arguments back.

A dialect lacks most of JSON Schema, but nearly every value can be asked for in another form: a map as a list of pairs,
a tuple as an object, an optional property as one that may be null, anything else as JSON in a string. So a conversion
never narrows what a model may say; what it can't say are constraints, which the server checks anyway. These are its
losses.

A schema may come from a peer. Its validity, size, depth and references are checked first, and what is made of it is
bounded, too: references are replaced by what they refer to, which can multiply.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from trio_mcp import _attrs as attrs
from trio_mcp.schema.dialects import (
    FORMATS,
    LIMITS,
    NAME,
    SHAPING,
    DialectName,
    check_dialect,
    looks_around,
    pointer,
)
from trio_mcp.schema.model_forms import (
    ANY_KIND,
    KEY,
    VALUE,
    DefinitionForm,
    JsonText,
    Labels,
    ListForm,
    Nullable,
    Pairs,
    Record,
    RecordField,
    Same,
    TupleForm,
    UnionForm,
    UnionOption,
    ValueForm,
    Wrapped,
    kind_of,
)
from trio_mcp.schema.validator import SchemaError, SchemaValidator

__all__ = ["ModelSchema", "SchemaLoss"]

# Far beyond what a model can use; each part becomes one of the schema for the model.
MAX_PARTS = 5_000
# Python's own limit on recursion is not far above the calls that this takes.
MAX_DEPTH = 40
# A shape is described in words up to this length (arbitrary).
MAX_DESCRIBED = 1_000

ROOT = "arguments"
"""The property that has all arguments if they are not an object with properties."""
EXTRA = "additional_properties"
"""The property that has those without names in the schema."""

_ANNOTATIONS = ("title", "description")
_UNCHECKED: Mapping[str, str] = {
    **{key: key for key in ("uniqueItems", "propertyNames", "not", "if")},
    **dict.fromkeys(("contains", "minContains", "maxContains"), "contains"),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "dependencies"), "dependentRequired"),
}
"""Keywords that no dialect has, with the constructs that they belong to."""
_CONSTRAINTS: Mapping[str, Sequence[str]] = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format"),
    "array": ("minItems", "maxItems"),
    "object": ("minProperties", "maxProperties"),
    "boolean": (),
}
_LACKING: Mapping[str, Mapping[str, str]] = {
    "gemini": {
        **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), "exclusiveMinimum, exclusiveMaximum"),
        "multipleOf": "multipleOf",
    },
    "openai-strict": {
        **dict.fromkeys(("minLength", "maxLength"), "minLength, maxLength"),
        **dict.fromkeys(("minProperties", "maxProperties"), "minProperties, maxProperties"),
    },
}
"""The keywords in `_CONSTRAINTS` that a dialect lacks, with their constructs."""
_TIGHTER: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), max),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), min),
}
_COUNTS = {"minProperties": "minItems", "maxProperties": "maxItems"}
"""The bounds of properties, and those of the pairs that stand for them."""
_NEXT = {"exclusiveMinimum": ("minimum", 1), "exclusiveMaximum": ("maximum", -1)}
"""Exclusive bounds, the others that say the same of integers, and how far these are from them."""

_Made = tuple[dict[str, Any], ValueForm]


class SchemaLoss(NamedTuple):
    """Something that a tool's input schema says, and the schema for the model does not.

    Attributes:
        path: A JSON pointer to the subschema.
        construct: What is lost: a construct of the table in the documentation.
    """

    path: str
    construct: str

    def __str__(self) -> str:
        return f"{self.construct} at {self.path or 'the root'}"


class ModelSchema:
    """A tool's input schema in the dialect of a model, with the way back for the model's arguments.

    Args:
        schema: The input schema of the tool.
        dialect: ``"gemini"``, for the parameters of a ``FunctionDeclaration``, or ``"openai-strict"``, for a function
            with ``strict: true``.

    Raises:
        SchemaError: If the schema is invalid, too large or too deep, or refers to something outside itself; it is a
            `ValueError`.
        TypeError, ValueError: If there is no such dialect.
    """

    def __init__(self, schema: Mapping[str, Any], dialect: DialectName) -> None:
        check_dialect(dialect)
        if not isinstance(schema, Mapping):
            raise TypeError(f"an input schema must be a mapping, not {type(schema).__name__}")
        root = dict(schema)
        _check(root)
        conversion = _Conversion(root, dialect)
        self._schema, self._form = conversion.whole(0)
        if not isinstance(self._form, Record):  # both dialects want an object with properties
            conversion = _Conversion(root, dialect)
            self._schema, self._form = conversion.whole(1)
        self._losses = tuple(SchemaLoss(*each) for each in conversion.losses)

    @property
    def schema(self) -> dict[str, Any]:
        """The schema to give to the model."""
        return self._schema

    @property
    def losses(self) -> tuple[SchemaLoss, ...]:
        """The rules that the model is not told. It may break them; then the server refuses the call."""
        return self._losses

    def from_model(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that the model means, for `Client.call_tool`.

        What does not have the form that the model was asked for stays as it is, for the server to judge.
        """
        return self._mapped(self._form.back, arguments)

    def for_model(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return what the model gives for these arguments, for calls in a conversation that is shown to it again."""
        return self._mapped(self._form.forth, arguments)

    def _mapped(self, function: Callable[[Any], Any], arguments: dict[str, Any]) -> dict[str, Any]:
        if self._form.same:
            return arguments
        try:
            found = function(arguments)
        except RecursionError:  # no schema with a use is nested as deeply
            return arguments
        return found if isinstance(found, dict) else arguments


@attrs.frozen
class _Place:
    """Where a subschema is.

    Attributes:
        path: A JSON pointer to it in the original.
        level: How many objects are around it in the schema for the model.
        depth: How many subschemas are.
        open: The references that are being followed.
    """

    path: str = ""
    level: int = 0
    depth: int = 0
    open: frozenset[str] = frozenset()

    def below(self, *steps: str, levels: int = 0) -> _Place:
        path = self.path + "".join(f"/{pointer(step)}" for step in steps)
        return _Place(path, self.level + levels, self.depth + 1, self.open)

    def at(self, target: str, opened: bool) -> _Place:
        return _Place(target, self.level, self.depth + 1, self.open | {target} if opened else self.open)


class _Conversion:
    """One conversion of one schema."""

    def __init__(self, root: dict[str, Any], dialect: str) -> None:
        self._root = root
        self._dialect = dialect
        self._strict = dialect == "openai-strict"
        self._limits = LIMITS[dialect]
        self._parts = self._properties = self._values = self._characters = 0
        self._recursive = _recursive(root)
        self._definitions: dict[str, tuple[str, DefinitionForm]] = {}
        self._waiting: list[str] = []
        # A dict is used as a set that keeps the order.
        self.losses: dict[tuple[str, str], None] = {}

    def whole(self, level: int) -> _Made:
        """Convert the root, and the definitions that it needs.

        Args:
            level: How many objects to put around the root.
        """
        schema, form = self._converted(self._root, _Place(level=level))
        if level:
            schema, form = self._object_of({ROOT: schema}), Wrapped(ROOT, form)
        definitions = {}
        while self._waiting:
            target = self._waiting.pop(0)
            name, definition = self._definitions[target]
            definitions[name], definition.form = self._converted(_resolved(self._root, target), _Place(target, level=1))
        return ({**schema, "$defs": definitions} if definitions else schema), form

    def _lose(self, place: _Place, construct: str) -> None:
        self.losses.setdefault((place.path, construct))

    def _converted(self, schema: Any, place: _Place) -> _Made:
        self._parts += 1
        if self._parts > MAX_PARTS or place.depth > MAX_DEPTH:
            return self._too_large(schema, place)
        if not isinstance(schema, dict):
            return self._text({}, place)
        if isinstance(schema.get("$ref"), str):
            return self._referenced(schema, place)
        schema, place = self._merged(schema, place)
        if isinstance(schema.get("$ref"), str):
            return self._referenced(schema, place)
        for keyword, construct in _UNCHECKED.items():
            if keyword in schema and schema[keyword] not in (False, {}):
                self._lose(place, construct)
        if (
            schema.get("unevaluatedProperties", False) is not False
            or schema.get("unevaluatedItems", False) is not False
        ):
            self._lose(place, "unevaluatedProperties")
        if isinstance(schema.get("anyOf"), list) or isinstance(schema.get("oneOf"), list):
            return self._union(schema, place)
        if "const" in schema or isinstance(schema.get("enum"), list):
            return self._enumerated(schema, place)
        return self._typed(schema, place)

    # References

    def _referenced(self, schema: dict[str, Any], place: _Place) -> _Made:
        target = _target(schema["$ref"])
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        recursive = target in self._recursive
        if recursive and self._strict:
            return self._defined(target)
        if target in place.open:
            self._lose(place, "recursion")
            return self._text(schema, place)
        found = self._joined(_resolved(self._root, target), beside, place)
        return self._converted(found, place.at(target, recursive))

    def _defined(self, target: str) -> _Made:
        if target not in self._definitions:
            base = "".join(each if each.isalnum() else "_" for each in target.rpartition("/")[2])[:40] or "root"
            name = _unused(base, {name for name, _ in self._definitions.values()})
            shape = _shape_of_definition(_resolved(self._root, target))
            self._definitions[target] = name, DefinitionForm(ANY_KIND if shape is None else shape.kinds)
            self._waiting.append(target)
        name, form = self._definitions[target]
        return {"$ref": f"#/$defs/{name}"}, form

    def _merged(self, schema: dict[str, Any], place: _Place) -> tuple[dict[str, Any], _Place]:
        """Return the schema without ``allOf``, whose members are merged into it."""
        while isinstance(schema.get("allOf"), list):
            self._parts += 1
            if self._parts > MAX_PARTS:
                return {}, place
            found = {key: value for key, value in schema.items() if key != "allOf"}
            members = [each for each in schema["allOf"] if isinstance(each, dict)]
            if len(members) == 1 and members[0].keys() == {"$ref"} and "$ref" not in found:
                return {**found, **members[0]}, place
            for member in members:
                while isinstance(member.get("$ref"), str):
                    target = _target(member["$ref"])
                    self._parts += 1
                    if target in place.open or self._parts > MAX_PARTS:
                        self._lose(place, "recursion")
                        member = {}
                        break
                    place = attrs.evolve(place, open=place.open | ({target} & self._recursive))
                    beside = {key: value for key, value in member.items() if key != "$ref"}
                    resolved = _resolved(self._root, target)
                    member = self._joined(resolved if isinstance(resolved, dict) else {}, beside, place)
                found = {
                    **self._joined(found, member, place),
                    **{key: found[key] for key in _ANNOTATIONS if key in found},
                }
            schema = found
        return schema, place

    def _joined(self, one: Any, other: Any, place: _Place) -> Any:
        """Return a schema for the values that conform to both, and maybe to others."""
        if one is False or other is False:
            return False
        if not isinstance(one, dict) or not isinstance(other, dict):
            return one if isinstance(one, dict) else other
        found = dict(one)
        for key, value in other.items():
            if key not in found or found[key] == value or key in (*_ANNOTATIONS, "default"):
                found[key] = value
            elif key == "properties":
                found[key] = {
                    **found[key],
                    **{
                        name: {"allOf": [found[key][name], each]} if name in found[key] else each
                        for name, each in value.items()
                    },
                }
            elif key == "required":
                found[key] = list(dict.fromkeys([*found[key], *value]))
            elif key == "allOf":
                found[key] = [*found[key], *value]
            elif key == "type":
                found[key] = _both(found[key], value)
            elif key == "enum":
                found[key] = [each for each in value if each in found[key]]
            elif key in ("additionalProperties", "items") and isinstance(value, dict) and isinstance(found[key], dict):
                found[key] = {"allOf": [found[key], value]}
            elif key == "additionalProperties":
                found[key] = False if value is False or found[key] is False else found[key]
            elif key in _TIGHTER:
                found[key] = _TIGHTER[key](found[key], value)
            elif not key.startswith("$"):
                self._lose(place, "allOf")
        return found

    # Values of one type

    def _typed(self, schema: dict[str, Any], place: _Place) -> _Made:
        kinds = _kinds(schema)
        named = [kind for kind in kinds if kind != "null"]
        if len(named) > 1:
            options = [({**schema, "type": kind}, place) for kind in named]
            made = self._alternatives([(_without(each, *_ANNOTATIONS), at) for each, at in options], schema, place)
        elif not named:
            if not kinds:
                return self._text(schema, place)
            return self._enumerated({**schema, "enum": [None]}, place)
        elif named == ["object"]:
            made = self._object(schema, place)
        elif named == ["array"]:
            made = self._array(schema, place)
        else:
            made = {**self._said(schema, named[0], place)}, Same(frozenset(named))
        return self._nullable(*made) if "null" in kinds else made

    def _said(self, schema: Mapping[str, Any], kind: str, place: _Place) -> dict[str, Any]:
        """Return what the dialect can say of a schema with one type, without what is inside an object or array."""
        found = {"type": kind, **{key: schema[key] for key in _ANNOTATIONS if key in schema}}
        lacking = _LACKING[self._dialect]
        for key in _CONSTRAINTS.get(kind, ()):
            if key not in schema:
                continue
            value = schema[key]
            if kind == "integer" and key in lacking and key in _NEXT and type(value) is int:
                bound, step = _NEXT[key]
                found[bound] = _TIGHTER[bound](value + step, found.get(bound, value + step))
            elif key in lacking or isinstance(value, bool):  # draft-04 has booleans here
                self._lose(place, lacking.get(key, "exclusiveMinimum, exclusiveMaximum"))
            elif key == "format" and value not in FORMATS[self._dialect]:
                self._lose(place, "format")
            elif key == "pattern" and looks_around(value):
                self._lose(place, "pattern with look-around")
            else:
                found[key] = value
        return found

    def _enumerated(self, schema: dict[str, Any], place: _Place) -> _Made:
        kinds = _kinds(schema)
        values = schema["enum"] if "const" not in schema else [schema["const"]]
        if kinds:
            values = [
                value
                for value in values
                if kind_of(value) in kinds or (kind_of(value) == "integer" and "number" in kinds)
            ]
        null = None in values
        values = [value for value in values if value is not None]
        self._values += len(values)
        self._characters += sum(len(value) for value in values if isinstance(value, str))
        if self._values > self._limits.values or self._characters > self._limits.characters:
            self._lose(place, "too many values")
            left = list(dict.fromkeys(kind_of(value) for value in values)) + (["null"] if null else [])
            return self._typed({**_without(schema, "enum", "const"), "type": left}, place)
        notes = {key: schema[key] for key in _ANNOTATIONS if key in schema}
        if not values and not null:  # no value conforms
            return self._text(schema, place)
        if not values:
            # Null alone: a label is all that both dialects can ask for.
            return {"type": "string", **notes, "enum": ["null"]}, Labels({"null": None})
        types = {kind_of(value) for value in values}
        made: _Made
        if types == {"string"} and (self._strict or all(values)):
            made = {"type": "string", **notes, "enum": values}, Same(frozenset(types), frozenset(values))
        elif self._strict and (len(types) == 1 or types == {"integer", "number"}) and not types & {"array", "object"}:
            only = "number" if len(types) > 1 else next(iter(types))
            made = {"type": only, **notes, "enum": values}, Same(frozenset([only]))
        else:
            labels = _labels(values)
            made = {"type": "string", **notes, "enum": list(labels)}, Labels(labels)
        return self._nullable(*made) if null else made

    def _text(self, schema: Mapping[str, Any], place: _Place) -> _Made:
        """Ask for JSON in a string."""
        notes = {key: schema[key] for key in _ANNOTATIONS if key in schema}
        target = _target(schema["$ref"]) if isinstance(schema.get("$ref"), str) else None
        resolved = _resolved(self._root, target) if target is not None else _without(schema, *_ANNOTATIONS, "default")
        shape = _dumped(resolved) if resolved else ""
        hint = f"JSON text that conforms to this schema: {shape}" if shape else "JSON text"
        if isinstance(own := notes.get("description"), str):
            hint = f"{own} ({hint})"
        return {"type": "string", **notes, "description": hint}, JsonText()

    def _too_large(self, schema: Any, place: _Place) -> _Made:
        self._lose(place, "too deep or too large")
        return {"type": "string", "description": "JSON text"}, JsonText()

    def _nullable(self, schema: dict[str, Any], form: ValueForm) -> _Made:
        if "null" in form.kinds and not isinstance(form, DefinitionForm):
            return schema, form
        options = schema.get("anyOf")
        if self._strict:
            null = {"type": "null"}
            if options is not None:
                return {**schema, "anyOf": [*options, null]}, Nullable(form)
            outside = {key: schema[key] for key in _ANNOTATIONS if key in schema}
            return {"anyOf": [_without(schema, *outside), null], **outside}, Nullable(form)
        if options is not None:  # beside `anyOf`, Gemini wants nothing else
            return {**schema, "anyOf": [{**options[0], "nullable": True}, *options[1:]]}, Nullable(form)
        return {**schema, "nullable": True}, Nullable(form)

    # Objects and arrays

    def _object_of(self, properties: dict[str, Any], required: Iterable[str] | None = None) -> dict[str, Any]:
        self._properties += len(properties)
        self._characters += sum(map(len, properties))
        found = {"type": "object", "properties": properties}
        names = list(properties) if self._strict or required is None else list(required)
        if names or self._strict:
            found["required"] = names
        return {**found, "additionalProperties": False} if self._strict else found

    def _full(self, place: _Place, names: Iterable[str]) -> bool:
        """Return whether an object with these properties would exceed a limit."""
        names = list(names)
        return (
            place.level >= self._limits.levels
            or self._properties + len(names) > self._limits.properties
            or self._characters + sum(map(len, names)) > self._limits.characters
        )

    def _object(self, schema: dict[str, Any], place: _Place) -> _Made:
        root = place.path == "" and place.level == 0
        properties = {name: each for name, each in _mapping(schema, "properties").items() if each is not False}
        required = [name for name in schema.get("required", []) if isinstance(name, str)]
        named = bool(properties)
        open_to, extra_path = self._extra(schema, place)
        properties.update((name, {}) for name in required if name not in properties)
        if self._full(place, properties):
            return self._too_large(schema, place)
        if not named and not root:
            closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
            if isinstance(open_to, dict) and open_to:
                return self._pairs(schema, open_to, extra_path, place)
            if not closed or required or not self._strict:
                return self._text(schema, place)
        self._properties += len(properties)
        said: dict[str, Any] = {}
        fields: dict[str, RecordField] = {}
        for name, each in properties.items():
            below = place.below("properties", name, levels=1)
            alias = name if self._strict or NAME.fullmatch(name) else _unused(_alias(name), {*fields, *properties})
            said[alias], fields[alias] = self._property(name, each, name in required, below)
        extra = None
        if open_to is not None:
            extra = _unused(EXTRA, {*fields})
            pairs, form = self._pairs({}, open_to, extra_path, attrs.evolve(place, level=place.level + 1))
            pairs["description"] = "Further properties of this object, by name"
            if self._strict:
                pairs, form = self._nullable(pairs, form)
            said[extra], fields[extra] = pairs, RecordField(extra, form, self._strict, self._strict)
            if any(key in schema for key in _COUNTS):
                self._lose(place, "minProperties, maxProperties")
                schema = _without(schema, *_COUNTS)
        self._properties -= len(properties)  # counted again below, with the others
        found = self._object_of(said, [name for name, each in fields.items() if each.required])
        return {**self._said(schema, "object", place), **found}, Record(fields, extra)

    def _property(self, name: str, schema: Any, required: bool, place: _Place) -> tuple[dict[str, Any], RecordField]:
        made, form = self._converted(schema, place)
        if required or not self._strict:
            return made, RecordField(name, form, required, False)
        if "null" in form.kinds:
            # The model must give each property, so null is all that it can say, both of null and of nothing.
            if not isinstance(schema, dict) or "default" not in schema or schema["default"] is not None:
                self._lose(place, "optional property that may be null")
            if not isinstance(form, DefinitionForm):
                return made, RecordField(name, form, True, True)
        return self._nullable(made, form)[0], RecordField(name, form, True, True)

    def _extra(self, schema: Mapping[str, Any], place: _Place) -> tuple[Any, _Place]:
        """Return the schema of properties without names, None without such; and its place."""
        patterns = _mapping(schema, "patternProperties")
        more = schema.get("additionalProperties")
        if patterns:
            self._lose(place, "patternProperties")
            if len(patterns) == 1 and more is False:
                ((name, only),) = patterns.items()
                return only, place.below("patternProperties", name, levels=1)
            return True, place.below("patternProperties", levels=1)
        if more is None or more is False:
            return None, place
        return more, place.below("additionalProperties", levels=1)

    def _pairs(self, schema: dict[str, Any], value: Any, value_place: _Place, place: _Place) -> _Made:
        if self._full(place, (KEY, VALUE)):
            return self._too_large(schema, place)
        counts = {said: schema[key] for key, said in _COUNTS.items() if key in schema}
        made, form = self._converted(value, attrs.evolve(value_place, level=place.level + 1))
        pair = self._object_of({KEY: {"type": "string"}, VALUE: made})
        notes = {key: schema[key] for key in _ANNOTATIONS if key in schema}
        return {"type": "array", **notes, **counts, "items": pair}, Pairs(form)

    def _array(self, schema: dict[str, Any], place: _Place) -> _Made:
        items = schema.get("items")
        prefix = schema.get("prefixItems", items if isinstance(items, list) else None)
        if isinstance(prefix, list) and prefix:
            return self._tuple(schema, prefix, place)
        below = place.below("items")
        made, form = self._converted(True if items is None or isinstance(items, list) else items, below)
        return {**self._said(schema, "array", place), "items": made}, ListForm(form)

    def _tuple(self, schema: dict[str, Any], prefix: list[Any], place: _Place) -> _Made:
        count = len(prefix)
        fixed = schema.get("minItems", 0) >= count and (
            schema.get("maxItems", count + 1) == count
            or schema.get("items") is False
            or schema.get("additionalItems") is False
        )
        if not fixed:
            return self._text(schema, place)
        if all(each == prefix[0] for each in prefix):
            alike = {**_without(schema, "prefixItems", "additionalItems"), "items": prefix[0]}
            return self._array({**alike, "minItems": count, "maxItems": count}, place)
        names = [f"item_{number}" for number in range(1, count + 1)]
        if self._full(place, names):
            return self._too_large(schema, place)
        made = [
            self._converted(each, place.below("prefixItems", str(index), levels=1)) for index, each in enumerate(prefix)
        ]
        said = {name: each for name, (each, _) in zip(names, made, strict=True)}
        forms = {name: form for name, (_, form) in zip(names, made, strict=True)}
        notes = {key: schema[key] for key in _ANNOTATIONS if key in schema}
        return {**notes, **self._object_of(said)}, TupleForm(forms)

    # Unions

    def _union(self, schema: dict[str, Any], place: _Place) -> _Made:
        keyword = "anyOf" if isinstance(schema.get("anyOf"), list) else "oneOf"
        branches = schema[keyword]
        rest = _without(schema, "anyOf", "oneOf", "discriminator", "default", *_ANNOTATIONS)
        if keyword == "anyOf" and isinstance(schema.get("oneOf"), list):
            self._lose(place, "oneOf")
        if rest and not any(isinstance(each, dict) and any(key in each for key in SHAPING) for each in branches):
            self._lose(
                place, "anyOf of restrictions" if keyword == "anyOf" else keyword
            )  # the branches only restrict what the schema says beside them
            return self._converted(_without(schema, "anyOf", "oneOf"), place)
        tag = _mapping(schema, "discriminator").get("propertyName")
        options = []
        for index, branch in enumerate(branches):
            below = place.below(keyword, str(index))
            if isinstance(tag, str):  # a discriminator requires the tag, even one with a default
                branch, below = self._looked_up(branch, below)
                branch = self._joined(branch, {"required": [tag]}, below)
            options.append((self._joined(branch, rest, below) if rest else branch, below))
        return self._alternatives(options, schema, place, exclusive=keyword == "oneOf" and tag is None)

    def _looked_up(self, schema: Any, place: _Place) -> tuple[Any, _Place]:
        """Return the definition that a branch refers to, unless that would go round in circles."""
        if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
            target = _target(schema["$ref"])
            resolved = _resolved(self._root, target)
            if target not in self._recursive and isinstance(resolved, dict):
                return self._joined(resolved, _without(schema, "$ref"), place), place.at(target, False)
        return schema, place

    def _alternatives(
        self,
        options: list[tuple[Any, _Place]],
        annotated: Mapping[str, Any],
        place: _Place,
        *,
        exclusive: bool = False,
    ) -> _Made:
        notes = {key: annotated[key] for key in _ANNOTATIONS if key in annotated}
        nulls = [each for each, _ in options if isinstance(each, dict) and each.get("type") == "null"]
        options = [(each, at) for each, at in options if each is not False and each not in nulls]
        made = [(each, *self._converted(each, at)) for each, at in options]
        if not made:
            return self._enumerated({**notes, "enum": [None]}, place) if nulls else self._text(annotated, place)
        if len(made) == 1:
            ((_, schema, form),) = made
            found = (schema, form) if "$ref" in schema else ({**schema, **notes}, form)
        else:
            found = self._told_apart(made, notes, place, exclusive)
        return self._nullable(*found) if nulls else found

    def _told_apart(
        self, made: list[tuple[Any, dict[str, Any], ValueForm]], notes: dict[str, Any], place: _Place, exclusive: bool
    ) -> _Made:
        shapes = [self._shape(original, form) for original, _, form in made]
        alike = (
            [
                {other for other in range(len(made)) if other != index and shapes[index].meets(shapes[other])}
                for index in range(len(made))
            ]
            if len(made) <= self._limits.values
            else [set(range(len(made)))] * len(made)
        )
        if exclusive and any(alike):
            self._lose(place, "oneOf")
        wrapping = [bool(alike[index]) and not form.same for index, (_, _, form) in enumerate(made)]
        height = max(
            (_height(schema) for (_, schema, _), wrapped in zip(made, wrapping, strict=True) if wrapped), default=0
        )
        if any(wrapping) and place.level + 1 + height > self._limits.levels:
            return self._too_large(notes, place)
        taken = {name for shape in shapes for name in shape.names or ()}
        schemas, options = [], []
        for index, (original, schema, form) in enumerate(made):
            if wrapping[index]:
                name = _unused(f"option_{index + 1}", taken)
                schema, form = self._object_of({name: schema}), Wrapped(name, form)
            schemas.append(schema)
            options.append(UnionOption(form, self._test(original)))
        if self._strict:
            return {"anyOf": schemas, **notes}, UnionForm(options)
        if isinstance(said := notes.get("description"), str):  # beside `anyOf`, Gemini wants nothing else
            own = schemas[0].get("description")
            schemas[0] = {**schemas[0], "description": f"{said} {own}" if own else said}
        return {"anyOf": schemas}, UnionForm(options)

    def _shape(self, original: Any, form: ValueForm) -> _Shape:
        if isinstance(form, Record):
            tags = {name: field.tags for name, field in form.fields.items() if field.tags is not None}
            required = frozenset(name for name, field in form.fields.items() if field.required)
            return _Shape(form.kinds, frozenset(form.fields), required, tags)
        if isinstance(form, DefinitionForm) and "$ref" in original:
            shape = _shape_of_definition(_resolved(self._root, _target(original["$ref"])))
            return _Shape(form.kinds, None, frozenset(), {}) if shape is None else shape
        if isinstance(form, (Wrapped, TupleForm)):
            names = frozenset([form.name] if isinstance(form, Wrapped) else form.items)
            return _Shape(form.kinds, names, names, {})
        return _Shape(form.kinds, None, frozenset(), {})

    def _test(self, original: Any) -> Callable[[Any], bool]:
        definitions = {key: self._root[key] for key in ("$schema", "$defs", "definitions") if key in self._root}
        schema = {**definitions, **original} if isinstance(original, dict) else original

        @functools.cache
        def validator() -> SchemaValidator | None:
            try:
                return SchemaValidator(schema)
            except SchemaError:
                return None

        def allows(value: Any) -> bool:
            checks = validator()
            try:
                return checks is None or checks.problem(value) is None
            except SchemaError:
                return False

        return allows


class _Shape(NamedTuple):
    """The features that tell the values of one alternative from those of another.

    Attributes:
        kinds: The JSON types.
        names: The properties of an object; None if they are not known.
        required: Those that are always there.
        tags: The strings that a property must be one of.
    """

    kinds: frozenset[str]
    names: frozenset[str] | None
    required: frozenset[str]
    tags: Mapping[str, frozenset[str]]

    def meets(self, other: _Shape) -> bool:
        """Return whether some value may have both shapes."""
        shared = (self.kinds & other.kinds) - {"null"}
        if not shared:
            return False
        if shared != {"object"} or self.names is None or other.names is None:
            return True
        if not self.required <= other.names or not other.required <= self.names:
            return False
        return all(self.tags[name] & other.tags[name] for name in self.tags.keys() & other.tags.keys())


def _check(root: dict[str, Any]) -> None:
    """Refuse a schema that is invalid, too large or too deep."""
    try:
        SchemaValidator(root)
    except SchemaError:
        if "$schema" in root:
            raise
        try:  # tuples of draft-07 are still written without naming the draft
            SchemaValidator({"$schema": "http://json-schema.org/draft-07/schema#", **root})
        except SchemaError:
            pass
        else:
            return
        raise


def _shape_of_definition(schema: Any) -> _Shape | None:
    """Return the shape of a definition that has not been read yet, in OpenAI's dialect; None if it is not clear."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None
    if any(key in schema for key in ("allOf", "anyOf", "oneOf", "$ref", "enum", "const", "patternProperties")):
        return None
    properties = _mapping(schema, "properties")
    if not properties or schema.get("additionalProperties", False) is not False:
        return None
    names = frozenset(properties)
    tags = {
        name: frozenset([each["const"]])
        for name, each in properties.items()
        if name in schema.get("required", []) and isinstance(each, dict) and isinstance(each.get("const"), str)
    }
    return _Shape(frozenset({"object"}), names | frozenset(schema.get("required", [])), names, tags)


def _recursive(root: dict[str, Any]) -> frozenset[str]:
    """Return references, one at least of each circle, without which no reference leads back to itself."""
    reached: dict[str, list[str]] = {}

    def references(target: str) -> list[str]:
        if target not in reached:
            found: dict[str, None] = {}
            pending = [_resolved(root, target)]
            while pending:
                part = pending.pop()
                if isinstance(part, dict):
                    if isinstance(part.get("$ref"), str):
                        found.setdefault(_target(part["$ref"]))
                    pending += part.values()
                elif isinstance(part, list):
                    pending += part
            reached[target] = list(found)
        return reached[target]

    found: set[str] = set()
    done: set[str] = set()
    # A search in depth, with a list in place of recursion: a reference to a target that is being searched is a circle.
    for start in ["", *references("")]:
        trail: list[tuple[str, list[str]]] = [(start, list(references(start)))] if start not in done else []
        entered = {start}
        while trail:
            target, left = trail[-1]
            if not left:
                trail.pop()
                entered.discard(target)
                done.add(target)
                continue
            following = left.pop()
            if following in entered:
                found.add(following)
            elif following not in done:
                entered.add(following)
                trail.append((following, list(references(following))))
    return frozenset(found)


def _height(schema: dict[str, Any]) -> int:
    """Return how many objects are nested in a schema for a model."""
    below = [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]
    if "items" in schema:
        below.append(schema["items"])
    return ("properties" in schema) + max(map(_height, below), default=0)


def _target(reference: str) -> str:
    """Return the JSON pointer, or the anchor, that a reference inside the schema leads to."""
    return unquote(reference.removeprefix("#"))


def _resolved(root: dict[str, Any], target: str) -> Any:
    """Return the subschema that a JSON pointer leads to; `take_apart` has seen that it is there."""
    if not target:
        return root
    if not target.startswith("/"):
        return _anchored(root, target)
    found: Any = root
    for step in target[1:].split("/"):
        try:
            found = found[int(step)] if isinstance(found, list) else found[step.replace("~1", "/").replace("~0", "~")]
        except (KeyError, IndexError, ValueError, TypeError):
            return True
    return found


def _anchored(root: dict[str, Any], name: str) -> Any:
    pending: list[Any] = [root]
    while pending:
        part = pending.pop()
        if isinstance(part, dict):
            if name in (part.get("$anchor"), part.get("$dynamicAnchor")):
                return part
            pending += part.values()
        elif isinstance(part, list):
            pending += part
    return True


def _kinds(schema: Mapping[str, Any]) -> list[str]:
    """Return the types that a schema names, or that its keywords are about."""
    kinds = schema.get("type")
    if isinstance(kinds, str):
        return [kinds]
    if isinstance(kinds, list):
        found = [kind for kind in dict.fromkeys(kinds) if isinstance(kind, str)]
        return [kind for kind in found if kind != "integer"] if "number" in found else found
    if "enum" in schema or "const" in schema:
        return []
    if any(key in schema for key in ("properties", "required", "additionalProperties", "patternProperties")):
        return ["object"]
    return ["array"] if "items" in schema or "prefixItems" in schema else []


def _both(one: Any, other: Any) -> Any:
    """Return the types that are in both."""
    these, those = ([kinds] if isinstance(kinds, str) else list(kinds) for kinds in (one, other))
    found = [kind for kind in these if kind in those or (kind == "integer" and "number" in those)]
    found += [kind for kind in those if kind == "integer" and "number" in these and kind not in found]
    return found[0] if len(found) == 1 else found


def _labels(values: Iterable[Any]) -> dict[str, Any]:
    """Return a string for each value, the same for most strings."""
    found = {value: value for value in values if isinstance(value, str) and value}
    for value in values:
        if not isinstance(value, str) or not value:
            found[_unused(json.dumps(value), found)] = value
    return found


def _dumped(schema: Any) -> str:
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError):
        return ""
    return text if len(text) <= MAX_DESCRIBED else ""


def _alias(name: str) -> str:
    """Return a name that Gemini accepts."""
    found = "".join(each if each.isascii() and (each.isalnum() or each == "_") else "_" for each in name)[:60]
    return found if found and not found[0].isdigit() else f"_{found}"


def _unused(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken, made longer if need be."""
    taken, number, found = set(taken), 1, name
    while found in taken:
        number += 1
        found = f"{name[:56]}_{number}"
    return found


def _without(schema: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def _mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}
