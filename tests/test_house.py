"""What keeps the house simple: no ladders of classes, no public name that nobody has looked at, no crumbs of files."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from difflib import unified_diff

import pytest

import trio_mcp
from tests.public_names import LISTED, PACKAGE, lines

MOST_CLASSES = 4
"""In the MRO of a public class, besides `object` and those of the standard library."""

FEWEST_LINES = 40

SMALL = {
    "__init__.py": "says what the folder is",
    "__main__.py": "runs the command line",
    "_version.py": "read by the build",
}
"""Files that may be shorter, and why."""


def modules() -> Iterator[str]:
    for info in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp."):
        if not info.name.endswith("__main__"):
            yield info.name


def classes() -> list[type]:
    found = {}
    for name in modules():
        module = importlib.import_module(name)
        for value in vars(module).values():
            if inspect.isclass(value) and value.__module__ == name and not value.__name__.startswith("_"):
                found[value] = None
    return list(found)


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_no_public_class_has_a_ladder_of_bases(kind: type) -> None:
    """Objects own parts instead of inheriting them."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in sys.stdlib_module_names]
    foreign = [base for base in ours if not base.__module__.startswith("trio_mcp")]
    assert len(ours) - len(foreign) <= MOST_CLASSES, ours


def test_every_public_name_has_been_looked_at() -> None:
    """A name that loses its underscore, or a new one, shows in a reviewed file (`python -m tests.public_names`)."""
    listed, found = LISTED.read_text().splitlines(), list(lines())
    assert found == listed, "\n".join(unified_diff(listed, found, "reviewed", "found", lineterm="", n=0))


def test_no_file_is_a_crumb() -> None:
    """What fits in a few lines belongs to a file with a subject."""
    crumbs = {
        str(file.relative_to(PACKAGE)): count
        for file in PACKAGE.rglob("*.py")
        if (count := len(file.read_text().splitlines())) < FEWEST_LINES and file.name not in SMALL
    }
    assert crumbs == {}
