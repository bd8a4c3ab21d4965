"""Our client, as the official conformance suite sees it: every scenario, in every revision that it is for."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests import forks

from .suite import BARE, REVISIONS, SCENARIO_MILLISECONDS, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .suite import Check, Suite

pytestmark = pytest.mark.conformance

TIMED = {"sse-retry"}
"""Scenarios that measure time. They run alone: the suite gives the client 0.2 seconds to be late."""


@pytest.mark.parametrize("revision", [*REVISIONS, BARE])
def test_the_client_conforms_to(suite: Suite, revision: str, tmp_path: Path, say: Callable[[str], None]) -> None:
    say(judge_client(suite, revision, tmp_path))


def judge_client(suite: Suite, revision: str, tmp_path: Path) -> str:
    """Run the suite's scenarios for a revision; return the totals in words."""

    command = forks.command(
        "tests.conformance.everything_client", "trio_mcp.client", options=("-W", "error"), root=suite.checkout
    )

    def run(scenario: str) -> list[Check]:
        folder = tmp_path / scenario
        folder.mkdir(parents=True)
        options = ("--command", shlex.join(command), "--scenario", scenario, "--timeout", SCENARIO_MILLISECONDS)
        checks, output = suite.run("client", *options, revision=revision, folder=folder)
        assert set(checks) == {scenario}, output
        return checks[scenario]

    # One by one instead of by `--suite all`, which starts a process for every scenario at the same moment.
    scenarios = suite.only_bare("client") if revision == BARE else suite.scenarios("client", revision)
    together = [scenario for scenario in scenarios if scenario not in TIMED]
    with ThreadPoolExecutor(2) as pool:
        checks = dict(zip(together, pool.map(run, together), strict=True))
    checks |= {scenario: run(scenario) for scenario in scenarios if scenario in TIMED}
    return judge("client", revision, checks)


def test_nothing_of_the_bare_suite_is_left_out(suite: Suite) -> None:
    """Scenarios that the suite lists without a revision run with one, or by themselves."""
    run = {scenario for revision in REVISIONS for scenario in suite.scenarios("client", revision)}
    assert run | set(suite.only_bare("client")) == set(suite.scenarios("client", BARE))
