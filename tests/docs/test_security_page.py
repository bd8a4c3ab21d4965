"""Each line of the page about authorization's security names tests, and they are there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT

PAGE = ROOT / "docs" / "explanation" / "authorization.md"
ROWS = [line for line in PAGE.read_text().splitlines() if line.startswith("| **")]


def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / "auth" / path).read_text())
    return {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: re.findall(r"\*\*(.*?)\*\*", row)[0])
def test_a_line_has_tests_that_are_there(row: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", row)
    assert named
    assert [name for path, name in named if name not in functions(path)] == []
