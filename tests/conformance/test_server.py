"""Our server, as the official conformance suite sees it: every scenario of every revision that it has any for."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.interop.processes import marked_environment

from .suite import DEADLINE, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .suite import Suite

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the everything-server is; it must say nothing while it runs, and end when told to."""
    with marked_environment() as environment:
        server = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.conformance.everything_server"],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stderr is not None
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()
            _, complained = server.communicate(timeout=DEADLINE)
    assert (server.returncode, complained) == (0, "")


@pytest.mark.parametrize("revision", ["2026-07-28"])
def test_the_server_conforms_to(
    suite: Suite, url: str, revision: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    scenarios = suite.scenarios("server", revision)
    checks, output = suite.run("server", "--url", url, "--suite", "all", revision=revision, folder=tmp_path)
    assert set(checks) == set(scenarios), output
    judge("server", checks)
    passed = sum(check.status == "SUCCESS" for each in checks.values() for check in each)
    say(f"conformance: server, {revision}: {passed} checks passed in {len(scenarios)} scenarios")
