"""The table in docs/how-to/model_schemas.md is the one that the code has."""

from __future__ import annotations

from tests.docs.pages import ROOT
from trio_mcp.schema import CONSTRUCTS

PAGE = ROOT / "docs" / "how-to" / "model_schemas.md"
HEAD = "| construct | Gemini | OpenAI strict | what becomes of it |\n"


def test_the_table_of_constructs() -> None:
    table = PAGE.read_text().partition(HEAD)[2].partition(":::")[0].splitlines()
    rows = [[cell.strip().strip("`") for cell in line[1:-1].split("|")][:3] for line in table[1:]]
    assert rows == [[row.name, row.gemini.value, row.openai_strict.value] for row in CONSTRUCTS.values()]
