"""Turns flat pydantic models into elicitation schemas, and answers into models (`client/elicitation`)."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from trio_mcp import _attrs as attrs
from trio_mcp.eras.rules import rules_of
from trio_mcp.server.functions.schemas import JsonSchema, adapter_for, json_schema_of
from trio_mcp.server.revisions import wire_for
from trio_mcp.types._base import WireModel
from trio_mcp.types.elicitation import (
    BooleanSchema,
    EnumOption,
    LegacyTitledEnumSchema,
    NumberSchema,
    StringSchema,
    TitledItems,
    TitledMultiSelectEnumSchema,
    TitledSingleSelectEnumSchema,
    UntitledItems,
    UntitledMultiSelectEnumSchema,
    UntitledSingleSelectEnumSchema,
)

__all__ = ["ModelForm", "NoSuchField", "form_of"]

ModelT = TypeVar("ModelT", bound=BaseModel)

# The specification allows only these formats (`client/elicitation`, Requested Schema).
_FORMATS = frozenset({"email", "uri", "date", "date-time"})
# This is a private keyword, which carries titles from _FormSchema to _options, and is never sent.
_TITLES = "x-titles"
_FLAT = (
    "a form may contain only strings, numbers, booleans and choices of strings "
    "(specification: client/elicitation, Requested Schema)"
)


class NoSuchField(ValueError):
    """The protocol revision does not define form fields of this kind."""


@attrs.frozen
class _Field:
    """One field of a form, as read from its JSON Schema."""

    kind: str
    common: dict[str, Any]  # title, description, default
    limits: dict[str, Any]
    options: dict[str, str | None]  # the values to choose from, with their titles
    enum_names: bool = False  # whether to send titles as `enumNames`, as before 2025-11-25

    def model_for(self, revision: str) -> WireModel:
        """Return the field as a wire model.

        Raises:
            NoSuchField: If the revision does not define fields of this kind.
        """
        newer = rules_of(revision).choices_of_several  # 2025-11-25 also changed how the titles of choices are written
        titled = any(title is not None for title in self.options.values())
        options = [EnumOption(const=value, title=title or value) for value, title in self.options.items()]
        values = list(self.options)
        if self.kind == "array":
            if not newer:
                raise NoSuchField("is a multiple choice")
            if titled:
                return TitledMultiSelectEnumSchema(items=TitledItems(any_of=options), **self.limits, **self.common)
            return UntitledMultiSelectEnumSchema(items=UntitledItems(enum=values), **self.limits, **self.common)
        # Up to and including 2025-06-18, the titles of choices are `enumNames`; since 2025-11-25, they are a `oneOf`.
        if self.options and (self.enum_names or not newer):
            names = [option.title for option in options] if titled else None
            return LegacyTitledEnumSchema(enum=values, enum_names=names, **self.common)
        if titled:
            return TitledSingleSelectEnumSchema(one_of=options, **self.common)
        if self.options:
            return UntitledSingleSelectEnumSchema(enum=values, **self.common)
        if self.kind == "string":
            return StringSchema(**self.limits, **self.common)
        if self.kind == "boolean":
            return BooleanSchema(**self.common)
        return NumberSchema(type=self.kind, **self.limits, **self.common)  # type: ignore[arg-type]


@attrs.frozen(eq=False)
class ModelForm(Generic[ModelT]):
    """The form made from a pydantic model."""

    model: type[ModelT]
    _fields: dict[str, _Field]
    _required: tuple[str, ...]
    _nullable: frozenset[str]  # fields that the model requires, but that may be null
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    def schema_for(self, revision: str) -> dict[str, Any]:
        """Return the ``requestedSchema`` in the form that a revision uses.

        Raises:
            NoSuchField: If the revision does not define a kind of field that the form needs.
        """
        # The wire form is cached, because asking a question needs the form several times: for the check, the digest and
        # the message.
        wire = self._wire.get(revision)
        if wire is None:
            properties = {}
            for name, field in self._fields.items():
                try:
                    properties[name] = wire_for(field.model_for(revision), revision)
                except NoSuchField as exc:
                    raise NoSuchField(f"the field {name!r} {exc}, which revision {revision} does not have") from None
            wire = self._wire[revision] = {"type": "object", "properties": properties}
            if self._required:
                wire["required"] = list(self._required)
        return wire

    def read(self, content: Mapping[str, Any]) -> ModelT:
        """Make an instance of the model from the user's answers.

        Raises:
            pydantic.ValidationError: If the answers don't fit the model.
        """
        # A nullable field that the user left empty is missing, but the model requires it, so null is added.
        data = {**dict.fromkeys(self._nullable), **content}
        try:
            return self.model.model_validate(data)
        except ValidationError:
            # The answers are tried again as JSON text: in pydantic's strict mode, a type's JSON form, such as a date in
            # a string, is accepted from JSON text only.
            return self.model.model_validate_json(to_json(data))


def form_of(model: type[ModelT]) -> ModelForm[ModelT]:
    """Return the form of a model.

    Raises:
        TypeError: If ``model`` is not a pydantic model, or has a field that a flat form can't represent; in that case
            the message names the field.
    """
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise TypeError(f"a form must be a pydantic model class, with a field for each value; got {model!r}")
    return _form_of(model)


# The cache is bounded, because a handler may make a model class for each question.
@functools.lru_cache(maxsize=512)
def _form_of(model: type[ModelT]) -> ModelForm[ModelT]:
    what = f"the form {model.__name__}"
    schema = json_schema_of(adapter_for(model, what), "validation", what, _FormSchema())
    definitions = schema.get("$defs", {})
    if "$ref" in schema:  # a recursive model
        schema = _resolved(schema, definitions)
    fields: dict[str, _Field] = {}
    nullable = set()
    required = list(schema.get("required", ()))
    for name, part in schema.get("properties", {}).items():
        part, may_be_null = _without_null(part, definitions)
        if may_be_null and name in required:
            required.remove(name)  # an answer can't contain null, so the user must be able to leave the field empty
            nullable.add(name)
        fields[name] = _field(part, definitions, f"{what}: the field {name!r}")
    return ModelForm(model, fields, tuple(required), frozenset(nullable))


def _resolved(part: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with its reference resolved; the schema's own keywords take precedence over the definition's."""
    # The title of a definition is left out: it is the name of a class, which means nothing to a user.
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return part
    name = reference.removeprefix("#/$defs/")
    definition = {key: value for key, value in definitions.get(name, {}).items() if key != "title"}
    return {**definition, **{key: value for key, value in part.items() if key != "$ref"}}


def _without_null(part: dict[str, Any], definitions: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    # pydantic writes an optional field as a union with null, which forms don't support. So null is removed; `_field`
    # checks any union that remains.
    part = _resolved(part, definitions)
    alternatives = part.get("anyOf")
    if alternatives is None or {"type": "null"} not in alternatives:
        return part, False
    rest = [each for each in alternatives if each != {"type": "null"}]
    own = {key: value for key, value in part.items() if key != "anyOf"}
    if len(rest) > 1:
        return {**own, "anyOf": rest}, True
    return {**_resolved(rest[0], definitions), **own}, True


def _field(part: dict[str, Any], definitions: dict[str, Any], subject: str) -> _Field:
    # An enumeration may be an `enum`, a `const` or a union of these, with or without a type, so the options decide.
    options = _options(part, definitions, subject)
    kind = "string" if options else part.get("type")
    limits: dict[str, Any] = {}
    if kind == "array":
        items = part.get("items")
        options = _options(_resolved(items, definitions), definitions, subject) if items else {}
        if not options:
            raise TypeError(f"{subject} is a list, but not of choices; {_FLAT}")
        limits = _some(part, min_items="minItems", max_items="maxItems")
    elif kind in ("integer", "number"):
        limits = _number_limits(part, kind)
    elif kind == "string":
        # The field is a secret, such as pydantic's SecretStr. Servers MUST NOT ask for secrets in a form
        # (`client/elicitation`, Security).
        if part.get("format") == "password" or part.get("writeOnly"):
            raise TypeError(f"{subject} is a secret, which a form must not ask for; use ctx.elicit_url")
        limits = {} if options else _some(part, min_length="minLength", max_length="maxLength", format="format")
        # `get` falls back to an allowed format, so that a field without a format is left alone.
        if limits.get("format", "email") not in _FORMATS:
            del limits["format"]  # not allowed in a form; the model still validates it
    elif kind != "boolean":
        shown = kind if isinstance(kind, str) else "a union" if "anyOf" in part else "of any type"
        raise TypeError(f"{subject} is {shown}; {_FLAT}")
    common = _some(part, title="title", description="description")
    if part.get("default") is not None:  # a form can't suggest null
        common["default"] = part["default"]
    return _Field(kind, common, limits, options, enum_names="enumNames" in part)


def _some(part: dict[str, Any], **names: str) -> dict[str, Any]:
    return {name: part[wire] for name, wire in names.items() if part.get(wire) is not None}


def _number_limits(part: dict[str, Any], kind: str) -> dict[str, Any]:
    limits = _some(part, minimum="minimum", maximum="maximum")
    # Forms have no exclusive bounds. For integers, the next integer within the range is the bound; for floats, the form
    # allows the bound itself, which the model then refuses.
    for name, exclusive, step in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        bound = part.get(exclusive)
        if bound is not None:
            inner = (math.floor(bound) + 1 if step > 0 else math.ceil(bound) - 1) if kind == "integer" else bound
            limits[name] = (max if step > 0 else min)(inner, limits.get(name, inner))
    return limits


def _options(part: dict[str, Any], definitions: dict[str, Any], subject: str) -> dict[str, str | None]:
    """Return the strings to choose from, each with its title or None; empty if the schema is not a choice."""
    parts = part.get("anyOf") or part.get("oneOf")
    if parts is None:
        values = part["enum"] if "enum" in part else [part["const"]] if "const" in part else []
        names = part.get("enumNames")
        if names is not None and len(names) != len(values):
            raise TypeError(f"{subject} has {len(values)} choices, but {len(names)} enumNames")
        named = part.get(_TITLES, {}) if names is None else dict(zip(values, names, strict=True))
        found: dict[Any, str | None] = {value: named.get(value) for value in values if isinstance(value, str)}
        if len(found) < len(values):
            raise TypeError(f"{subject} is a choice whose values are not all strings; {_FLAT}")
        return found
    found = {}
    for each in parts:
        each = _resolved(each, definitions)
        inner = _options(each, definitions, subject)
        if not inner:
            raise TypeError(f"{subject} is a union; {_FLAT}")
        # The title of a single choice belongs to that choice; with several, it would be the title of their type.
        title = each.get("title") if len(inner) == 1 else None
        found.update({value: title or own for value, own in inner.items()})
    return found


class _FormSchema(JsonSchema):
    """A schema generator that adds titles to enumerations: the members' names, if they say more than the values."""

    def enum_schema(self, schema: Any) -> dict[str, Any]:
        found = super().enum_schema(schema)
        names = {member.value: member.name for member in schema["members"] if isinstance(member.value, str)}
        # RED = "red" needs no titles; RED = "#ff0000" does.
        if any(_plain(name) != _plain(value) for value, name in names.items()):
            found[_TITLES] = {value: _readable(name) for value, name in names.items()}
        return found


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())


def _readable(name: str) -> str:
    # `DARK_RED` becomes "Dark red". Names in mixed case stay as their author wrote them.
    words = name.replace("_", " ").strip() or name
    return words.capitalize() if name.isupper() or name.islower() else words
