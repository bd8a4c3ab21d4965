"""`trio-mcp snapshot` and `trio-mcp check --snapshot`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import SHOP, run

REVISION = "2025-11-25"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    taken = run(tmp_path, "snapshot", "shop.py")
    assert (taken.returncode, taken.stdout) != (0, ""), taken.stderr
    (tmp_path / "surface.json").write_text(taken.stdout)
    return tmp_path


def test_what_has_not_changed_is_the_same_and_hidden_characters_are_escaped(shop: Path) -> None:
    text = (shop / "surface.json").read_text()
    assert text.isascii()
    assert "\\u001b[31mRed." in text
    same = run(shop, "check", "shop.py", "--snapshot", "surface.json")
    assert (same.returncode, same.stdout) == (0, "the server offers the same as in surface.json\n"), same.stderr


def test_what_has_changed_is_told_by_what_it_means(shop: Path) -> None:
    more = 'server = Server("shop", version="2.0.0", instructions="Prices are in euros.", expose_errors=True)'
    old = 'server = Server("shop", version="1.0.0", instructions="Prices are in cents.", expose_errors=True)'
    assert old in SHOP
    (shop / "shop.py").write_text(SHOP.replace(old, more).replace("pieces: int = 1", "pieces: int"))
    told = run(shop, "check", "shop.py", "--snapshot", "surface.json")
    assert told.returncode == 1, told.stderr
    assert told.stdout == (
        "breaks callers\n"
        "  tool 'price': inputSchema: pieces: is required now\n"
        "reads differently\n"
        "  instructions: was 'Prices are in cents.', is 'Prices are in euros.'\n"
        "  tool 'price': inputSchema: pieces: default was '1', is nothing\n"
        "harmless\n"
        "  serverInfo: version was '1.0.0', is '2.0.0'\n"
    )
    told = run(shop, "check", "shop.py", "--snapshot", "surface.json", "--json")
    found = json.loads(told.stdout)
    assert found["status"] == told.returncode == 1
    assert [each["effect"] for each in found["changes"]] == ["breaks", "reads", "reads", "harmless"]


def test_what_is_harmless_is_told_and_no_failure(shop: Path) -> None:
    (shop / "shop.py").write_text(SHOP.replace("pieces: int = 1", "pieces: int = 1, unit: str = ''"))
    told = run(shop, "check", "shop.py", "--snapshot", "surface.json")
    assert (told.returncode, told.stdout) == (0, "harmless\n  tool 'price': inputSchema: unit: is new\n"), told.stderr


def test_another_revision_is_one_clear_line_that_says_what_to_do(shop: Path) -> None:
    told = run(shop, "check", "shop.py", "--snapshot", "surface.json", "--revision", REVISION)
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.splitlines()[-1] == (
        f"trio-mcp check: surface.json: the snapshot is of revision 2026-07-28, but the server was asked in revision "
        f"{REVISION}; choose the revision with --revision 2026-07-28, or make a new snapshot"
    )
    (shop / "old.json").write_text(run(shop, "snapshot", "shop.py", "--mode", REVISION).stdout)
    same = run(shop, "check", "shop.py", "--snapshot", "old.json", "--revision", REVISION)
    assert (same.returncode, same.stdout) == (0, "the server offers the same as in old.json\n"), same.stderr


def test_a_server_that_cannot_be_reached_was_not_compared(shop: Path) -> None:
    told = run(shop, "check", "--snapshot", "surface.json", "--", "no-such-server")
    assert (told.returncode, told.stdout) == (2, "")
    assert told.stderr.startswith("trio-mcp check: can't start 'no-such-server'")
    assert told.stderr.count("\n") == 1
