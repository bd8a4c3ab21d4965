"""A folder with a server's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import SHOP


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path
