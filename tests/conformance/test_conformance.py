"""Our server and client, as the official suite sees them: every scenario, in every revision that it is for."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio

from benchmarks.peers.installs import InstallError
from tests import forks
from tests.conftest import per_runner, places
from tests.interop import node_peers
from tests.modern_copy import LEGACY, copy_without_legacy, environment
from trio_mcp.auth.testing import AuthorizationServer

from .suite import (
    BARE,
    MANIFEST,
    REQUIRED,
    REVISIONS,
    SCENARIO_MILLISECONDS,
    Check,
    Suite,
    everything_front,
    everything_url,
    expected_failures,
    judge,
)

pytestmark = pytest.mark.conformance

Say = Callable[[str], None]

MODERN = "2026-07-28"

TIMED = {"sse-retry"}
"""Scenarios that measure time. They run alone: the suite gives the client 0.2 seconds to be late."""


@pytest.fixture(scope="module")
def say(request: pytest.FixtureRequest) -> Say:
    """Return a function that prints a line of progress at once, past pytest's capturing."""

    def say(line: str) -> None:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    return say


@pytest.fixture(scope="module")
def suite(say: Say) -> Suite:
    """Return the suite; if it can't be installed, every test fails: none is skipped silently."""
    try:
        return Suite(node_peers.install(say, MANIFEST, "conformance"))
    except InstallError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="module", params=per_runner())
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where the everything-server is, on each runner."""
    with everything_url(runner=request.param) as url:
        yield url


def older_again(*revisions: str) -> list[Any]:
    """Return parameters of which the older ones are marked `again`."""
    newest = (REVISIONS[-1], BARE)
    return [pytest.param(each, marks=() if each in newest else pytest.mark.again) for each in revisions]


@pytest.mark.parametrize("revision", older_again(*REVISIONS, BARE))
def test_the_server_conforms_to(suite: Suite, url: str, revision: str, tmp_path: Path, say: Say) -> None:
    say(judge_server(suite, url, revision, tmp_path))


@pytest.fixture(scope="module", params=places())
def front_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Where three everything-servers are, behind nginx, which share a file or an engine."""
    with everything_front(request.param) as url:
        yield url


@pytest.mark.nginx
@pytest.mark.parametrize("revision", [*REVISIONS, BARE])
def test_three_servers_conform_as_one_to(suite: Suite, front_url: str, revision: str, tmp_path: Path, say: Say) -> None:
    """Each request goes to the next of three processes, those of sessions too, in the order in which they arrive."""
    say(judge_server(suite, front_url, revision, tmp_path))


def judge_server(suite: Suite, url: str, revision: str, tmp_path: Path) -> str:
    """Run the suite's scenarios for a revision; return the totals in words."""
    scenarios = suite.scenarios("server", revision)
    checks, output = suite.run("server", "--url", url, "--suite", "all", revision=revision, folder=tmp_path)
    assert set(checks) == set(scenarios), output
    return judge("server", revision, checks)


@pytest.mark.parametrize("revision", older_again(*REVISIONS, BARE))
def test_the_client_conforms_to(suite: Suite, revision: str, tmp_path: Path, say: Say) -> None:
    say(judge_client(suite, revision, tmp_path))


def judge_client(suite: Suite, revision: str, tmp_path: Path) -> str:
    """Run the suite's scenarios for a revision; return the totals in words."""
    command = forks.command(
        "tests.conformance.everything_client",
        "tests.conformance.everything_auth",
        options=("-W", "error"),
        root=suite.checkout,
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


@pytest.mark.parametrize("revision", older_again(*REVISIONS))
async def test_the_authorization_server_for_tests_conforms_to(
    suite: Suite, revision: str, tmp_path: Path, say: Say
) -> None:
    """The suite prints a URL and waits for a person, whom a client without cookies plays."""
    server = AuthorizationServer(documents=lambda url: b"")
    server.add_client("app", redirects=["http://127.0.0.1/callback"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    said = b""
    async with (
        server.served() as issuer,
        httpx.AsyncClient(follow_redirects=True) as browser,
        trio.open_nursery() as nursery,
    ):
        options = ("--url", issuer, "--client-id", "app", "--port", str(port), "-o", str(tmp_path))
        command = suite.command("authorization", *options, "--spec-version", revision)
        process = await nursery.start(partial(trio.run_process, command, stdout=subprocess.PIPE))
        async for piece in process.stdout:
            if b"Callback server started" in (said := said + piece):
                await browser.get(re.findall(rf"{issuer}/authorize\S+", said.decode())[0])
                said = b""
    say(judge("authorization", revision, suite.found("authorization", tmp_path)))


def test_nothing_of_the_bare_suite_is_left_out(suite: Suite) -> None:
    """Scenarios that the suite lists without a revision run with one, or by themselves."""
    run = {scenario for revision in REVISIONS for scenario in suite.scenarios("client", revision)}
    assert run | set(suite.only_bare("client")) == set(suite.scenarios("client", BARE))


@pytest.mark.parametrize("revision", REQUIRED)
def test_all_that_conformance_requires_is_run_and_may_not_fail(suite: Suite, revision: str) -> None:
    """The suite's ``--requirements``, by which SEP-3405 would compute the tier of an SDK."""
    required = suite.required(revision)
    for side in ("server", "client"):
        assert set(required[side]) <= set(suite.scenarios(side, revision)) - set(expected_failures(side, revision))
    assert {side: len(names) for side, names in required.items()} == REQUIRED[revision]


# --- the modern era without the legacy era's HTTP code: the same suite, with the same totals --------------------

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


@pytest.mark.again
def test_both_conform_without_the_legacy_era(
    suite: Suite, copy: Path, tmp_path: Path, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/test_without_legacy.py` has the same for our own tests."""
    monkeypatch.setenv("PYTHONPATH", environment(copy)["PYTHONPATH"])
    with everything_url(copy) as url:
        say(judge_server(suite, url, MODERN, tmp_path))
    say(judge_client(attrs.evolve(suite, checkout=copy), MODERN, tmp_path / "client"))
