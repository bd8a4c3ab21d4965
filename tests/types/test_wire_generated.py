"""Any instance of any construct, and each published example, fits its revision's schema and survives a round trip."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

import trio_mcp.types
from tests.effort import examples
from tests.strategies import constructs
from tests.types.published import examples as published_examples, validator
from trio_mcp.testing.strategies import json_values, wire_models
from trio_mcp.types._base import WireModel
from trio_mcp.types.versions import REVISIONS

# Hundreds of small tests: a few examples each keep the run short, and every run draws others.
few = settings(
    max_examples=examples(5),
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

CASES = [(revision, model) for revision in REVISIONS for model in constructs(revision)]


def ids(value: object) -> str | None:
    return value.__name__ if isinstance(value, type) else None


@pytest.mark.published
@pytest.mark.parametrize(("revision", "model"), CASES, ids=ids)
def test_instance_fits_the_published_schema(revision: str, model: type[WireModel]) -> None:
    try:
        schema = validator(revision, model.__name__)
    except KeyError:
        return  # described in place; instances of it are part of those that have a name

    @few
    @given(wire_models(model, revision))
    def check(instance: WireModel) -> None:
        schema.validate(instance.to_wire())

    check()


@functools.cache
def in_any_revision(model: type[WireModel]) -> st.SearchStrategy[WireModel]:
    return st.one_of(*(wire_models(each, revision, extras=True) for revision, each in CASES if each is model))


@pytest.mark.parametrize("model", sorted({model for _, model in CASES}, key=lambda model: model.__name__), ids=ids)
def test_instance_survives_the_wire(model: type[WireModel]) -> None:
    """Unknown fields at any depth and nulls inside them survive; what goes out is plain JSON data."""

    @few
    @given(in_any_revision(model))
    def check(instance: WireModel) -> None:
        wire = instance.to_wire()
        assert from_json(to_json(wire)) == wire
        assert model.from_wire(wire).to_wire() == wire

    check()


@few
@given(st.lists(json_values(), max_size=3))
def test_constructs_tell_garbage_by_validation_errors_only(garbage: list[object]) -> None:
    """Anything a peer sends in place of a construct gives a ValidationError (a ValueError) or a model."""
    for model in constructs("2025-11-25"):
        for value in garbage:
            try:
                model.from_wire(value)
            except ValueError:
                continue


# --- the examples of the specification ---------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Write back what was read from a construct that is not itself a model."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.to_wire() if isinstance(value, WireModel) else value


@pytest.mark.published
@pytest.mark.parametrize("path", published_examples(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_published_example_survives_a_round_trip(path: Path) -> None:
    data = json.loads(path.read_text())
    construct: Any = getattr(trio_mcp.types, path.parent.name)
    if isinstance(construct, type) and issubclass(construct, WireModel):
        wire = construct.from_wire(data).to_wire()
    else:
        wire = plain(TypeAdapter(construct).validate_python(data, by_alias=True, by_name=False))
    assert wire == data


@pytest.mark.published
def test_there_are_examples_of_many_constructs() -> None:
    """An empty folder would make the test above pass without a single example."""
    assert len({path.parent.name for path in published_examples()}) > 50
