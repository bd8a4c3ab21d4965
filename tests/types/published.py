"""The published JSON Schemas and examples: a folder beside the checkout holds them.

Tests that need them are marked ``published``. Without the folder they fail.
"""

import functools
import json
from pathlib import Path
from typing import Any

import jsonschema_rs

__all__ = ["EXAMPLES", "REPAIRS", "SCHEMAS", "definitions", "examples", "validator"]

_SHARED = Path(__file__).resolve().parents[3] / "shared"
SCHEMAS = _SHARED / "schema"
EXAMPLES = _SHARED / "spec-examples"

# Where the generated JSON Schema says less than the TypeScript source it was generated from.
REPAIRS: dict[str, dict[str, Any]] = {
    # The source allows number and null; the generated type list has "integer" and no "null".
    "2026-07-28": {"JSONValue": {}},
}


@functools.cache
def _schema(revision: str) -> tuple[dict[str, Any], str]:
    schema = json.loads((SCHEMAS / f"{revision}.json").read_text())
    section = "$defs" if "$defs" in schema else "definitions"
    schema[section].update(REPAIRS.get(revision, {}))
    return schema, section


def definitions(revision: str) -> dict[str, Any]:
    """Return the definitions of a revision's schema by name."""
    schema, section = _schema(revision)
    return dict(schema[section])


@functools.cache
def validator(revision: str, name: str) -> Any:
    """Return a validator for one definition of a revision."""
    schema, section = _schema(revision)
    if name not in schema[section]:
        raise KeyError(name)
    return jsonschema_rs.validator_for({**schema, "$ref": f"#/{section}/{name}"})


def examples() -> list[Path]:
    """Return the published examples; the folder of each is the name of its construct."""
    return sorted(EXAMPLES.glob("*/*.json"))
