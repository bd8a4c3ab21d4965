"""Values from schemas conform, as a second validator confirms; hostile schemas are refused; seeds are stable."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st

from tests.effort import examples
from tests.kit.tool_schemas import DRAFT_7, HOSTILE, TOOLS, UNICODE, listed, number, optional, text, tool
from tests.protocol.test_schema_cost import DEFINITIONS, SCHEMAS
from trio_mcp.schema.validator import SchemaValidator
from trio_mcp.testing.strategies import CannotGenerate, NearValid, draws, from_schema, near_valid, simplest

each_tool = pytest.mark.parametrize("name", TOOLS)


def second_opinion(schema: dict[str, Any]) -> Any:
    """Return a validator by other authors, or the library's own where Python's regular expressions lack a feature."""
    if schema is TOOLS[UNICODE]:
        ours = SchemaValidator(schema)
        return type("Opinion", (), {"is_valid": staticmethod(lambda value: ours.problem(value) is None)})
    if schema is TOOLS["tuple without a dialect"]:
        schema = {"$schema": DRAFT_7, **schema}
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


@each_tool
def test_values_for_each_tool_conform_and_the_near_valid_ones_do_not(name: str) -> None:
    opinion = second_opinion(TOOLS[name])
    values = [*draws(from_schema(TOOLS[name]), 12), simplest(TOOLS[name])]
    assert [value for value in values if not opinion.is_valid(value)] == []
    near = draws(near_valid(TOOLS[name]), 8)
    assert [value for value in near if opinion.is_valid(value.value)] == []


def test_there_are_shapes_of_many_tools() -> None:
    assert len(TOOLS) >= 80


@settings(max_examples=examples(300))
@given(st.data(), SCHEMAS, DEFINITIONS)
def test_values_of_any_schema_conform(data: st.DataObject, schema: Any, definition: Any) -> None:
    whole = {"allOf": [schema], "$defs": {"d": definition}}
    opinion = jsonschema.Draft202012Validator(whole)
    try:
        assert opinion.is_valid(data.draw(from_schema(whole)))
        assert not opinion.is_valid(data.draw(near_valid(whole)).value)
    except CannotGenerate:
        pass


@pytest.mark.parametrize("name", HOSTILE)
def test_a_schema_that_nothing_can_be_made_from_is_refused_at_once_with_a_reason(name: str) -> None:
    """Each of these would take forever, or all memory, if values were tried."""
    schema, reason = HOSTILE[name]
    for make in (from_schema, near_valid, simplest):
        with pytest.raises(CannotGenerate, match=reason) as caught:
            make(schema)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*b$", "^((a*)*)*$", "^(\\w+\\s?)+!$", "(x+x+)+y"])
def test_a_catastrophic_pattern_takes_no_time(pattern: str) -> None:
    schema = text(pattern=pattern, minLength=30)
    assert len(set(draws(from_schema(schema), 20))) > 1


def test_a_schema_of_everything() -> None:
    """It has values of each type, and no value breaks it."""
    assert {type(value) for value in draws(from_schema({}), 200)} == {type(None), bool, int, float, str, list, dict}
    with pytest.raises(CannotGenerate, match="no value that breaks"):
        near_valid(True)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({}, None),
        ({"type": "boolean"}, False),
        (number(5, 9), 5),
        (number(-9, -5), -5),
        ({"type": "number", "exclusiveMinimum": 1, "maximum": 1.5}, 1.5),
        (text(minLength=2), "aa"),
        (text(enum=["b", "a"]), "b"),
        (listed("integer", minItems=2), [0, 0]),
        (tool("a", a=optional("string"), b="string"), {"a": ""}),
        (tool("a", a=listed(tool("b", b="string"))), {"a": []}),
        (text(format="date"), "2000-01-01"),
        (text(pattern="^[A-Z]{2}-\\d+$"), "AA-0"),
        ({"oneOf": [tool("a b"), tool("b", b=number(3))]}, {"b": 3}),
        ({"not": {"type": "null"}}, {}),
        ({"const": {"a": [1]}}, {"a": [1]}),
    ],
)
def test_the_simplest_value(schema: dict[str, Any], value: Any) -> None:
    assert simplest(schema) == value


# Keyword -> a schema in which it can be broken.
FAULTS = {
    "type": tool(a="integer"),
    "enum": tool(a=text(enum=["x", "y"])),
    "const": tool(a={"const": "x"}),
    "minimum": tool(a=number(5)),
    "maximum": tool(a=number(high=5)),
    "exclusiveMinimum": tool(a={"type": "number", "exclusiveMinimum": 0.5}),
    "exclusiveMaximum": tool(a={"type": "number", "exclusiveMaximum": 0.5}),
    "multipleOf": tool(a=number(multipleOf=5)),
    "minLength": tool(a=text(minLength=3)),
    "maxLength": tool(a=text(maxLength=3)),
    "pattern": tool(a=text(pattern="^[a-z]+$")),
    "minItems": tool(a=listed("null", minItems=2)),
    "maxItems": tool(a=listed("null", maxItems=2)),
    "uniqueItems": tool(a=listed("integer", uniqueItems=True, minItems=1)),
    "contains": tool(a={"type": "array", "contains": {"const": 77}}),
    "required": tool("a", a="null"),
    "additionalProperties": {**tool(a="null"), "additionalProperties": False},
    "unevaluatedProperties": {**tool(a="null"), "unevaluatedProperties": False},
    "minProperties": {"type": "object", "minProperties": 2},
    "maxProperties": {"type": "object", "maxProperties": 2},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}},
    "anyOf": tool(a=optional("integer")),
    "oneOf": tool(a={"oneOf": [{"type": "integer"}, {"type": "string"}]}),
    "not": tool(a={"type": "string", "not": {"const": ""}}),
}


@pytest.mark.parametrize("keyword", FAULTS)
def test_each_keyword_is_broken(keyword: str) -> None:
    found = draws(near_valid(FAULTS[keyword]), 60)
    # The place is the property, or the whole object.
    assert (keyword, "") in {(each.keyword, each.place.removeprefix("/a")) for each in found}


def test_a_near_valid_value_says_what_is_wrong() -> None:
    assert str(NearValid({}, "required", "")) == "breaks required at the top"
    assert str(NearValid({"a": 1}, "type", "/a")) == "breaks type at /a"


def test_a_format_is_generated_but_breaking_it_is_not_near_valid() -> None:
    """A format is an annotation in 2020-12, so a receiver may accept any string."""
    schema = tool("when", when=text(format="date-time"))
    assert all("T" in value["when"] for value in draws(from_schema(schema), 20))
    assert {each.keyword for each in draws(near_valid(schema), 60)} == {"type", "required"}


def test_defaults_and_examples_are_among_the_values() -> None:
    schema = tool("city", city=text(examples=["Paris", "Rome"], default="Oslo"))
    assert {value["city"] for value in draws(from_schema(schema), 300)} >= {"Paris", "Rome", "Oslo"}


def test_values_stay_small_where_the_schema_has_no_bounds() -> None:
    """A tool may count to the number that it gets, or wait for so long."""
    schema = tool("count text items", count="integer", text="string", items=listed("number"))
    for value in draws(from_schema(schema), 300):
        assert abs(value["count"]) <= 10_000
        assert len(value["text"]) <= 20
        assert len(value["items"]) <= 4


@given(from_schema(TOOLS["tree"], max_leaves=10))
def test_a_recursive_schema_gives_no_huge_values(value: dict[str, Any]) -> None:
    assert str(value).count("value") <= 60


@pytest.fixture
def module_of_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that a program may import between two runs, with constants that Hypothesis would draw."""
    (tmp_path / "constants_of_a_program.py").write_text(
        f"CONSTANTS = [{', '.join(map(str, range(1000, 1500)))}, 'x y']\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield "constants_of_a_program"
    sys.modules.pop("constants_of_a_program", None)


def test_a_seed_gives_the_same_values_whatever_is_imported(module_of_constants: str) -> None:
    strategy = from_schema(TOOLS["four kinds"]) | st.integers() | st.text()
    before = draws(strategy, 200, seed=7)
    __import__(module_of_constants)
    assert draws(strategy, 200, seed=7) == before
    assert draws(strategy, 200, seed=8) != before


def test_few_values_are_repeated() -> None:
    values = draws(from_schema(TOOLS["four kinds"]), 500)
    assert len(values) == 500
    assert len(set(map(str, values))) >= 450


def test_a_schema_that_is_changed_afterwards_is_not_seen() -> None:
    schema = tool("a", a="integer")
    strategy = from_schema(schema)
    schema["properties"]["a"]["type"] = "string"
    assert all(isinstance(value["a"], int) for value in draws(strategy, 10))
