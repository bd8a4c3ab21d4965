"""The comparison of JSON Schemas: it never claims what is not so, and costs little whatever the schemas are."""

from __future__ import annotations

import contextlib
import copy
import sys
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tests.effort import examples
from trio_mcp.schema.comparison import SchemaChange, canonical, compare_schemas
from trio_mcp.testing.strategies import from_schema
from trio_mcp.testing.strategies.shapes import CannotGenerate

ITEM = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}


def kinds(before: Any, after: Any, *, closed: bool = False) -> set[str]:
    return {each.change for each in compare_schemas(before, after, closed=closed)}


def narrow(wide: Any, strict: Any, *, closed: bool = False) -> None:
    """Hold both directions: what narrows one way widens the other way."""
    assert kinds(wide, strict, closed=closed) == {"narrowed"}
    assert kinds(strict, wide, closed=closed) == {"widened"}


@pytest.mark.parametrize(
    ("wide", "strict"),
    [
        ({}, {"type": "string"}),
        (True, {"type": "string"}),
        ({}, False),
        ({"type": ["string", "null"]}, {"type": "string"}),
        ({"type": "number"}, {"type": "integer"}),
        ({"enum": ["a", "b"]}, {"enum": ["b"]}),
        ({"enum": [1, 2]}, {"const": 1.0}),
        ({"type": "string"}, {"enum": ["a"]}),
        ({"minimum": 1}, {"exclusiveMinimum": 1}),
        ({"minimum": 1}, {"minimum": 2}),
        ({"maximum": 2}, {"maximum": 1}),
        ({}, {"exclusiveMaximum": 1}),
        ({"multipleOf": 2}, {"multipleOf": 6}),
        ({}, {"multipleOf": 0.5}),
        ({"minLength": 1}, {"minLength": 2}),
        ({"maxItems": 4}, {"maxItems": 3}),
        ({"uniqueItems": False}, {"uniqueItems": True}),
        ({"type": "string"}, {"type": "string", "pattern": "^(a+)+$"}),
        ({"type": "string"}, {"type": "string", "format": "date"}),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}}),
        ({"prefixItems": [{}, {"type": "string"}]}, {"prefixItems": [{"type": "string"}, {"type": "string"}]}),
        ({"items": {"type": "number"}}, {"prefixItems": [{"type": "integer"}], "items": {"type": "number"}}),
        ({}, {"contains": {"type": "string"}}),
        ({"contains": {"type": "number"}}, {"contains": {"type": "integer"}}),
        ({"properties": {"a": {}}}, {"properties": {"a": {"type": "string"}}}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}}, "required": ["a"]}),
        ({"dependentRequired": {"a": []}}, {"dependentRequired": {"a": ["b"]}}),
        ({}, {"additionalProperties": False}),
        ({"properties": {"a": {}}}, {"properties": {"a": {}, "b": {"type": "string"}}}),
        ({}, {"propertyNames": {"maxLength": 3}}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}]}),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, {"anyOf": [{"type": "integer"}]}),
        ({}, {"oneOf": [{"type": "string"}, {"type": "null"}]}),
        ({"allOf": [{"minimum": 1}]}, {"allOf": [{"minimum": 2}, {"maximum": 5}]}),
        ({}, {"not": {"type": "string"}}),
        ({}, {"if": {"type": "string"}, "then": {"maxLength": 3}}),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, {"$ref": "#/$defs/b", "$defs": {"b": {"type": "string"}}}),
    ],
)
def test_common_keywords_are_told_apart_in_both_directions(wide: Any, strict: Any) -> None:
    narrow(wide, strict)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"type": "string"}, {"type": "integer"}),
        ({"enum": ["a"]}, {"enum": ["b"]}),
        ({"pattern": "a"}, {"pattern": "b"}),
        ({"multipleOf": 2}, {"multipleOf": 3}),
        ({"multipleOf": 0.1}, {"multipleOf": 0.2}),
        ({"oneOf": [{"type": "string"}]}, {"oneOf": [{"type": "string"}, {"minLength": 1}]}),
        ({"not": {"type": "string"}}, {"not": {"type": "null"}}),
        ({"if": {"type": "string"}}, {"if": {"type": "null"}}),
        ({"unevaluatedProperties": False}, {"unevaluatedProperties": False, "properties": {"a": {}}}),
        ({"dependencies": {"a": ["b"]}}, {"dependencies": {"a": ["c"]}}),
        ({"items": [{}]}, {"items": [{"type": "string"}]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"minimum": 1, "exclusiveMinimum": False}),
        ({"$ref": "https://host.example/a"}, {"$ref": "https://host.example/b"}),
        ({"$ref": "#anchor"}, {"$ref": "#other"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, {}),
        ({"patternProperties": {"^a": False}}, {"patternProperties": {"^b": False}}),
        ({"contains": {}, "maxContains": 1}, {"contains": {}, "maxContains": 2}),
        # Both refer to themselves without a step into the value, which means nothing.
        ({"allOf": [{"$ref": "#"}], "x": 1}, {"allOf": [{"$ref": "#"}], "x": 2}),
        # The same text, whose meaning has changed.
        (
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "string"}}},
            {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"type": "null"}}},
        ),
        (7, {"type": "string"}),
        ({"properties": 7}, {"properties": {}}),
        ({"type": "strnig"}, {"type": "string"}),
    ],
)
def test_where_nothing_can_be_shown_the_result_says_only_that_it_changed(before: Any, after: Any) -> None:
    assert kinds(before, after) >= {"changed"} or kinds(before, after) >= {"narrowed", "widened"}
    assert kinds(after, before) >= {"changed"} or kinds(after, before) >= {"narrowed", "widened"}


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ({"description": "a"}, {"description": "b"}, "description was 'a', is 'b'"),
        ({"properties": {"a": {"title": "A"}}}, {"properties": {"a": {}}}, "a: title was 'A', is nothing"),
        ({"default": 1}, {"default": 2}, "default was '1', is '2'"),
        ({"x-unknown": 1}, {}, "x-unknown was '1', is nothing"),
        ({"$defs": {"a": {}}}, {"$defs": {"a": {"type": "null"}}}, "parts that no value is checked against"),
        ({"description": "a\u202eb"}, {"description": "c\x1b"}, "was 'a\\u202eb', is 'c\\x1b'"),
        ({"items": {"description": "x" * 900}}, {}, "...',"),
        ({"description": "a" * 999 + "!"}, {"description": "a" * 999 + "?"}, "a!', is '...aaaa"),
    ],
)
def test_what_only_reads_differently_is_told_and_shown_in_plain_ascii(before: Any, after: Any, text: str) -> None:
    (found,) = compare_schemas(before, after)
    assert found.change == "reads"
    assert text in str(found)
    assert str(found).isascii()
    assert str(found).isprintable()


def test_senders_that_use_what_the_schema_names_are_not_hurt_by_new_properties() -> None:
    more = copy.deepcopy(ITEM)
    more["properties"]["pieces"] = {"type": "integer"}  # type: ignore[index]
    narrow(more, ITEM, closed=True)
    # The schema before allows any `pieces`, unless unnamed properties are taken as forbidden.
    assert kinds(ITEM, more) == {"narrowed"}
    # Where the schema says that more may be sent, more may have been sent.
    assert kinds({**ITEM, "additionalProperties": True}, {**more, "additionalProperties": True}, closed=True) == {
        "narrowed"
    }
    assert kinds({**ITEM, "additionalProperties": False}, {**more, "additionalProperties": False}, closed=True) == {
        "widened"
    }
    assert compare_schemas(ITEM, {**more, "required": ["item", "pieces"]}, closed=True) == (
        SchemaChange("narrowed", "pieces", "is required now"),
    )
    # An object whose properties are named in several places is not whole.
    both = {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {"type": "string"}}}]}
    clash = {"allOf": [{"properties": {"a": {}, "b": {"type": "null"}}}, {"properties": {"b": {"type": "string"}}}]}
    assert kinds(both, clash, closed=True) == {"narrowed"}
    # An object behind a reference or an alternative is whole.
    for wrap in (
        lambda each: {"properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": each}},
        lambda each: {"properties": {"x": {"anyOf": [each, {"type": "null"}]}}},
    ):
        narrow(wrap(more), wrap(ITEM), closed=True)


def test_a_recursive_schema_is_compared_with_its_likes() -> None:
    tree: Any = {"$ref": "#/$defs/tree", "$defs": {"tree": {"properties": {"below": {"$ref": "#/$defs/tree"}}}}}
    strict = copy.deepcopy(tree)
    strict["$defs"]["tree"]["properties"]["name"] = {"type": "string"}
    assert kinds(tree, strict) == {"narrowed"}
    assert compare_schemas(tree, copy.deepcopy(tree)) == ()


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def doubling(levels: int) -> Any:
    """Return a schema that becomes exponentially large when its references are followed."""
    parts = {
        str(n): {"anyOf": [{"$ref": f"#/$defs/{n + 1}"}, {"properties": {"a": {"$ref": f"#/$defs/{n + 1}"}}}]}
        for n in range(levels)
    }
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(levels): {"type": "string"}}}


HOSTILE = {
    "deep": (nested(5000), nested(4999)),
    "wide": ({"enum": [*range(50_000)]}, {"enum": [*range(50_001)]}),
    "long": ({"description": "x" * 5_000_000}, {"description": "y"}),
    "doubling": (doubling(40), {**doubling(40), "$defs": {**doubling(40)["$defs"], "40": {"type": "null"}}}),
    "a loop of references": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/b", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    ),
    "many alternatives": (
        {"anyOf": [{"minimum": n, "x": "a"} for n in range(3000)]},
        {"anyOf": [{"maximum": n} for n in range(2999)]},
    ),
    "a pattern that takes forever": (
        {"patternProperties": {"^(a+)+$": {"type": "string"}}, "properties": {"a" * 100 + "!": {"pattern": "(a*)*b"}}},
        {"patternProperties": {"^(a+)+$": {"type": "null"}}, "properties": {"a" * 100: {"pattern": "(a*)*c"}}},
    ),
    "a pointer out of bounds": ({"$ref": "#/enum/99999999999999999999", "enum": []}, {"$ref": "#/%ff/~9"}),
    "no numbers": ({"minimum": float("nan"), "enum": [float("inf")]}, {"minimum": "1", "enum": {}}),
    "surrogates": ({"description": "\ud800"}, {"description": "\udfff"}),
    "a huge number": ({"const": 10**400}, {"const": 1e300, "minimum": 10**400}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_costs_little_and_is_never_called_harmless(name: str) -> None:
    before, after = HOSTILE[name]
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        found = compare_schemas(before, after)
    finally:
        sys.setprofile(None)
    assert 0 < len(found) <= 101
    # The comparison would make billions of steps if there were no limits.
    assert calls < 3_000_000
    if name not in ("long", "surrogates"):
        assert {each.change for each in found} - {"widened", "reads"}
    canonical([each.text for each in found]).encode("ascii")


# --- soundness --------------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
LEAVES = st.one_of(
    st.booleans(),
    st.sampled_from(
        [
            *({"type": each} for each in ("null", "boolean", "string", "integer", "number", "array", "object")),
            {"type": ["string", "null"]},
            {"enum": ["x", 1, None]},
            {"const": 1.0},
            {"enum": [1, 2, "x"], "type": "integer"},
        ]
    ),
    st.builds(lambda least: {"type": "integer", "minimum": least}, st.integers(0, 3)),
    st.builds(lambda most: {"type": "integer", "exclusiveMaximum": most}, st.integers(0, 3)),
    st.builds(lambda step: {"type": "integer", "multipleOf": step}, st.integers(1, 4)),
    st.builds(lambda least, most: {"minLength": least, "maxLength": most}, st.integers(0, 2), st.integers(2, 4)),
)


def larger(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(parts, min_size=1, max_size=3)
    optional = {
        "properties": st.dictionaries(st.sampled_from(NAMES), parts, max_size=3),
        "additionalProperties": parts,
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "^[bc]$"]), parts, max_size=1),
        "maxProperties": st.integers(0, 3),
        "items": parts,
        "prefixItems": lists,
        "contains": parts,
        "minItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "anyOf": lists,
        "oneOf": lists,
        "allOf": lists,
        "not": parts,
        "if": parts,
        "then": parts,
        "description": st.sampled_from(["one", "two"]),
        "type": st.sampled_from(["object", "array"]),
    }
    return st.fixed_dictionaries({}, optional=optional).map(
        lambda schema: dict(list(schema.items())[:4]) if len(schema) > 4 else schema
    )


SCHEMAS = st.recursive(LEAVES, larger, max_leaves=6)
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 2, 3, 1.5, "", "x", "xy", "xyz"]),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.sampled_from([*NAMES, "d"]), each, max_size=3),
    max_leaves=5,
)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw two schemas of which the second is mostly a change of the first."""
    first = draw(SCHEMAS)
    if not isinstance(first, dict) or not first or draw(st.integers(0, 3)) == 0:
        return first, draw(SCHEMAS)
    second = copy.deepcopy(first)
    place = second
    for _ in range(draw(st.integers(0, 3))):
        below = [each for each in place.values() if isinstance(each, dict) and each]
        if not below:
            break
        place = draw(st.sampled_from(below))
    other = draw(SCHEMAS.filter(lambda each: isinstance(each, dict)))
    if draw(st.booleans()):
        place.pop(draw(st.sampled_from(sorted(place))))
    if "properties" not in place or draw(st.booleans()):
        place.update(other)
    return first, second


def is_valid(schema: Any, value: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema).is_valid(value))


def is_schema(schema: Any) -> bool:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


@settings(max_examples=examples(600), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(pairs(), st.data())
def test_what_is_called_widened_admits_all_that_was_valid(pair: tuple[Any, Any], data: st.DataObject) -> None:
    before, after = pair
    if not is_schema(before) or not is_schema(after):
        return
    found = {each.change for each in compare_schemas(before, after)}
    values = data.draw(st.lists(VALUES, min_size=5, max_size=20))
    for schema in (before, after):
        try:
            values.append(data.draw(from_schema(schema)))
        except CannotGenerate:
            continue
    for value in values:
        then, now = is_valid(before, value), is_valid(after, value)
        if found <= {"widened", "reads"}:
            assert now or not then, (value, found)
        if found <= {"narrowed", "reads"}:
            assert then or not now, (value, found)


def closed(schema: Any) -> Any:
    """Return a schema of what senders send that use only the properties that are named."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict):
        found["properties"] = {name: closed(each) for name, each in schema["properties"].items()}
        found.setdefault("additionalProperties", False)
    return found


@settings(max_examples=examples(600), suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(pairs(), st.data())
def test_what_is_called_widened_for_senders_admits_all_that_they_sent(
    pair: tuple[Any, Any], data: st.DataObject
) -> None:
    before, after = pair
    if not is_schema(before) or not is_schema(after):
        return
    if {each.change for each in compare_schemas(before, after, closed=True)} - {"widened", "reads"}:
        return
    strict = closed(before)
    values = data.draw(st.lists(VALUES, min_size=5, max_size=20))
    with contextlib.suppress(CannotGenerate):
        values.append(data.draw(from_schema(strict)))
    for value in values:
        if is_valid(before, value) and is_valid(strict, value):
            assert is_valid(after, value), value
