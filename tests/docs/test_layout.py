"""Each page of the documentation has its place: one part, one table of contents, one first paragraph."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks_of, pages

DOCS = ROOT / "docs"
START = DOCS / "index.md"
PARTS = ("tutorial", "how-to", "explanation", "reference")
ELSEWHERE = {"design.md": "explanation", "rough_edges.md": "explanation"}
"""Pages that stay at the top, where tools and readers of the source look for them."""

PAGES = [page for page in pages() if page.is_relative_to(DOCS) and not page.is_relative_to(DOCS / "changes")]


def contents(page: Path) -> list[Path]:
    """Return the pages that the tables of contents of a page name."""
    lines = [line for block in blocks_of(page) if block.language == "{toctree}" for line in block.text.split("\n")]
    return [(page.parent / f"{line}.md").resolve() for line in lines if line and not line.startswith(":")]


def test_the_start_page_leads_to_the_four_parts() -> None:
    assert contents(START) == [DOCS / part / "index.md" for part in PARTS]


def test_every_page_is_in_exactly_one_table_of_contents() -> None:
    listed = Counter(entry for page in PAGES for entry in contents(page))
    assert listed == Counter(page for page in PAGES if page != START)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_lists_its_own_pages(part: str) -> None:
    own = {page for page in (DOCS / part).glob("*.md") if page.name != "index.md"}
    own |= {DOCS / name for name, belongs_to in ELSEWHERE.items() if belongs_to == part}
    assert set(contents(DOCS / part / "index.md")) == own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_a_paragraph(page: Path) -> None:
    text = page.read_text()
    if (included := re.match(r"```\{include\} (\S+)", text)) is not None:
        text = (page.parent / included[1]).read_text()
    assert re.match(r"# .+\n\n(?!```|\* |\d+\. )[\w`*\[]", text), "after its title a page says what it is for"
