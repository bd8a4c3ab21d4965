"""Every requirement of the specification, over every transport and in every revision that has it."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import trio

from tests.requirements.case import TRANSPORTS, Case
from tests.requirements.model import Requirement, Topic, topics

ROOT = Path(__file__).resolve().parents[2]
TOPICS = list(topics())
ROWS = [(topic, row) for topic in TOPICS for row in topic.rows.values()]
CASES = [
    pytest.param(topic, row, transport, revision, id=f"{transport}-{revision}-{topic.module}-{row.name}")
    for topic, row in ROWS
    if row.scenario is not None
    for transport in TRANSPORTS
    for revision in row.revisions
    if revision in TRANSPORTS[transport].revisions and row.runs_over(transport, revision)
]


@pytest.fixture(scope="module", autouse=True)
def running() -> Iterator[None]:
    """Run what the transports need."""
    with contextlib.ExitStack() as stack:
        for transport in TRANSPORTS.values():
            stack.enter_context(transport.running())
        yield


@pytest.mark.parametrize(("topic", "row", "transport", "revision"), CASES)
async def test_requirement(topic: Topic, row: Requirement, transport: str, revision: str) -> None:
    """The row's own text."""
    assert row.scenario is not None
    with trio.fail_after(60):  # against a hang only
        await row.scenario(Case(topic, TRANSPORTS[transport], revision))


@pytest.mark.parametrize(("topic", "row"), [pytest.param(t, r, id=f"{t.module}-{r.name}") for t, r in ROWS])
def test_row(topic: Topic, row: Requirement) -> None:
    """A row names a section, revisions of this protocol in order, and a test that exists and is run."""
    assert re.fullmatch(r"[a-z0-9/_-]+(#[a-z0-9_-]+)?", row.section), row.section
    assert row.text.endswith(".")
    assert row.revisions
    known = [revision for revision in TRANSPORTS["memory"].revisions if revision in row.revisions]
    assert list(row.revisions) == known
    if row.scenario is not None:
        assert any(case.values[1] is row for case in CASES), "it is never run"
    else:
        assert row.test is not None
        file, _, name = row.test.partition("::")
        assert name in functions_of(file), row.test


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


def test_no_requirement_is_told_twice() -> None:
    """Two rows with one text are one behaviour."""
    texts = [row.text for _, row in ROWS]
    assert len(texts) == len(set(texts))
