"""What docs/how-to/writing_a_transport.md says of the rules and traits is so."""

from __future__ import annotations

from pathlib import Path

from tests.contract.http import HTTP
from tests.contract.transports import TRANSPORTS
from tests.docs.pages import ROOT, blocks_of
from trio_mcp.testing.contract.check import RULES
from trio_mcp.testing.contract.rule import TRAITS

PAGE = ROOT / "docs" / "how-to" / "writing_a_transport.md"


def rows(head: str) -> list[list[str]]:
    """Return the cells of the table with this head."""
    table = PAGE.read_text().partition(f"| {head} |\n")[2].partition("\n\n")[0].splitlines()
    return [[cell.strip().replace("`", "") for cell in line[1:-1].split("|")] for line in table[1:]]


def test_the_rules() -> None:
    expected = [
        [rule.name, rule.sentence.replace("`", ""), rule.needs or "", rule.unless or ""] for rule in RULES.values()
    ]
    assert rows("rule | what it asks for | needs | not with") == expected


def test_the_traits() -> None:
    assert rows("trait | what it says") == [[name, text.replace("`", "")] for name, text in TRAITS.items()]


def test_the_traits_of_our_transports(tmp_path: Path) -> None:
    arguments = {name: make(tmp_path) for name, make in {**TRANSPORTS, **HTTP}.items()}
    declared = {name: ", ".join(sorted(each["traits"])) for name, each in arguments.items() if "traits" in each}
    assert dict(rows("transport | traits")) == declared


def test_a_transport_has_sixty_lines_at_most() -> None:
    (block,) = [block for block in blocks_of(PAGE) if block.file_name == "fifos.py"]
    assert block.text.count("\n") <= 60
