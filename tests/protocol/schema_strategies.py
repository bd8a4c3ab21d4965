"""Small schemas of 2020-12 that use every keyword, and values that they may well say something about."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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
