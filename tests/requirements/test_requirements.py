"""Every requirement of the specification, over every transport and in every revision that has it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import trio

from tests.requirements.case import TRANSPORTS, Case
from tests.requirements.model import Requirement, Topic, topics
from trio_mcp.types.versions import REVISIONS

ROOT = Path(__file__).resolve().parents[2]
TOPICS = list(topics())
ROWS = [(topic, row) for topic in TOPICS for row in topic.rows.values()]
EXCHANGES = [topic for topic in TOPICS if any(row.exchange for row in topic.rows.values())]
PLACES = [(transport, revision) for transport, each in TRANSPORTS.items() for revision in each.revisions]
SCENARIOS = [
    pytest.param(
        topic,
        row,
        transport,
        revision,
        id=f"{transport}-{revision}-{topic.module}-{row.name}",
        marks=[pytest.mark.again] if TRANSPORTS[transport].apart else [],
    )
    for topic, row in ROWS
    if row.scenario is not None
    for transport, revision in PLACES
    if row.runs_over(transport, revision)
]


@pytest.mark.parametrize(("topic", "row", "transport", "revision"), SCENARIOS)
async def test_scenario(topic: Topic, row: Requirement, transport: str, revision: str) -> None:
    """The row's own text."""
    assert row.scenario is not None
    with trio.fail_after(60):  # against a hang only
        await row.scenario(Case(topic, TRANSPORTS[transport], revision))


@pytest.mark.parametrize(
    ("transport", "revision"),
    [pytest.param(*place, marks=[pytest.mark.again] if TRANSPORTS[place[0]].apart else []) for place in PLACES],
)
@pytest.mark.parametrize("topic", EXCHANGES, ids=lambda t: t.module)
async def test_exchanges(topic: Topic, transport: str, revision: str) -> None:
    """The texts of a topic's rows, one after the other on one connection."""
    failures = []
    with trio.fail_after(60):  # against a hang only
        async with Case(topic, TRANSPORTS[transport], revision).hand() as hand:
            for row in topic.rows.values():
                if row.exchange is not None and row.runs_over(transport, revision):
                    try:
                        await row.exchange(hand)
                    except AssertionError as exc:
                        exc.add_note(row.text)
                        failures.append(exc)
    if failures:
        raise ExceptionGroup(f"{len(failures)} requirements are not met", failures)


def test_rows() -> None:
    """A row names a section, revisions of this protocol in order, and a test that exists; no two say the same."""
    for _, row in ROWS:
        assert re.fullmatch(r"[a-z0-9/_-]+(#[a-z0-9_-]+)?", row.section), row
        assert row.text.endswith("."), row
        assert row.revisions, row
        assert list(row.revisions) == [revision for revision in REVISIONS if revision in row.revisions], row
        assert any(row.runs_over(*place) for place in PLACES), row
        if row.test is not None:
            file, _, name = row.test.partition("::")
            assert name in functions_of(file), row.test
    texts = [row.text for _, row in ROWS]
    assert sorted(texts) == sorted(set(texts))


@cache
def functions_of(file: str) -> set[str]:
    """Return the test functions of a file, those of classes as ``Class::function``; state machines as ``Class``."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ClassDef):
            found.add(node.name)
            inner = (each for each in node.body if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)))
            found |= {f"{node.name}::{each.name}" for each in inner}
    return found
