"""Everything that the documentation shows runs, and prints what it says; each page has its place."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import forks
from tests.docs.pages import README, ROOT, blocks_of, pages

RUNNER = Path(__file__).with_name("run_page.py")
PAGES_WITH_CODE = [
    page for page in pages() if any(block.language in ("python", "console") for block in blocks_of(page))
]

SET_UP = [
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/trio-mcp demo",
    'python3 -m venv .venv && .venv/bin/pip install -q -e ".[test]" && .venv/bin/python -m pytest',
]


# Hypothesis looks for what refers to Trio's source of random numbers, and does not see what a fork has from its origin.
WARNINGS = ("-W", "error", "-W", "ignore:It looks like `register_random`")


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    # A stdio server gets a short list of environment variables, so the examples find the package beside themselves.
    (folder / "trio_mcp").symlink_to(ROOT / "trio_mcp")
    # As in an activated environment: the programs that a page starts by their names are this one's.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cli = forks.command("trio_mcp", *forks.LOADED)
    return subprocess.run(
        [*forks.command(str(RUNNER), *forks.LOADED, options=WARNINGS), str(page)],
        cwd=folder,
        env={**os.environ, "PATH": path, "TRIO_MCP": json.dumps(cli)},
        capture_output=True,
        text=True,
        timeout=300,
    )


LONG = {
    ROOT / "docs" / page
    for page in (
        "how-to/kit_rules.md",
        "how-to/testing_your_server.md",
        "how-to/writing_a_transport.md",
        "reference/cli.md",
    )
}
"""Pages that take half a minute on a busy machine: they run with ``-m again``."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.again] if page in LONG else []) for page in PAGES_WITH_CODE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_runs_and_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    ended = run_page(page, tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr


WRONG_PAGES = {
    "another value": "```python\nprint(1 + 1)  # -> 3\n```\n",
    "nothing printed": "```python\nx = 1\nif x > 1:\n    print(x)  # -> 1\n```\n",
    "another output": "```python\nprint(1)\nprint(2)\n```\n\n```output\n1\n3\n```\n",
    "unchecked output": "```python\nprint(1)\n```\n",
    "an exception": "```python\nimport trio\n\nawait trio.sleep(0)\nraise KeyError\n```\n",
    "a command that fails": "```console\n$ python -c 'raise SystemExit(1)'\n```\n",
    "a command that prints something else": "```console\n$ python -c 'print(5)'\n6\n```\n",
    "a command that should fail": "```console\n$ python -c 'print(5)'\n5\n$ echo $?\n1\n```\n",
    "a language that nothing runs": "```py\n1 / 0\n```\n",
}


@pytest.mark.parametrize("text", WRONG_PAGES.values(), ids=WRONG_PAGES)
def test_a_wrong_page_is_found_out(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert run_page(page, tmp_path).returncode != 0


def test_a_right_page_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1 + 1)  # -> 2\n```\n\n```python\nprint('a')\nprint('b')\n```\n\n```output\na\nb\n```\n\n"
        "```console\n$ python -c 'print(5); print(6)'\n5\n...\n```\n\n"
        "```console\n$ python -c 'exit(3)'\n$ echo $?\n3\n```\n"
    )
    ended = run_page(page, tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_the_readme_says_how_to_set_up_in_exactly_two_commands() -> None:
    commands = [
        line.removeprefix("$ ")
        for block in blocks_of(README)
        if block.language == "console"
        for line in block.text.splitlines()
        if line.startswith("$ ") and not line.startswith(("$ trio-mcp", "$ python "))
    ]
    assert commands == SET_UP


def test_only_the_readme_has_commands_that_are_not_run() -> None:
    for page in pages():
        for block in blocks_of(page):
            if block.language == "console" and page != README:
                not_run = re.findall(r"^\$ (?!python |trio-mcp |echo \$\?$)(.*)$", block.text, flags=re.MULTILINE)
                assert not not_run, f"{page.name}:{block.line}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in pages():
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_workflows_give_the_action_what_it_takes() -> None:
    inputs = re.findall(
        r"^  ([\w-]+):$", (ROOT / "action.yml").read_text().partition("outputs:")[0], flags=re.MULTILINE
    )
    blocks = [block.text for page in pages() for block in blocks_of(page) if block.language == "yaml"]
    steps = [step for block in blocks for step in re.split(r"^ *- ", block, flags=re.MULTILINE) if "trio-mcp" in step]
    given = {name for step in steps for name in re.findall(r"^ {10}([\w-]+):", step, flags=re.MULTILINE)}
    assert given
    assert given <= set(inputs)


# --- the place of each page -------------------------------------------------------------------------------------------


DOCS = ROOT / "docs"
START = DOCS / "index.md"
PARTS = ("tutorial", "how-to", "explanation", "reference")
ELSEWHERE = {
    "design.md": "explanation",
    **{f"design/{page.name}": "explanation" for page in (DOCS / "design").glob("*.md")},
    "rough_edges.md": "explanation",
    "performance.md": "reference",
}
"""Pages that stay at the top, where tools and readers of the source look for them."""

PAGES = [page for page in pages() if page.is_relative_to(DOCS) and not page.is_relative_to(DOCS / "changes")]


def contents(page: Path) -> list[Path]:
    """Return the pages that the tables of contents of a page name."""
    lines = [line for block in blocks_of(page) if block.language == "{toctree}" for line in block.text.split("\n")]
    return [(page.parent / f"{line}.md").resolve() for line in lines if line and not line.startswith(":")]


def contents_below(page: Path) -> set[Path]:
    """Return the pages that the tables of contents of a page name, and those of these pages."""
    return {found for entry in contents(page) for found in (entry, *contents_below(entry))}


def test_the_start_page_leads_to_the_four_parts() -> None:
    assert contents(START) == [DOCS / part / "index.md" for part in PARTS]


def test_every_page_is_in_exactly_one_table_of_contents() -> None:
    listed = Counter(entry for page in PAGES for entry in contents(page))
    assert listed == Counter(page for page in PAGES if page != START)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_lists_its_own_pages(part: str) -> None:
    own = {page for page in (DOCS / part).glob("*.md") if page.name != "index.md"}
    own |= {DOCS / name for name, belongs_to in ELSEWHERE.items() if belongs_to == part}
    assert contents_below(DOCS / part / "index.md") == own


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_begins_with_a_paragraph(page: Path) -> None:
    text = page.read_text()
    if (included := re.match(r"```\{include\} (\S+)", text)) is not None:
        text = (page.parent / included[1]).read_text()
    assert re.match(r"# .+\n\n(?!```|\* |\d+\. )[\w`*\[]", text), "after its title a page says what it is for"
