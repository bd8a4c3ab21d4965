"""A copy of the project whose package lacks the legacy era over HTTP, without the tests of the removed parts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]

LEGACY = ("trio_mcp.http.client.legacy", "trio_mcp.http.server.legacy")
"""What is deleted."""

OF_THE_ERA = "pytestmark = pytest.mark.legacy\n"
"""A file of tests that has this line has no other tests, and is deleted with what it tests."""


def copy_without_legacy(to: Path) -> Path:
    """Copy only what the tests of the modern era need."""
    ignore = shutil.ignore_patterns("__pycache__", ".hypothesis", "*.egg-info")
    for folder in ("trio_mcp", "tests"):
        shutil.copytree(CHECKOUT / folder, to / folder, ignore=ignore)
    shutil.copy(CHECKOUT / "pyproject.toml", to)
    for name in LEGACY:
        shutil.rmtree(to.joinpath(*name.split(".")))
    for file in (to / "tests").rglob("test_*.py"):
        if OF_THE_ERA in file.read_text():
            file.unlink()
    return to


def environment(copy: Path) -> dict[str, str]:
    """Return the variables of a process that imports the copy, and of whatever it starts."""
    return {**os.environ, "PYTHONPATH": str(copy)}
