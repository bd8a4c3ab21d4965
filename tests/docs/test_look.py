"""What the docs' own style sheet and script do, in a browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.kit.chromium import Page, opened

pytestmark = pytest.mark.chromium

STATIC = ROOT / "docs" / "_static"

TABLE = """
<p class="rubric">{section}</p>
<div class="table-wrapper"><table class="docutils filtered">
<thead><tr><th>statement</th><th>keyword</th><th>written in</th><th>checked by</th></tr></thead>
<tbody>{rows}</tbody></table></div>
"""
ROW = "<tr id={id}><td>{text}</td><td>{keyword}</td><td>{written}</td><td>{checked}</td></tr>"

ROWS = {
    "basic/ping": [
        ("a", "Answer at once.", "MUST", "basic/ping 2025-11-25 2026-07-28", "<code>answers-pings</code>"),
        ("b", "Don't ping often.", "SHOULD NOT", "basic/ping 2025-11-25", "open"),
    ],
    "server/tools": [
        ("c", "Name each tool once.", "MUST", "server/tools 2026-07-28", "unchecked"),
        ("d", "Show people the tools.", "SHOULD", "server/tools 2026-07-28", "<code>shows-tools</code>"),
    ],
}


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with opened() as found:
        yield found


def written(folder: Path, body: str, *, script: bool) -> str:
    head = f'<link rel="stylesheet" href="{(STATIC / "pages.css").as_uri()}">'
    head += f'<script src="{(STATIC / "filter.js").as_uri()}" defer></script>' if script else ""
    # The policy of a host that allows nothing inline.
    policy = '<meta http-equiv="Content-Security-Policy" content="script-src file:; style-src file:">'
    path = folder / "page.html"
    path.write_text(f"<!doctype html><html><head>{policy}{head}</head><body>{body}</body></html>")
    return path.as_uri()


def tables() -> str:
    names = ("id", "text", "keyword", "written", "checked")
    return "".join(
        TABLE.format(section=section, rows="".join(ROW.format(**dict(zip(names, row, strict=True))) for row in rows))
        for section, rows in ROWS.items()
    )


async def shown(page: Page) -> str:
    """Return the ids of the rows that can be seen."""
    rows = "[...document.querySelectorAll('tbody tr')].filter((row) => row.checkVisibility())"
    found: str = await page.value_of(f"{rows}.map((row) => row.id).join('')")
    return found


async def test_without_the_script_all_rows_are_there(page: Page, tmp_path: Path) -> None:
    await page.show(written(tmp_path, tables(), script=False), width=1280, scheme="light")
    assert await shown(page) == "abcd"
    assert await page.value_of("document.querySelector('.filter')") is None


FILTERED: list[tuple[dict[str, str], str]] = [
    ({}, "abcd"),
    ({"Filter": "tools"}, "cd"),
    ({"Filter": "TOOL once"}, "c"),
    ({"Filter": "basic/ping"}, "ab"),
    ({"revision": "2025-11-25"}, "ab"),
    ({"keyword": "MUST"}, "ac"),
    ({"state": "checked"}, "ad"),
    ({"state": "unchecked"}, "c"),
    ({"revision": "2026-07-28", "keyword": "MUST", "Filter": "answer"}, "a"),
    ({"Filter": "nothing has this"}, ""),
]
"""What is chosen, and the rows that are left."""

CHOOSE = """
for (const [name, value] of Object.entries(%s)) {
  const labels = [...document.querySelectorAll(".filter label")];
  const control = labels.find((label) => label.firstChild.data.trim() === name).control;
  control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}
"""


async def test_a_filter_leaves_the_rows_that_fit(page: Page, tmp_path: Path) -> None:
    url = written(tmp_path, tables(), script=True)
    for given, left in FILTERED:
        await page.show(url, width=1280, scheme="light")
        await page.value_of(CHOOSE % json.dumps(given))
        assert await shown(page) == left, given
        assert await page.value_of("document.querySelector('.filter output').value") == f"{len(left)} of 4 rows"
        # A section without a row has no heading either.
        headings = "[...document.querySelectorAll('.rubric')].filter((each) => each.checkVisibility()).length"
        assert await page.value_of(headings) == sum(any(row[0] in left for row in rows) for rows in ROWS.values())
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nothing_hides_the_underscores_of_a_module(page: Page, tmp_path: Path, scheme: str) -> None:
    """The theme writes the rules of Pygments' dark style with selectors that are as strong as this one."""
    strong = tmp_path / "pygments.css"
    strong.write_text('body:not([data-theme="light"]) .highlight .nn { text-decoration: underline }')
    code = '<div class="highlight"><pre><span class="nn">trio_mcp</span></pre></div>'
    url = written(tmp_path, f'<link rel="stylesheet" href="{strong.as_uri()}">{code}', script=False)
    await page.show(url, width=1280, scheme=scheme)
    line = "getComputedStyle(document.querySelector('.nn')).textDecorationLine"
    assert await page.value_of(line) == "none"
