"""The installed suite, and a function that reports its progress."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.interop import node_peers

from .suite import MANIFEST, Suite

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def say(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that prints a line of progress at once, past pytest's capturing."""

    def say(line: str) -> None:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    return say


@pytest.fixture(scope="session")
def suite(say: Callable[[str], None]) -> Suite:
    """Return the suite; if it can't be installed, every test fails: none is skipped silently."""
    try:
        return Suite(node_peers.install(say, MANIFEST, "conformance"))
    except node_peers.NodePeersError as error:
        pytest.fail(str(error), pytrace=False)
