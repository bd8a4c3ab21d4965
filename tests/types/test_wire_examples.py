"""The examples of the specification are valid constructs, and reading and writing one changes nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

import trio_mcp.types
from tests.types.published import examples
from trio_mcp.types import WireModel

pytestmark = pytest.mark.published


def plain(value: Any) -> Any:
    """Write back what was read from a construct that is not itself a model."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.to_wire() if isinstance(value, WireModel) else value


@pytest.mark.parametrize("path", examples(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_published_example_survives_a_round_trip(path: Path) -> None:
    data = json.loads(path.read_text())
    construct: Any = getattr(trio_mcp.types, path.parent.name)
    if isinstance(construct, type) and issubclass(construct, WireModel):
        wire = construct.from_wire(data).to_wire()
    else:
        wire = plain(TypeAdapter(construct).validate_python(data, by_alias=True, by_name=False))
    assert wire == data


def test_there_are_examples_of_many_constructs() -> None:
    """An empty folder would make the test above pass without a single example."""
    assert len({path.parent.name for path in examples()}) > 50
