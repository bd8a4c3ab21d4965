"""The vendors' own SDKs have nothing against schemas in their dialects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio

from tests.schema.test_model_schemas import RECORDED, TOOLS
from trio_mcp.schema import DIALECT_NAMES, ModelSchema

from . import python_peers
from .conftest import installed_peers

pytestmark = [pytest.mark.again, pytest.mark.interop]

DEADLINE = 60
"""Seconds; no assertion depends on it."""


async def test_the_sdks_take_the_schema_of_each_tool(request: pytest.FixtureRequest) -> None:
    python = installed_peers(request, lambda say: python_peers.install(say, "models"))
    lines = [
        json.dumps([name, dialect, ModelSchema(schema, dialect).schema])  # type: ignore[arg-type]
        for name, schema in {**TOOLS, **RECORDED}.items()
        for dialect in DIALECT_NAMES
    ]
    assert len(lines) > 200
    with trio.fail_after(DEADLINE):
        ended = await trio.run_process(
            [python, Path(__file__).parent / "peers" / "model_schemas.py"],
            stdin="\n".join(lines).encode(),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert not ended.returncode, ended.stderr.decode()
    assert ended.stdout.decode().splitlines() == []
