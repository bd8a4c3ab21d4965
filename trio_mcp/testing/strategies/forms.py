"""Strategies for elicitation forms, and for answers that match them (`client/elicitation`, Requested Schema)."""

from __future__ import annotations

import datetime
from typing import Any

from hypothesis import strategies as st

from trio_mcp.testing.strategies.plain_data import texts, uris

__all__ = ["field_choices", "field_values", "form_answers", "forms"]

_FORMATS: dict[str, st.SearchStrategy[str]] = {
    # The pattern is narrower than RFC 5321: few validators accept quoted local parts and comments.
    "email": st.from_regex(r"[a-z]{1,9}(\.[a-z]{1,5})?@[a-z0-9]{1,9}(\.[a-z]{2,5}){0,2}", fullmatch=True),
    "uri": uris(),
    "date": st.dates().map(datetime.date.isoformat),
    # RFC 3339 requires a time zone.
    "date-time": st.datetimes(timezones=st.just(datetime.UTC)).map(datetime.datetime.isoformat),
}
_CHOICES = st.lists(texts(5), min_size=1, max_size=4, unique=True)


def _titled(choices: list[str]) -> list[dict[str, str]]:
    return [{"const": choice, "title": choice.upper()} for choice in choices]


def _bounded(low: int, high: int, names: tuple[str, str]) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy that draws none, one or both of two named bounds, the lower one first."""
    pair = st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)
    both = pair.map(lambda bounds: dict(zip(names, bounds, strict=True)))
    return st.tuples(both, st.sets(st.sampled_from(names))).map(
        lambda drawn: {name: bound for name, bound in drawn[0].items() if name in drawn[1]}
    )


def _fields() -> st.SearchStrategy[dict[str, Any]]:
    plain = _bounded(0, 8, ("minLength", "maxLength")).map(lambda bounds: {"type": "string", **bounds})
    formatted = st.sampled_from(sorted(_FORMATS)).map(lambda name: {"type": "string", "format": name})
    number = st.tuples(st.sampled_from(["number", "integer"]), _bounded(-100, 100, ("minimum", "maximum"))).map(
        lambda drawn: {"type": drawn[0], **drawn[1]}
    )
    boolean = st.just({"type": "boolean"})
    single = _CHOICES.map(lambda choices: {"type": "string", "enum": choices})
    # `enumNames` is from 2025-06-18. Later schemas keep it for older servers, so clients must support it.
    old = _CHOICES.map(lambda choices: {"type": "string", "enum": choices, "enumNames": choices})
    titled = _CHOICES.map(lambda choices: {"type": "string", "oneOf": _titled(choices)})
    several = _CHOICES.flatmap(
        lambda choices: st.tuples(
            st.sampled_from([{"type": "string", "enum": choices}, {"anyOf": _titled(choices)}]),
            _bounded(0, len(choices), ("minItems", "maxItems")),
        )
    ).map(lambda drawn: {"type": "array", "items": drawn[0], **drawn[1]})
    return st.one_of(plain, formatted, number, boolean, single, old, titled, several)


@st.composite
def _fields_with_default(draw: st.DrawFn) -> dict[str, Any]:
    field = draw(_fields())
    return {**field, "default": draw(field_values(field))} if draw(st.booleans()) else field


@st.composite
def forms(draw: st.DrawFn, min_fields: int = 0) -> dict[str, Any]:
    """Draw a form: a flat schema with fields of any kind that a form may have."""
    fields = draw(st.dictionaries(texts(5), _fields_with_default(), min_size=min_fields, max_size=4))
    required = draw(st.sets(st.sampled_from(sorted(fields)))) if fields else set()
    return {"type": "object", "properties": fields, "required": sorted(required)}


def field_choices(field: dict[str, Any]) -> list[str]:
    """Return the values that a choice field offers."""
    return field["enum"] if "enum" in field else [each["const"] for each in field.get("oneOf") or field["anyOf"]]


def field_values(field: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Return a strategy for the valid values of a field."""
    match field["type"]:
        case "array":
            return st.lists(
                st.sampled_from(field_choices(field["items"])),
                min_size=field.get("minItems", 0),
                max_size=field.get("maxItems", 4),
            )
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(field.get("minimum", -200), field.get("maximum", 200))
        case "number":
            return st.floats(field.get("minimum", -200), field.get("maximum", 200))
        case _ if "enum" in field or "oneOf" in field:
            # This case comes before the one for formats, because a choice field may also have a format.
            return st.sampled_from(field_choices(field))
        case _ if "format" in field:
            return _FORMATS[field["format"]]
    letters = st.characters(exclude_categories=["Cs"])
    return st.text(letters, min_size=field.get("minLength", 0), max_size=field.get("maxLength", 10))


@st.composite
def form_answers(draw: st.DrawFn, schema: dict[str, Any]) -> dict[str, Any]:
    """Draw a valid answer to a form: it has every required field without a default, and some other fields."""
    fields = schema["properties"]
    # The client fills in the default of a required field before it sends the answer.
    needed = {name for name in schema["required"] if "default" not in fields[name]}
    present = needed | (draw(st.sets(st.sampled_from(sorted(fields)))) if fields else set())
    return {name: draw(field_values(fields[name])) for name in sorted(present)}
