"""JSON Schema validation: what conforms, which schemas are refused, and what a validation may cost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_mcp.schema.validator import DIALECTS, SchemaError, SchemaValidator


def valid(schema: Any, value: Any) -> bool:
    return SchemaValidator(schema).problem(value) is None


# --- 2020-12 -----------------------------------------------------------------------------------------------------

NODE = {"type": "object", "properties": {"next": {"$ref": "#"}, "value": {"type": "integer"}}, "required": ["value"]}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (True, [1, None, {}], []),
        (False, [], [1, None, {}]),
        ({}, [1, None, {}], []),
        ({"type": "integer"}, [1, 1.0, 2**80], [1.5, "1", True, None]),
        ({"enum": [1, "a", None]}, [1, "a", None], [2, "b", False]),
        ({"minimum": 1, "exclusiveMaximum": 3, "multipleOf": 0.5}, [1, 2.5, "x"], [0.5, 3, 1.3]),
        ({"minLength": 1, "maxLength": 2, "pattern": "^é"}, ["é", "éa", 5], ["", "a", "éab"]),
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, [{"a": ""}, 5], [{}, {"a": 1}]),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, [["a", 1], []], [[1], ["a", "b"]]),
        ({"contains": {"type": "integer"}, "minContains": 2}, [[1, 2, "a"]], [[1, "a"]]),
        ({"uniqueItems": True, "minItems": 1}, [[1, 2], [{"a": 1}, {"a": 2}]], [[1, 1], [], [{"a": 1}, {"a": 1}]]),
        ({"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        (NODE, [{"value": 1, "next": {"value": 2}}], [{"value": 1, "next": {}}]),
        ({"$ref": "#/$defs/a~1b%25", "$defs": {"a/b%": {"type": "string"}}}, ["a"], [1]),
        ({"$ref": "#name", "$defs": {"x": {"$anchor": "name", "type": "string"}}}, ["a"], [1]),
        ({"$dynamicRef": "#name", "$defs": {"x": {"$dynamicAnchor": "name", "type": "string"}}}, ["a"], [1]),
        ({"$ref": "#/prefixItems/1", "prefixItems": [True, {"type": "array"}]}, [[1, []]], [5, [1, 2]]),
        ({"$ref": "#/x/y", "x": {"y": {"type": "string"}}}, ["a"], [1]),
        ({"const": {"$ref": "https://example.com/"}}, [{"$ref": "https://example.com/"}], [1]),
        ({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}, [{"$ref": "x"}], [{"$id": 1}]),
    ],
)
def test_2020_12(schema: Any, good: list[Any], bad: list[Any]) -> None:
    """2026-07-28 `basic/index`, JSON Schema Usage: without ``$schema`` it is 2020-12.

    `test_schema_cost` holds all keywords against another validator; here are the rest, and what only looks like one.
    """
    validator = SchemaValidator(schema)
    assert [value for value in good if validator.problem(value) is not None] == []
    assert [value for value in bad if validator.problem(value) is None] == []


def test_format_is_an_annotation() -> None:
    """As 2020-12 has it, and the same in older drafts: what is valid does not depend on who wrote the schema."""
    for dialect in DIALECTS:
        assert valid({"$schema": dialect, "format": "email"}, "no address")
        assert valid({"$schema": dialect, "format": "regex"}, "(")


@pytest.mark.parametrize("dialect", [*DIALECTS, *(f"{dialect}#" for dialect in DIALECTS)])
def test_supported_dialects(dialect: str) -> None:
    schema = {"$schema": dialect, "type": "object", "properties": {"a": {"type": "integer"}}}
    assert valid(schema, {"a": 1})
    assert not valid(schema, {"a": "x"})


def test_draft_07_is_read_by_its_own_rules() -> None:
    """Arrays of ``items``, ``definitions``, ``dependencies``, and a ``$ref`` that silences what stands beside it."""
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"s": {"type": "string"}},
        "items": [{"$ref": "#/definitions/s", "minLength": 5}],
        "additionalItems": {"type": "integer"},
        "dependencies": {"a": ["b"], "c": {"required": ["d"]}},
    }
    validator = SchemaValidator(schema)
    for good in (["a", 1], {"a": 1, "b": 1}, {"c": 1, "d": 1}):
        assert validator.problem(good) is None
    for bad in ([1], ["a", "b"], {"a": 1}, {"c": 1}):
        assert validator.problem(bad) is not None


@pytest.mark.parametrize(
    "dialect", ["http://json-schema.org/draft-03/schema#", "https://example.com/mine", "", 5, ["x"], "y" * 100_000]
)
def test_an_unsupported_dialect_is_named(dialect: object) -> None:
    """2026-07-28 `basic/index`: "an appropriate error indicating the dialect is not supported"."""
    with pytest.raises(SchemaError, match="dialect") as caught:
        SchemaValidator({"$schema": dialect})
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "schema",
    [
        *(None, 1, "{}", []),
        *({"type": "strin"}, {"type": 5}, {"properties": []}, {"pattern": "("}, {"minimum": "1"}),
        *({"required": "a"}, {"anyOf": []}, {"$ref": 5}, {"a": object()}),
    ],
)
def test_an_invalid_schema_is_refused(schema: object) -> None:
    """2026-07-28 `basic/index`: "Schemas MUST be valid according to their declared or default dialect"."""
    with pytest.raises(SchemaError):
        SchemaValidator(schema)


# --- references --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    ["http://127.0.0.1:9/x", "https://example.com/x#/y", "file:///etc/passwd", "other.json", "//host/x", "urn:x:y", ""],
)
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_references_to_elsewhere_are_refused(reference: str, keyword: str) -> None:
    """2026-07-28 `basic/index`, $ref Resolution: never followed, and never "treated as permissive"."""
    for schema in (
        {keyword: reference},
        {"properties": {"a": {"items": [{keyword: reference}]}}},
        {"$defs": {"unused": {keyword: reference}}},
        {"$ref": "#/x", "x": {"y": {}, "not": {keyword: reference}}},
    ):
        with pytest.raises(SchemaError, match="outside itself"):
            SchemaValidator(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#missing"},
        *({"$ref": f"#/{path}", "title": "x"} for path in ("$defs/missing", "title", "title/x")),
        *({"$ref": f"#/allOf/{index}", "allOf": [{}]} for index in ("1", "00", "²", "-1")),
    ],
)
def test_references_to_nowhere_are_refused(schema: Any) -> None:
    """Else the estimate would not know what they cost."""
    with pytest.raises(SchemaError, match="there is no schema at that place"):
        SchemaValidator(schema)


def test_a_schema_inside_a_schema_is_refused() -> None:
    """An ``$id`` changes what the references below it mean."""
    with pytest.raises(SchemaError, match="embeds"):
        SchemaValidator({"$defs": {"x": {"$id": "https://example.com/x"}}})
    with pytest.raises(SchemaError, match="embeds"):
        SchemaValidator({"$schema": "http://json-schema.org/draft-04/schema#", "not": {"id": "https://example.com/x"}})
    assert valid({"$id": "https://example.com/x", "properties": {"a": {"id": "x"}}}, {})


def test_an_anchor_means_one_place() -> None:
    with pytest.raises(SchemaError, match="two anchors"):
        SchemaValidator({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}, "$ref": "#x"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"not": {"$ref": "#"}},
        {"$ref": "#/%24defs/a", "$defs": {"a": {"$ref": "#/%24defs/a"}}},
        {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"if": {"$ref": "#/$defs/a"}}}},
        {"$dynamicAnchor": "a", "allOf": [{"$dynamicRef": "#a"}]},
        {"properties": {"a": {"dependentSchemas": {"x": {"$ref": "#/properties/a"}}}}},
        {"$ref": "#/x/y", "x": {"y": {"oneOf": [{"$ref": "#/x/y"}]}}},
    ],
)
def test_a_circle_that_consumes_no_input_is_refused(schema: Any) -> None:
    """2020-12 core, section 9.4.1: a schema "MUST NOT be run into an infinite loop against an instance"."""
    with pytest.raises(SchemaError, match="circle"):
        SchemaValidator(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}},
        {"items": {"$ref": "#"}},
        {"prefixItems": [{"$ref": "#"}], "items": {"$ref": "#"}},
        {"propertyNames": {"$ref": "#"}},
        {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]},
        {"$dynamicAnchor": "a", "additionalProperties": {"$dynamicRef": "#a"}},
        {"$schema": DIALECTS[1], "$recursiveAnchor": True, "additionalProperties": {"$recursiveRef": "#"}},
    ],
)
def test_recursion_that_consumes_input_is_allowed(schema: Any) -> None:
    value: Any = 1
    for step in range(150):
        value = {"a": value} if "items" not in json.dumps(schema) else [value] if step % 2 else [value, 1]
    assert valid(schema, value)


# --- messages ----------------------------------------------------------------------------------------------------


def test_a_problem_says_where_and_what() -> None:
    """For a model to mend, and for a log."""
    schema = {"properties": {"a/b": {"items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}, "required": ["c"]}
    problem = SchemaValidator(schema).problem({"a/b": [1, "x"], "c": 1})
    assert problem == '[\'a/b\'][1]: "x" is not of type "integer"; [\'a/b\'][1]: "x" is not of type "null"'
    assert SchemaValidator(schema).problem({}) == 'the value: "c" is a required property'


def test_a_problem_is_short_whatever_the_value() -> None:
    """A megabyte of value helps no reader, and logs it whole."""
    schema = {"items": {"type": "integer"}, "maxItems": 1}
    for value in (["x" * 100_000], ["x"] * 1000, ["x" * 1000] * 1000, {"a": 1}, [{"k" * 100_000: 1}]):
        problem = SchemaValidator({"anyOf": [schema, {"type": "object", "required": ["z"]}]}).problem(value)
        assert problem is None or len(problem) < 2000
        assert problem is None or "\n" not in problem


@pytest.mark.parametrize("value", ["\ud800", {"\ud800": 1}, b"x", {1: 2}, object(), [object()]])
def test_a_value_that_is_not_json_is_a_problem_not_an_exception(value: Any) -> None:
    """A tool may return anything."""
    assert SchemaValidator({"type": "number"}).problem(value)


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), 10**400, 10**5000], ids=["infinity", "NaN", "large", "huge"]
)
def test_numbers_at_the_border_raise_nothing(value: Any) -> None:
    """Values that JSON can't represent may count as numbers or not; validation must not crash on them."""
    SchemaValidator({"type": "number", "minimum": 3}).problem(value)
