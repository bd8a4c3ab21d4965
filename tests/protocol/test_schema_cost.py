"""The cost of a validation is bounded: hostile schemas and values are refused before it starts, ordinary ones are not.

Nothing here measures time. What would take forever if it were let through, or overflow the validator's stack, shows.
"""

from __future__ import annotations

import datetime
import uuid
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel, Field, TypeAdapter

from tests.effort import examples
from trio_mcp.schema import validator as schema_cost
from trio_mcp.schema.validator import (
    MAX_DEPTH,
    MAX_SUBSCHEMAS,
    MAX_WORK,
    CostModel,
    SchemaError,
    SchemaValidator,
    take_apart,
)

# --- small schemas that use every keyword, and values that they may well say something about -------------------------

LOOK = "x-look"
"""A keyword without a meaning in every subschema: a validator that knows it can count its looks."""

MARK: dict[str, st.SearchStrategy[Any]] = {LOOK: st.just(True)}
NAMES = st.sampled_from(["a", "b", "xy"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.5, 2.0, -1.5])
    | st.sampled_from(["", "a", "xyz"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])


def keywords_of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several, named = st.lists(inner, min_size=1, max_size=2), st.dictionaries(NAMES, inner, max_size=2)
    keywords = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=2, unique=True),
        "const": VALUES,
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        "minLength": st.integers(0, 2),
        "pattern": st.sampled_from(["a", "^x", "z$"]),
        "minItems": st.integers(0, 2),
        "uniqueItems": st.booleans(),
        "contains": inner,
        "items": inner,
        "prefixItems": several,
        "required": st.lists(NAMES, max_size=2, unique=True),
        "minProperties": st.integers(0, 2),
        "properties": named,
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "y"]), inner, max_size=1),
        "additionalProperties": inner,
        "propertyNames": inner,
        "dependentRequired": st.dictionaries(NAMES, st.lists(NAMES, max_size=1), max_size=1),
        "dependentSchemas": named,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
        "unevaluatedProperties": inner,
        "unevaluatedItems": inner,
    }
    chosen = st.sets(st.sampled_from(sorted(keywords)), min_size=1, max_size=3)
    return chosen.flatmap(lambda names: st.fixed_dictionaries(MARK | {name: keywords[name] for name in names}))


LEAVES = st.booleans() | st.fixed_dictionaries(MARK | {"type": TYPES}) | st.just({"$ref": "#/$defs/d"})
SCHEMAS = st.recursive(LEAVES, keywords_of, max_leaves=6)
# What a reference points to holds no reference itself, so that there are no cycles.
DEFINITIONS = st.recursive(st.booleans() | st.fixed_dictionaries(MARK | {"type": TYPES}), keywords_of, max_leaves=3)


def nested(levels: int, wrap: Any, value: Any) -> Any:
    for _ in range(levels):
        value = wrap(value)
    return value


def work(schema: dict[str, Any], value: Any) -> int:
    return CostModel(take_apart(schema), per_byte=1, per_match=1).work(value)


# --- the estimate against the truth ------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(SCHEMAS, DEFINITIONS, st.lists(VALUES, min_size=1, max_size=4))
def test_agreement_with_the_python_package(schema: Any, definition: Any, values: list[Any]) -> None:
    """Two implementations by different authors say the same of any value; and nothing so small is refused."""
    whole = {"allOf": [schema], "$defs": {"d": definition}}
    ours, theirs = SchemaValidator(whole), jsonschema.Draft202012Validator(whole)
    for value in values:
        assert (ours.problem(value) is None) == theirs.is_valid(value)


def counted_looks(schema: Any, value: Any) -> int:
    """How often the pure-Python validator looks at some part of a value with some part of a schema."""
    looks = 0

    def look(*_: Any) -> tuple[()]:
        nonlocal looks
        looks += 1
        return ()

    counting = jsonschema.validators.extend(jsonschema.Draft202012Validator, {LOOK: look})
    for _ in counting(schema).iter_errors(value):
        pass
    return looks


def without_unevaluated(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: without_unevaluated(value) for key, value in schema.items() if "unevaluated" not in key}
    return [without_unevaluated(each) for each in schema] if isinstance(schema, list) else schema


@settings(max_examples=examples(300))
@given(SCHEMAS, DEFINITIONS, st.lists(VALUES, min_size=1, max_size=3))
def test_the_estimate_is_an_upper_bound(schema: Any, definition: Any, values: list[Any]) -> None:
    """Of the looks of a validator that stops at nothing. (How it evaluates ``unevaluated*`` is its own affair.)"""
    whole = without_unevaluated({"allOf": [schema], "$defs": {"d": definition}})
    for value in values:
        assert work(whole, value) >= counted_looks(whole, value)


@given(
    st.lists(st.sampled_from(["properties", "additionalProperties", "items", "prefixItems"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(["allOf", "anyOf", "oneOf"]), max_size=2),
    VALUES,
)
def test_the_estimate_is_an_upper_bound_for_recursive_schemas(below: list[str], here: list[str], value: Any) -> None:
    """Where every level of the value multiplies the looks."""
    again: Any = {"$ref": "#", LOOK: True}
    again = nested(1, lambda inner: {LOOK: True, **{key: [inner, inner] for key in here}}, again) if here else again
    places = {"properties": {"a": again}, "additionalProperties": again, "items": again, "prefixItems": [again]}
    schema = {LOOK: True, **{key: places[key] for key in below}}
    assert work(schema, [value, value]) >= counted_looks(schema, [value, value])


def test_true_and_false_are_not_mistaken_for_another_subschema() -> None:
    """Going to a place where anything goes first changes nothing for the places that cost something."""
    again = {"allOf": [{"$ref": "#"}], "enum": [n / 7 for n in range(100)]}
    schema = {"properties": {"free": True, "x": again}}
    costly = work(schema, {"x": {"x": 1}})
    assert work(schema, {"free": {"x": {"x": 1}}, "x": {"x": 1}}) > costly
    assert work(schema, {"free": {"x": {"x": 1}}}) < costly


def test_alternatives_that_are_true_or_false_count() -> None:
    assert work({"items": {"oneOf": [False] * 1000}}, [1] * 100) > 100_000


# --- what is refused ---------------------------------------------------------------------------------------------


def doubling(levels: int) -> dict[str, Any]:
    """Each definition refers twice to the next: 2**levels looks at one value."""
    definitions: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/a0", "$defs": {**definitions, f"a{levels}": {"type": "integer"}}}


BRANCHING = {"type": "object", "additionalProperties": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        pytest.param(doubling(40), 1, id="definitions that double"),
        pytest.param(doubling(900), 1, id="definitions that double without end"),
        pytest.param(BRANCHING, nested(60, lambda value: {"a": value}, 1), id="recursion with two branches"),
        pytest.param(
            {"items": {"$ref": "#"}, "prefixItems": [{"anyOf": [{"$ref": "#"}] * 2}]},
            nested(60, lambda value: [value], 1),
            id="recursion through arrays",
        ),
        pytest.param(
            {"items": {"anyOf": [{"const": n} for n in range(2000)]}}, [-1] * 2000, id="a wide anyOf, a long array"
        ),
        pytest.param({"items": {"enum": [[n] for n in range(2000)]}}, [[-1]] * 2000, id="an enum of arrays"),
        pytest.param({"items": {"enum": [n / 7 for n in range(2000)]}}, [0.1] * 2000, id="an enum of floats"),
        pytest.param({"items": {"const": list(range(2000))}}, [list(range(2000))] * 2000, id="a large constant"),
        pytest.param({"items": {"required": [str(n) for n in range(2000)]}}, [{}] * 2000, id="many required names"),
        pytest.param(
            {"items": {"properties": {str(n): True for n in range(2000)}}}, [{}] * 2000, id="many property names"
        ),
        pytest.param(
            nested(40, lambda inner: {"allOf": [inner], "unevaluatedProperties": False}, {}), {"a": 1}, id="unevaluated"
        ),
        pytest.param({"pattern": "^[ab]*a[ab]{500}$"}, "ab" * MAX_WORK, id="a slow pattern, a long string"),
        pytest.param({"patternProperties": {"^[ab]*a[ab]{500}$": {}}}, {"ab" * MAX_WORK: 1}, id="a long key"),
        pytest.param({"propertyNames": {"pattern": "^[ab]*a[ab]{500}$"}}, {"ab" * MAX_WORK: 1}, id="a long name"),
        pytest.param(
            {"items": {"pattern": "^(?=a)(a|aa)+(?!c)$"}}, ["a" * 50 + "b"] * 50_000, id="a pattern that backtracks"
        ),
        pytest.param({}, nested(MAX_DEPTH + 1, lambda value: [value], 1), id="a deep value"),
        pytest.param({"uniqueItems": True}, nested(100_000, lambda value: [value], 1), id="a very deep value"),
    ],
)
def test_what_could_take_too_long_is_refused(schema: dict[str, Any], value: Any) -> None:
    """2026-07-28 `basic/index`, Composition-Keyword Resource Use: reasonable bounds, before the validation starts."""
    validator = SchemaValidator(schema)
    with pytest.raises(SchemaError, match=r"more than|through"):
        validator.problem(value)


def test_references_that_lead_too_deep_are_refused() -> None:
    """A chain at every level of a deep value would overflow the validator's stack."""
    chain: dict[str, Any] = {f"a{n}": {"$ref": f"#/$defs/a{n + 1}"} for n in range(100)}
    schema = {"$ref": "#/$defs/a0", "$defs": {**chain, "a100": {"items": {"$ref": "#"}}}}
    assert SchemaValidator(schema).problem(nested(10, lambda value: [value], 1)) is None
    with pytest.raises(SchemaError, match="nest more than"):
        SchemaValidator(schema).problem(nested(100, lambda value: [value], 1))


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"anyOf": [{} for _ in range(MAX_SUBSCHEMAS + 1)]}, id="too many"),
        pytest.param({"$defs": {str(n): {"pattern": f"a{n}"} for n in range(1000)}}, id="too many patterns"),
        pytest.param(nested(150, lambda inner: {"not": inner}, {}), id="too deep"),
        pytest.param(nested(5000, lambda inner: {"properties": {"a": inner}}, {}), id="much too deep"),
        pytest.param({"const": nested(5000, lambda inner: [inner], 1)}, id="a deep constant"),
        pytest.param({"pattern": "(a{1000}){1000}"}, id="a huge pattern"),
    ],
)
def test_schemas_of_unreasonable_size_are_refused(schema: dict[str, Any]) -> None:
    """The same section: "a maximum schema depth, a cap on the total number of subschemas"."""
    with pytest.raises(SchemaError):
        SchemaValidator(schema)


def test_a_catastrophic_pattern_is_harmless() -> None:
    """Matched in linear time, and where look-around asks for the other engine, with an end to its backtracking."""
    assert SchemaValidator({"pattern": "^(a+)+$"}).problem("a" * 100_000 + "b")
    assert SchemaValidator({"pattern": "^(?=a)(a|aa)+(?!c)$"}).problem("a" * 5000 + "b")


def test_explaining_a_failure_does_not_cost_more_than_finding_it() -> None:
    """An error for each look that fails, each with a copy of what it looked at: then there are no words."""
    wide = SchemaValidator({"items": {"anyOf": [{"const": n} for n in range(500)]}})
    assert wide.problem([-1] * 1000) == "the value does not conform to the schema, and is too large to say where"
    large = SchemaValidator({"anyOf": [{"type": "integer"}] * 500})
    assert (
        large.problem(["x" * 1000] * 1000) == "the value does not conform to the schema, and is too large to say where"
    )
    long_keys = SchemaValidator(BRANCHING)
    value = nested(10, lambda inner: {"k" * 100_000: inner}, 1)
    assert long_keys.problem(value) == "the value does not conform to the schema, and is too large to say where"


def test_what_has_been_worked_out_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model lives as long as its client, and meets whatever values a server sends."""
    monkeypatch.setattr(schema_cost, "MAX_STATES", 50)
    schema = {"properties": {f"n{n}": {"allOf": [{"$ref": "#"}] * n} for n in range(20)}}
    model = CostModel(take_apart(schema), per_byte=1, per_match=1)
    expected = {}
    for first in range(20):
        for second in range(20):
            value = {f"n{first}": {f"n{second}": {}}}
            expected[first, second] = model.work(value)
            assert model.states_kept <= 50 + 3
    assert expected[3, 5] == CostModel(take_apart(schema), per_byte=1, per_match=1).work({"n3": {"n5": {}}})


# --- what is not refused -----------------------------------------------------------------------------------------


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=0, le=9)]


class Dog(BaseModel):
    kind: Literal["dog"]
    owner: str | None = None


class Customer(BaseModel):
    id: uuid.UUID
    born: datetime.date | None
    name: Annotated[str, Field(min_length=1, max_length=80)]
    tags: dict[str, list[str | None]]
    pets: list[Annotated[Cat | Dog, Field(discriminator="kind")]]
    position: tuple[float, float]


class Tree(BaseModel):
    name: str
    parent: str | None = None
    children: list[Tree] = []


def customer(n: int) -> dict[str, Any]:
    return {
        "id": str(uuid.UUID(int=n)),
        "born": None if n % 2 else "2000-01-01",
        "name": f"Name {n}",
        "tags": {"a": ["b", None]},
        "pets": [{"kind": "cat", "lives": 9}, {"kind": "dog", "owner": "x"}, {"kind": "dog"}],
        "position": [1.5, 2.5],
    }


def tree(depth: int, width: int) -> dict[str, Any]:
    return {"name": f"n{depth}", "children": [tree(depth - 1, width) for _ in range(width)] if depth else []}


JSON = {"anyOf": [{"type": kind} for kind in ("string", "number", "boolean", "null")]}
JSON["anyOf"] += [{"type": "array", "items": {"$ref": "#"}}, {"type": "object", "additionalProperties": {"$ref": "#"}}]

DRAFT_07_NODE = {
    "type": "object",
    "properties": {"children": {"type": "array", "items": {"$ref": "#/definitions/node"}}},
    "additionalProperties": False,
}
DRAFT_07_TREE = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "definitions": {"node": DRAFT_07_NODE},
    "$ref": "#/definitions/node",
}
CLOSED = {"allOf": [{"properties": {"c": True}}], "unevaluatedProperties": False}
CLOSED_IN_CLOSED = {**CLOSED, "properties": {"b": CLOSED}}
IDENTIFIERS = {"items": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{4}$"}}
ADDRESSES = {"items": {"type": "string", "pattern": r"^(?!.*\.\.)[^@\s]+@[^@\s]+$"}}  # look-around, as zod has had it
BASE64 = {"type": "string", "pattern": "^[A-Za-z0-9+/]*=*$"}
ROWS = TypeAdapter(list[Customer]).json_schema(mode="serialization")
TREE = TypeAdapter(Tree).json_schema()

ORDINARY: dict[str, tuple[dict[str, Any], Any]] = {
    "two thousand rows with nested models and unions": (ROWS, [customer(n) for n in range(2000)]),
    "a tree of eight thousand nodes": (TREE, tree(12, 2)),
    "a deep tree": (TREE, nested(90, lambda child: {"name": "n", "children": [child]}, tree(0, 0))),
    "a tree of draft-07": (DRAFT_07_TREE, nested(60, lambda child: {"children": [child, {}]}, {})),
    "any JSON": (JSON, [customer(n) for n in range(1000)]),
    "an enum of strings": ({"items": {"enum": [f"code{n}" for n in range(500)]}}, ["code7"] * 50_000),
    "identifiers": (IDENTIFIERS, ["01234567-89ab"] * 20_000),
    "addresses": (ADDRESSES, ["a.b@example.com"] * 2000),
    "a picture in base64": (BASE64, "A" * 1_500_000),
    "a long text": ({"properties": {"data": {"type": "string"}}}, {"data": "x" * 20_000_000}),
    "a long series": ({"items": {"type": "number"}}, [0.5] * 200_000),
    "closed objects in closed objects": (CLOSED_IN_CLOSED, {"b": {"c": 1}, "c": 1}),
}


@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_schemas_and_values_are_taken(kind: str) -> None:
    """What pydantic and zod write, with values of the size that tools return."""
    schema, value = ORDINARY[kind]
    assert SchemaValidator(schema).problem(value) is None


def test_a_failure_in_a_large_value_is_still_explained() -> None:
    rows = [customer(n) for n in range(1000)]
    rows[777]["name"] = ""
    problem = SchemaValidator(ROWS).problem(rows)
    assert problem is not None
    assert "[777]['name']" in problem
