"""What the page for users of other libraries calls theirs is there, in the versions that the tests install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.peers.installs import InstallError
from tests.docs.pages import ROOT
from tests.interop import python_peers

pytestmark = [pytest.mark.interop, pytest.mark.again]  # two other libraries are installed for it

PAGE = ROOT / "docs" / "how-to" / "migrating.md"
COLUMNS = {"official SDK 2": "mcp", "FastMCP": "fastmcp"}
ABSENT = "\N{EN DASH}"


def rows() -> Iterator[dict[str, str]]:
    """Yield the rows of the page's tables that name two libraries, by column."""
    header: list[str] = []
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            header = []
        elif not header:
            header = cells
        elif COLUMNS.keys() <= set(header) and not set(line) <= set("|-: "):
            yield dict(zip(header, cells, strict=True))


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


class Offers:
    """What a library offers."""

    def __init__(self, library: str, interpreter: str) -> None:
        script = Path(__file__).with_name("foreign_names.py")
        printed = subprocess.run(
            [interpreter, str(script), library], capture_output=True, text=True, timeout=120, check=True
        )
        found: dict[str, Any] = json.loads(printed.stdout)
        self._attributes: dict[str, list[str]] = found["attributes"]
        self._keywords = set(found["keywords"])
        self._names = {*found["names"], *(name for names in self._attributes.values() for name in names)}

    def lacks(self, span: str) -> list[str]:
        """Return the names and keywords of a piece of code that are not there."""
        missing = [f"{keyword}=" for keyword in re.findall(r"\b(\w+)=", span) if keyword not in self._keywords]
        called = re.match(r"(?:async with |await |raise )?@?([A-Za-z_][\w.]*)(?!\w*=)", span)
        if called and not span.startswith(f"{called[1]}="):
            owner, _, name = called[1].rpartition(".")
            known = self._attributes.get(owner, ()) if owner else {*self._names, *self._attributes}
            if name not in known:
                missing.append(called[1])
        return missing


@pytest.fixture(scope="module")
def offers() -> dict[str, Offers]:
    def say(line: str) -> None:
        print(line, file=sys.stderr)

    try:
        return {
            "mcp": Offers("mcp", sys.executable),
            "fastmcp": Offers("fastmcp", str(python_peers.install(say, "fastmcp"))),
        }
    except InstallError as error:
        pytest.fail(str(error), pytrace=False)


def judged(offers: dict[str, Offers], judge: Callable[[Offers, str, dict[str, str]], list[str]]) -> list[str]:
    return [
        f"{column}: {wrong}"
        for row in rows()
        for column, library in COLUMNS.items()
        for wrong in judge(offers[library], column, row)
    ]


def test_every_name_of_theirs_is_there(offers: dict[str, Offers]) -> None:
    assert sum(1 for _ in rows()) > 40
    assert (
        judged(offers, lambda theirs, column, row: [name for span in spans(row[column]) for name in theirs.lacks(span)])
        == []
    )


def test_what_is_said_to_be_missing_is_not_there_under_the_other_ones_name(offers: dict[str, Offers]) -> None:
    def found(theirs: Offers, column: str, row: dict[str, str]) -> list[str]:
        if row[column] != ABSENT:
            return []
        (other,) = COLUMNS.keys() - {column}
        return [f"has {span}" for span in spans(row[other]) if not theirs.lacks(span)]

    assert judged(offers, found) == []
