"""Words of the command line become the arguments that a tool's schema asks for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trio_mcp.cli.arguments import as_json_object, from_words, value_of
from trio_mcp.cli.exits import Exit

INTEGER, NUMBER, TEXT, FLAG = ({"type": name} for name in ("integer", "number", "string", "boolean"))
OPTIONAL = {"anyOf": [INTEGER, {"type": "null"}]}

READ = [
    (INTEGER, "-5", -5),
    (NUMBER, "5", 5),
    (NUMBER, "1.5e3", 1500.0),
    (FLAG, "True", True),
    (TEXT, "5", "5"),
    (TEXT, "true", "true"),
    (TEXT, "", ""),
    (OPTIONAL, "null", None),
    (OPTIONAL, "7", 7),
    ({"type": ["integer", "string"]}, "seven", "seven"),
    ({"type": "array", "items": INTEGER}, "5", [5]),
    ({"type": "array", "items": INTEGER}, "[5, 6]", [5, 6]),
    ({"type": "array"}, "a", ["a"]),
    ({"type": "object"}, '{"a": 1}', {"a": 1}),
    ({"const": 5}, "5", 5),
    ({"enum": [1, "one"]}, "1", 1),
    ({"enum": [1, "one"]}, "one", "one"),
    ({"$ref": "#/$defs/n"}, "3", 3),
    ({}, "3", 3),
    (True, "three", "three"),
    ({"allOf": [{"$ref": "#/$defs/n"}]}, "3", 3),
]


@pytest.mark.parametrize(("field", "text", "value"), READ)
def test_a_value_is_read_by_its_schema(field: Any, text: str, value: Any) -> None:
    read = value_of("x", text, field, {"$defs": {"n": INTEGER}})
    assert (read, type(read)) == (value, type(value))


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (INTEGER, "1.5"),
        (NUMBER, "NaN"),
        (FLAG, "yes"),
        ({"enum": [1]}, "2"),
        ({"type": "object"}, "[1]"),
        (OPTIONAL, ""),
    ],
)
def test_what_fits_no_type_is_refused(field: Any, text: str) -> None:
    with pytest.raises(Exit, match="must be"):
        value_of("x", text, field, {})


def test_items_of_an_array_add_up() -> None:
    assert from_words(["x=1", "x=2", "x=[3, 4]"], {"properties": {"x": {"type": "array", "items": INTEGER}}}) == {
        "x": [1, 2, 3, 4]
    }


def test_json_is_taken_as_it_is_under_any_name() -> None:
    assert from_words(['y:={"a": [1]}', "z:=null"], {"properties": {}}) == {"y": {"a": [1]}, "z": None}


def test_a_value_may_hold_the_signs() -> None:
    assert from_words(["x=a=b:=c"], {"properties": {"x": TEXT}}) == {"x": "a=b:=c"}


def test_a_schema_that_refers_to_itself_takes_anything() -> None:
    loop = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert from_words(["x=1"], loop) == {"x": 1}


@pytest.mark.parametrize(
    "loop",
    [
        {"anyOf": [{"$ref": "#/$defs/a"}] * 50},
        {"type": "array", "items": {"$ref": "#/$defs/a"}},
    ],
)
def test_a_schema_that_grows_without_end_is_looked_at_for_a_moment(loop: dict[str, Any]) -> None:
    schema = {"$defs": {"a": loop}, "properties": {"x": {"$ref": "#/$defs/a"}}}
    assert from_words(["x=one"], schema)["x"] in ("one", ["one"])


@given(st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())))
def test_any_object_survives_as_json(value: dict[str, Any]) -> None:
    assert as_json_object(json.dumps(value)) == value


schemas = st.recursive(
    st.booleans() | st.none() | st.text(max_size=5) | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "anyOf", "enum", "items", "$ref", "const", "properties", "x", "oneOf"]),
            inner,
            max_size=4,
        )
    ),
)


@given(st.dictionaries(st.sampled_from(["properties", "$defs", "additionalProperties"]), schemas), st.text())
def test_whatever_the_server_says_a_word_is_read_or_refused(schema: dict[str, Any], text: str) -> None:
    """A schema comes from the server, so it may be anything."""
    try:
        from_words([f"x={text}"], {**schema, "properties": {"x": schema.get("properties")}})
    except Exit:
        pass
