"""The drawings of the docs are what their texts say."""

from __future__ import annotations

from runpy import run_path

from tests.docs.pages import ROOT


def test_the_committed_drawings_are_made_from_their_texts() -> None:
    drawings = run_path(str(ROOT / "docs" / "_ext" / "drawings.py"))["drawings"]()
    assert len(drawings) >= 6
    stale = [path.name for path, svg in drawings.items() if not path.exists() or path.read_text() != svg]
    assert stale == [], "run: python docs/_ext/drawings.py"
    assert set((ROOT / "docs" / "images").glob("*.svg")) == drawings.keys()
