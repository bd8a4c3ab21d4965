"""Our server, as the official conformance suite sees it: every scenario, in every revision that it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .serving import everything_url
from .suite import BARE, REVISIONS, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .suite import Suite

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the everything-server is."""
    with everything_url() as url:
        yield url


@pytest.mark.parametrize("revision", [*REVISIONS, BARE])
def test_the_server_conforms_to(
    suite: Suite, url: str, revision: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    say(judge_server(suite, url, revision, tmp_path))


def judge_server(suite: Suite, url: str, revision: str, tmp_path: Path) -> str:
    """Run the suite's scenarios for a revision; return the totals in words."""
    scenarios = suite.scenarios("server", revision)
    checks, output = suite.run("server", "--url", url, "--suite", "all", revision=revision, folder=tmp_path)
    assert set(checks) == set(scenarios), output
    return judge("server", revision, checks)
