"""The modern era conforms without the legacy era's HTTP code: the same suite, with the same totals.

`tests/test_without_legacy.py` has the same for our own tests.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.modern_copy import LEGACY, copy_without_legacy, environment

from .serving import everything_url
from .test_client import judge_client
from .test_server import judge_server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .suite import Suite

pytestmark = pytest.mark.conformance

MODERN = "2026-07-28"

IMPORTED = f"""
import importlib.util, trio_mcp
print(trio_mcp.__file__, *filter(importlib.util.find_spec, {LEGACY!r}))
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy without the legacy folders; processes started in it, such as the suite's peers, import the copy."""
    copy = copy_without_legacy(tmp_path_factory.mktemp("copy"))
    said = subprocess.run([sys.executable, "-c", IMPORTED], cwd=copy, capture_output=True, text=True, check=True)
    assert said.stdout.split() == [str(copy / "trio_mcp" / "__init__.py")]
    return copy


@pytest.fixture(autouse=True)
def _imports_the_copy(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", environment(copy)["PYTHONPATH"])


def test_the_server_conforms_without_the_legacy_era(
    suite: Suite, copy: Path, tmp_path: Path, say: Callable[[str], None]
) -> None:
    with everything_url(copy) as url:
        say(judge_server(suite, url, MODERN, tmp_path))


def test_the_client_conforms_without_the_legacy_era(
    suite: Suite, copy: Path, tmp_path: Path, say: Callable[[str], None]
) -> None:
    say(judge_client(attrs.evolve(suite, checkout=copy), MODERN, tmp_path))
