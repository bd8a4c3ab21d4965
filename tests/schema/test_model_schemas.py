"""Schemas for models: what a vendor accepts, and the arguments that come back as they were meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.kit.tool_schemas import HOSTILE, TOOLS
from tests.protocol.test_schema_cost import DEFINITIONS, SCHEMAS
from trio_mcp.schema import CONSTRUCTS, DIALECT_NAMES, Fate, ModelSchema, SchemaError, SchemaLoss, refusals
from trio_mcp.schema.validator import SchemaValidator
from trio_mcp.testing.strategies import CannotGenerate, draws, from_schema, simplest

from .dialect_rules import as_json_schema, broken_rules

ROOT = Path(__file__).parents[2]
OF_OBJECTS = {"properties", "required", "additionalProperties", "patternProperties"}
OF_ARRAYS = {"items", "prefixItems"}
COMBINING = {"allOf", "anyOf", "oneOf", "if", "unevaluatedProperties", "patternProperties"}

each_dialect = pytest.mark.parametrize("dialect", DIALECT_NAMES)


def recorded() -> dict[str, Any]:
    """Return the input schemas of all tools that other servers have been seen to list, in the tests' recordings."""
    found: dict[str, Any] = {}

    def look(value: Any, source: str) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("inputSchema"), dict):
                found[f"{source} {value.get('name')} {len(found)}"] = value["inputSchema"]
            for each in value.values():
                look(each, source)
        elif isinstance(value, list):
            for each in value:
                look(each, source)

    for path in sorted((ROOT / "tests" / "ports" / "recorded").glob("*.json")):
        look(json.loads(path.read_text()), path.stem)
    for path in sorted((ROOT / "tests" / "kit" / "golden").glob("*-2026-07-28.jsonl")):
        for line in path.read_text().splitlines():
            look(json.loads(line), path.stem)
    return found


RECORDED = recorded()


def meant(schema: Any, closing: bool = True) -> Any:
    """Return what a schema's author means: only the named properties, and the type that the keywords are about.

    The conversion takes schemas like this, as a page of the documentation says.
    """
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    for key in ("properties", "patternProperties", "$defs", "definitions"):
        if isinstance(found.get(key), dict):
            found[key] = {name: meant(each, closing) for name, each in found[key].items()}
    for key in ("items", "additionalProperties"):
        if key in found:
            found[key] = meant(found[key], closing)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems", "items"):
        if isinstance(found.get(key), list):
            found[key] = [meant(each, closing and key != "allOf") for each in found[key]]
    if not found.keys() & {"type", "enum", "const", "$ref"}:
        for kind, keys in (("array", OF_ARRAYS), ("object", OF_OBJECTS)):
            if keys & found.keys():
                found["type"] = kind
    if closing and found.get("properties") and "additionalProperties" not in found and not COMBINING & found.keys():
        found["additionalProperties"] = False
    return found


def agree(value: Any, other: Any, null_is_absent: bool) -> bool:
    """Return whether two values are the same JSON; maybe with fewer nulls in the second."""
    if isinstance(value, dict) and isinstance(other, dict):
        return other.keys() <= value.keys() and all(
            agree(each, other[name], null_is_absent) if name in other else each is None and null_is_absent
            for name, each in value.items()
        )
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(agree(*pair, null_is_absent) for pair in zip(value, other, strict=True))
    return json.dumps(value) == json.dumps(other)


def has_null_for_nothing(schema: Any) -> bool:
    """Return whether a property has null as its default: there, null and nothing are the same."""
    return '"default": null' in json.dumps(schema)


def check_arguments(schema: dict[str, Any], values: list[Any], dialect: Any) -> None:
    """Check that each value can be said under the schema for the model, and comes back."""
    made = ModelSchema(schema, dialect)
    accepts = SchemaValidator(as_json_schema(made.schema))
    loses_null = any(loss.construct == "optional property that may be null" for loss in made.losses)
    for value in values:
        given = made.for_model(value)
        assert accepts.problem(given) is None, (value, given)
        assert agree(value, made.from_model(given), loses_null or has_null_for_nothing(schema)), (value, given)


OPEN = {
    "no parameters",
    "only a type",
    "intersection",
    "either of two",
    "depends on a choice of many",
    "depends on a choice",
    "any of two",
    "so many members",
}
"""Tools whose schemas allow properties that they don't name, in ways that `meant` leaves alone."""


@each_dialect
@pytest.mark.parametrize("name", [*TOOLS, *RECORDED])
def test_a_vendor_accepts_the_schema_of_each_tool(name: str, dialect: Any) -> None:
    schema = {**TOOLS, **RECORDED}[name]
    assert broken_rules(ModelSchema(schema, dialect).schema, dialect) == []


@each_dialect
@pytest.mark.parametrize("name", [name for name in [*TOOLS, *RECORDED] if name not in OPEN])
def test_every_valid_argument_of_each_tool_arrives_unchanged(name: str, dialect: Any) -> None:
    schema = meant({"type": "object", **{**TOOLS, **RECORDED}[name]})
    if not schema.get("properties"):
        schema["additionalProperties"] = False
    check_arguments(schema, [*draws(from_schema(schema), 12), simplest(schema)], dialect)


@pytest.mark.parametrize("name", sorted(OPEN))
def test_the_named_properties_of_an_open_object_arrive_unchanged(name: str) -> None:
    schema = TOOLS[name]
    values = [value for value in draws(from_schema(schema), 12) if isinstance(value, dict)]
    for dialect in DIALECT_NAMES:
        made = ModelSchema(schema, dialect)  # type: ignore[arg-type]
        for value in values:
            assert agree(value, made.from_model(made.for_model(value)), True)


@settings(max_examples=examples(300))
@given(st.data(), SCHEMAS, DEFINITIONS, st.sampled_from(DIALECT_NAMES), st.booleans())
def test_every_valid_argument_of_any_schema_arrives_unchanged(
    data: st.DataObject, inner: Any, definition: Any, dialect: Any, required: bool
) -> None:
    schema = meant({"type": "object", "properties": {"x": inner}, "$defs": {"d": definition}})
    if required:
        schema["required"] = ["x"]
    try:
        made = ModelSchema(schema, dialect)
        value = data.draw(from_schema(schema))
    except (SchemaError, CannotGenerate):
        return
    assert broken_rules(made.schema, dialect) == []
    check_arguments(schema, [value], dialect)


@each_dialect
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_refused_or_stays_small(name: str, dialect: Any) -> None:
    schema, *_ = HOSTILE[name]
    try:
        made = ModelSchema(schema, dialect)
    except (SchemaError, TypeError):
        return
    assert broken_rules(made.schema, dialect) == []
    assert len(json.dumps(made.schema)) < 1_000_000


def doubled(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        f"d{level}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{level + 1}"} for side in "ab"}}
        for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "integer"}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


BOUNDED = {
    "references that double": doubled(60),
    "many values": {"type": "object", "properties": {"x": {"enum": [f"v{each}" for each in range(50_000)]}}},
    "many properties": {
        "type": "object",
        "properties": {f"p{each}": {"type": "object", "properties": {"a": {}}} for each in range(4_000)},
    },
    "long names": {
        "type": "object",
        "properties": {"x": {"type": "object", "properties": {"n" * 200_000: {}, "o": {}}}},
    },
    "a chain of references": {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/0"}},
        "$defs": {**{str(each): {"$ref": f"#/$defs/{each + 1}"} for each in range(3_000)}, "3000": {"type": "integer"}},
    },
    "many circles": {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/0"}},
        "$defs": {
            str(each): {
                "type": "object",
                "properties": {
                    "n": {"$ref": f"#/$defs/{(each + 1) % 900}"},
                    "p": {"$ref": f"#/$defs/{each - 1 if each else 899}"},
                },
            }
            for each in range(900)
        },
    },
    "a pattern that takes exponential time": {
        "type": "object",
        "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}},
    },
    "allOf of itself": {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/t"}},
        "$defs": {"t": {"type": "object", "properties": {"c": {"allOf": [{"$ref": "#/$defs/t"}, {"title": "again"}]}}}},
    },
}


@each_dialect
@pytest.mark.parametrize("name", BOUNDED)
def test_what_a_schema_becomes_is_bounded(name: str, dialect: Any) -> None:
    made = ModelSchema(BOUNDED[name], dialect)
    assert broken_rules(made.schema, dialect) == []
    assert len(json.dumps(made.schema)) < 3_000_000


# --- each construct -----------------------------------------------------------------------------------------------

INNER = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
    "required": ["v"],
}
PET = {"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer"}}, "required": ["kind"]}
DOG = {
    "type": "object",
    "properties": {"kind": {"const": "dog"}, "tags": {"type": "object", "additionalProperties": {"type": "string"}}},
    "required": ["kind"],
}

# The schema of a required argument, a value, and what each vendor's model is to send for it.
SAID: list[tuple[str, Any, Any, Any, Any]] = [
    ("map", {"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}, [{"key": "a", "value": 1}], ...),
    ("empty map", {"type": "object", "additionalProperties": {"type": "integer"}}, {}, [], ...),
    ("free object", {"type": "object"}, {"a": [1]}, '{"a":[1]}', ...),
    ("any value", {}, None, "null", ...),
    (
        "tuple",
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        [1, "a"],
        {"item_1": 1, "item_2": "a"},
        ...,
    ),
    (
        "tuple of one type",
        {"type": "array", "prefixItems": [{"type": "number"}] * 2, "minItems": 2, "maxItems": 2},
        [1, 2],
        [1, 2],
        ...,
    ),
    ("open tuple", {"type": "array", "prefixItems": [{"type": "integer"}]}, [1, "a", {}], '[1,"a",{}]', ...),
    ("integers", {"enum": [1, 2]}, 2, "2", 2),
    ("true", {"const": True}, True, "true", True),
    ("mixed values", {"enum": [1, "1", ""]}, 1, "1_2", "1_2"),
    ("empty text", {"enum": ["", "a"]}, "", '""', ""),
    ("objects", {"enum": [{"a": 1}, {"a": 2}]}, {"a": 2}, '{"a": 2}', ...),
    ("null", {"type": "null"}, None, "null", ...),
    ("nullable", {"type": ["integer", "null"]}, None, None, ...),
    ("types", {"type": ["integer", "string"]}, "5", "5", ...),
    (
        "recursion",
        {"$ref": "#/$defs/node"},
        {"v": 1, "next": {"v": 2}},
        {"v": 1, "next": '{"v":2}'},
        {"v": 1, "next": {"v": 2, "next": None}},
    ),
    ("text or anything", {"anyOf": [{"type": "string"}, {"type": "object"}]}, {"a": 1}, {"option_2": '{"a":1}'}, ...),
    (
        "map or list",
        {
            "anyOf": [
                {"type": "array", "items": {"type": "integer"}},
                {"type": "object", "additionalProperties": {"type": "integer"}},
            ]
        },
        {"a": 1},
        {"option_2": [{"key": "a", "value": 1}]},
        ...,
    ),
    (
        "one of two by a tag",
        {"oneOf": [PET, DOG]},
        {"kind": "dog", "tags": {"a": "b"}},
        {"kind": "dog", "tags": [{"key": "a", "value": "b"}]},
        ...,
    ),
    (
        "named and others",
        {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "additionalProperties": {"type": "boolean"},
            "required": ["a"],
        },
        {"a": 1, "b": True},
        {"a": 1, "additional_properties": [{"key": "b", "value": True}]},
        ...,
    ),
    (
        "both",
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                {"properties": {"b": {"type": "string"}}, "required": ["b"]},
            ]
        },
        {"a": 1, "b": "c"},
        {"a": 1, "b": "c"},
        ...,
    ),
]


@pytest.mark.parametrize(("name", "schema", "value", "gemini", "openai"), SAID, ids=[row[0] for row in SAID])
def test_a_construct_is_said_like_this(name: str, schema: Any, value: Any, gemini: Any, openai: Any) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], "$defs": {"node": INNER}}
    for dialect, said in (("gemini", gemini), ("openai-strict", gemini if openai is ... else openai)):
        made = ModelSchema(whole, dialect)  # type: ignore[arg-type]
        assert made.for_model({"x": value}) == {"x": said}
        check_arguments(whole, [{"x": value}], dialect)


def test_null_says_in_openais_dialect_that_an_argument_is_absent() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "default": 3}}}
    made = ModelSchema(schema, "openai-strict")
    assert made.schema["required"] == ["n"]
    assert made.from_model({"n": None}) == {}
    assert made.from_model({"n": 4}) == {"n": 4}
    assert made.losses == ()
    gemini = ModelSchema(schema, "gemini")
    assert gemini.schema == {"type": "object", "properties": {"n": {"type": "integer"}}}


def test_an_argument_that_may_be_null_or_absent_is_named_as_a_loss() -> None:
    schema = {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}
    made = ModelSchema(schema, "openai-strict")
    assert made.losses == (SchemaLoss("/properties/n", "optional property that may be null"),)
    assert made.from_model({"n": None}) == {}
    assert ModelSchema(schema, "gemini").losses == ()
    assert ModelSchema(schema, "gemini").from_model({"n": None}) == {"n": None}


def test_a_union_of_arguments_is_wrapped() -> None:
    arms = [
        {"properties": {name: {"type": "integer"}}, "required": [name], "additionalProperties": False} for name in "ab"
    ]
    for dialect in DIALECT_NAMES:
        made = ModelSchema({"type": "object", "oneOf": arms}, dialect)  # type: ignore[arg-type]
        assert made.losses == ()
        assert made.from_model({"arguments": {"b": 1}}) == {"b": 1}
        assert made.for_model({"a": 1}) == {"arguments": {"a": 1}}


def test_names_that_gemini_refuses_are_replaced() -> None:
    schema = {
        "type": "object",
        "properties": {"$top": {"type": "integer"}, "_top": {"type": "integer"}, "é": {}, "a" * 70: {}},
    }
    made = ModelSchema(schema, "gemini")
    value = {"$top": 1, "_top": 2, "é": 3, "a" * 70: 4}
    assert broken_rules(made.schema, "gemini") == []
    assert made.from_model(made.for_model(value)) == value


# Arguments in another form than the model was asked for; the server judges them.
ASTRAY: list[tuple[Any, Any]] = [
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"a": 1}),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"key": 1}]),
    ({}, "not JSON"),
    ({}, {"already": "a value"}),
    ({}, "[" * 5_000),
    ({}, "NaN"),
    ({"enum": [1, 2]}, "3"),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        [1, "a"],
    ),
    ({"anyOf": [{"type": "string"}, {"type": "object"}]}, {"option_3": 1}),
    ({"anyOf": [{"type": "string"}, {"type": "object"}]}, 5),
    ({"$ref": "#/$defs/node"}, 5),
]


@each_dialect
@pytest.mark.parametrize(("schema", "given"), ASTRAY)
def test_what_a_model_should_not_have_sent_is_passed_on(schema: Any, given: Any, dialect: Any) -> None:
    whole = {"type": "object", "properties": {"x": schema}, "required": ["x"], "$defs": {"node": INNER}}
    assert ModelSchema(whole, dialect).from_model({"x": given, "y": None}) == {"x": given, "y": None}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["a", "key", "value", "option_1", "item_1"]), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=examples(200))
@given(SCHEMAS, DEFINITIONS, st.sampled_from(DIALECT_NAMES), JSON)
def test_whatever_a_model_sends_is_mapped_without_an_error(inner: Any, definition: Any, dialect: Any, x: Any) -> None:
    schema = {"type": "object", "properties": {"x": inner}, "$defs": {"d": definition}}
    try:
        made = ModelSchema(schema, dialect)
    except SchemaError:
        return
    for given_ in ({"x": x}, {"arguments": x}, {}):
        assert isinstance(made.from_model(given_), dict)
        assert isinstance(made.for_model(given_), dict)


def test_arguments_nested_without_an_end_are_passed_on() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/node"}}, "$defs": {"node": INNER}}
    value: Any = {"v": 1}
    for _ in range(20_000):
        value = {"v": 1, "next": value}
    assert ModelSchema(schema, "openai-strict").from_model({"x": value})["x"] is value


# --- the table ----------------------------------------------------------------------------------------------------


IN_SOME_PLACES = {"allOf", "minProperties, maxProperties", "exclusiveMinimum, exclusiveMaximum"}
"""What is lost although the dialect has it: what contradicts itself, counts properties that became pairs, or is of
draft-04."""


@each_dialect
@pytest.mark.parametrize("name", [*TOOLS, *RECORDED])
def test_what_is_left_out_is_a_refusal_of_the_schema_as_it_is(name: str, dialect: Any) -> None:
    schema = {**TOOLS, **RECORDED}[name]
    if name == "tuple without a dialect":
        return
    refused = refusals(schema, dialect)
    assert {refusal.construct for refusal in refused} <= CONSTRUCTS.keys()
    for loss in ModelSchema(schema, dialect).losses:
        row = CONSTRUCTS[loss.construct]
        assert row.fate(dialect) in (Fate.LEFT_OUT, Fate.TEXT) or loss.construct in IN_SOME_PLACES


@each_dialect
@pytest.mark.parametrize("name", [*TOOLS, *RECORDED])
def test_nothing_is_refused_in_a_schema_that_was_converted(name: str, dialect: Any) -> None:
    converted = as_json_schema(ModelSchema({**TOOLS, **RECORDED}[name], dialect).schema)
    found = {refusal.construct for refusal in refusals(converted, dialect)}
    assert found <= ({"null"} if dialect == "gemini" else set())  # which `as_json_schema` has put there


@pytest.mark.parametrize("dialect", ["Gemini", "openai", ""])
def test_an_unknown_dialect_is_refused(dialect: Any) -> None:
    with pytest.raises(ValueError, match="there is no dialect"):
        ModelSchema({"type": "object"}, dialect)
    with pytest.raises(ValueError, match="there is no dialect"):
        refusals({"type": "object"}, dialect)


@pytest.mark.parametrize("schema", [None, [], "object", True])
def test_a_schema_that_is_no_object_is_refused(schema: Any) -> None:
    with pytest.raises(TypeError, match="must be a mapping"):
        ModelSchema(schema, "gemini")
