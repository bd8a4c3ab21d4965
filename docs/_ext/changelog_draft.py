"""The page of the changelog: what the next release brings, from its fragments, and below it the releases so far."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
PAGE = "reference/changelog"
MARK = "<!-- towncrier release notes start -->"


def write(app: Sphinx, docname: str, source: list[str]) -> None:
    if docname != PAGE:
        return
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "Unreleased", "--date", "next"]
    draft = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    source[0] = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").replace(MARK, draft)


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("source-read", write)
