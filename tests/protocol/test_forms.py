"""Forms of an elicitation: defaults, and whether an answer fits (`client/elicitation`, Requested Schema)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.form_strategies import spoiled_answers
from trio_mcp.schema.forms import Form
from trio_mcp.schema.validator import SchemaError
from trio_mcp.testing.strategies import form_answers, forms


def form(required: list[str] | None = None, **fields: Any) -> Form:
    return Form({"type": "object", "properties": fields, "required": required or []})


@given(st.data(), forms())
def test_an_answer_that_fits_is_good_as_it_is_and_exactly_the_defaults_of_missing_fields_are_filled_in(
    data: st.DataObject, schema: dict[str, Any]
) -> None:
    answer = data.draw(form_answers(schema))
    before = copy.deepcopy(answer)
    filled = Form(schema).filled(answer)
    assert Form(schema).problem(filled) is None
    assert answer == before
    fields = {name: field for name, field in schema["properties"].items() if name not in answer}
    assert filled == answer | {name: field["default"] for name, field in fields.items() if "default" in field}


@given(st.data(), forms(min_fields=1))
def test_an_answer_that_does_not_fit_is_always_found_out(data: st.DataObject, schema: dict[str, Any]) -> None:
    answer, spoiled = data.draw(spoiled_answers(schema))
    problem = Form(schema).problem(answer)
    assert problem is not None, (answer, spoiled)
    assert spoiled in problem


@pytest.mark.parametrize(
    ("field", "good", "bad"),
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "abc", "äöü"], ["a", "abcd", 5, None, True]),
        ({"type": "number", "minimum": 0, "maximum": 1}, [0, 0.5, 1], [-0.1, 1.1, "1", True, None]),
        ({"type": "integer"}, [0, -5, 2**60], [0.5, "1", False]),
        ({"type": "boolean"}, [True, False], [0, 1, "true", None]),
        ({"type": "string", "enum": ["a", "b"]}, ["a", "b"], ["c", "", "A", ["a"]]),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}, ["a", "b"], ["A", "c"]),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}, ["a"], ["A", "c"]),
        (
            {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}},
            [["a"], ["a", "b"]],
            [[], ["a", "b", "c"], ["d"], "a", [["a"]]],
        ),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b", "title": "B"}]}},
            [[], ["a", "b"]],
            [["A"], [1], "a"],
        ),
        (
            {"type": "string", "format": "email"},
            ["a@b", "a.b+c@example.org", "grüße@exämple.org"],
            ["", "a", "a@", "@b", "a b@c", "a@b@c", "a@b..c", "a@.b", "<a@b>", "a@b\n", "x" * 65 + "@b"],
        ),
        (
            {"type": "string", "format": "uri"},
            ["https://example.org/a?b=c#d", "urn:isbn:1", "mailto:a@b", "http://[::1]/%20"],
            ["", "example.org", "/path", "http://a b", "http://a/\n", "http://ä", "http://a/%zz", "1a:b"],
        ),
        (
            {"type": "string", "format": "date"},
            ["2026-07-28", "2024-02-29"],
            ["2026-7-28", "20260728", "2026-02-29", "2026-13-01", "2026-W01-1", "2026-07-28\n", "²026-07-28"],
        ),
        (
            {"type": "string", "format": "date-time"},
            ["2026-07-28T12:00:00Z", "2026-07-28t23:59:60.5z", "2026-07-28 12:00:00+02:00"],
            ["2026-07-28", "2026-07-28T12:00:00", "2026-07-28T24:00:00Z", "2026-07-28T12:00Z", "2026-02-30T12:00:00Z"],
        ),
    ],
    ids=lambda value: str(value.get("format") or value.get("type")) if isinstance(value, dict) else "",
)
def test_each_kind_of_field(field: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    asked = form(x=field)
    assert [value for value in good if asked.problem({"x": value}) is not None] == []
    assert [value for value in bad if asked.problem({"x": value}) is None] == []


def test_a_missing_field_and_one_that_is_not_asked_for_are_named() -> None:
    asked = form(["name"], name={"type": "string"}, age={"type": "integer"})
    assert asked.problem({"name": "Ada"}) is None
    assert "name" in str(asked.problem({"age": 5}))
    assert asked.problem({"nmae": "Ada"}) == "the form has no field 'nmae'; fields of the form: 'name', 'age'"
    open_form = Form({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}})
    assert open_form.problem({"anything": "goes"}) is None
    assert open_form.problem({"anything": 5}) is not None


@pytest.mark.parametrize("default", [200, "5", None, [], {"a": 1}])
def test_a_default_that_does_not_fit_its_field_is_dropped(default: Any) -> None:
    field = {"type": "string", "format": "email", "default": "you"}
    assert form(mail=field).filled({}) == {}
    asked = form(age={"type": "integer", "maximum": 100, "default": default}, ok={"type": "boolean", "default": False})
    assert asked.filled({}) == {"ok": False}
    assert asked.filled({"age": 7}) == {"age": 7, "ok": False}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}},
        {"type": "object", "properties": {"a": {"type": "no such type"}}},
        {"$schema": "https://example.org/dialect", "type": "object", "properties": {}},
    ],
)
def test_a_form_that_can_not_be_used(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Form(schema)


def test_numbers_that_json_does_not_have() -> None:
    assert form(x={"type": "number"}).problem({"x": float("nan")}) is not None
    assert form(x={"type": "number"}).problem({"x": float("inf")}) is not None
