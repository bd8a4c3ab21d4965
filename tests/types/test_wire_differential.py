"""Comparison with the official SDK's types: what one side builds, the other accepts, and neither changes it."""

import functools
from typing import Any

import mcp_types._v2025_11_25 as their_2025
import mcp_types._v2026_07_28 as their_2026
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from pydantic import BaseModel, ValidationError

import trio_mcp.types
from tests.effort import examples
from tests.strategies import constructs
from trio_mcp.testing.strategies import numbers, texts, wire_models
from trio_mcp.testing.strategies.messages import annotated_values, flatten
from trio_mcp.types.elicitation import RequestedSchema

few = settings(max_examples=examples(5), database=None, suppress_health_check=list(HealthCheck))

PACKAGES = {"2025-11-25": their_2025, "2026-07-28": their_2026}

SHARED = [
    (revision, model.__name__)
    for revision, package in PACKAGES.items()
    for model in constructs(revision)
    if isinstance(getattr(package, model.__name__, None), type)
]

# Where the two sides disagree, as data: the constructs, and the reason.


# Fields of theirs that take more than the schema allows; our examples keep to what it allows.
THEY_TAKE_MORE: dict[str, st.SearchStrategy[Any]] = {
    # any value as a form field
    "RequestedSchema.properties": wire_models(RequestedSchema, "2025-06-18").map(
        lambda form: form.to_wire()["properties"]
    ),
    # any result without the fields of an answer as one that asks; ours must say so
    "InputRequiredResult.result_type": st.just("input_required"),
    # any value as the server's name and version
    "ResultMetaObject.io_modelcontextprotocol_server_info": st.fixed_dictionaries(
        {"name": texts(), "version": texts()}
    ),
}


@functools.cache
def their_data(model: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    """Build the wire form of one of their models from its fields."""
    required, optional = {}, {}
    for name, field in model.model_fields.items():
        arms = [arm for arm in flatten(field.annotation) if field.is_required() or arm is not type(None)]
        bounds = {type(bound).__name__: bound for bound in field.metadata}
        if f"{model.__name__}.{name}" in THEY_TAKE_MORE:
            values = THEY_TAKE_MORE[f"{model.__name__}.{name}"]
        elif "Le" in bounds:
            values = numbers(bounds["Ge"].ge, bounds["Le"].le)
        elif "Ge" in bounds:
            values = st.integers(min_value=bounds["Ge"].ge)
        else:
            values = st.one_of(*(annotated_values(arm, their_data) for arm in arms))
        group = required if field.is_required() else optional
        group[field.alias or name] = values
    return st.fixed_dictionaries(required, optional=optional)


@pytest.mark.parametrize(("revision", "name"), SHARED)
def test_we_read_their_instances_and_write_them_back(revision: str, name: str) -> None:
    ours, theirs = getattr(trio_mcp.types, name), getattr(PACKAGES[revision], name)

    @few
    @given(their_data(theirs))
    def check(data: dict[str, Any]) -> None:
        wire = theirs.model_validate(data, by_name=False).model_dump(by_alias=True, exclude_unset=True)
        assert ours.from_wire(wire).to_wire() == wire

    check()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("RequestedSchema", {"type": "object", "properties": {"age": None}}),
        ("CallToolResultResponse", {"jsonrpc": "2.0", "id": 1, "result": {"resultType": "complete"}}),
        ("ResultMetaObject", {"io.modelcontextprotocol/serverInfo": "a name"}),
    ],
)
def test_known_disagreements_are_still_there(name: str, data: dict[str, Any]) -> None:
    """They take what the schema does not allow; once they no longer do, the exceptions above can go."""
    getattr(their_2026, name).model_validate(data, by_name=False)
    with pytest.raises(ValidationError):
        getattr(trio_mcp.types, name).from_wire(data)
