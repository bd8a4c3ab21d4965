"""What every interop test needs: the npm peers, marked processes, and the commands that start the servers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TypeVar

import pytest

from benchmarks.peers.installs import InstallError

from . import node_peers, python_peers
from .support import Launch, marked_environment, python_peer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")


def installed_peers(request: pytest.FixtureRequest, install: Callable[[Callable[[str], None]], T]) -> T:
    """Install peers; if that fails, every test that needs one fails: none is skipped silently."""

    def say(line: str) -> None:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    try:
        return install(say)
    except InstallError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def npm(request: pytest.FixtureRequest) -> node_peers.NodePeers:
    """Return the npm peers."""
    return installed_peers(request, node_peers.install)


@pytest.fixture(scope="session")
def python_v1(request: pytest.FixtureRequest) -> Path:
    """Return the interpreter that has the official Python SDK below 2."""
    return installed_peers(request, python_peers.install)


@pytest.fixture(scope="session", autouse=True)
def _origin_of_forks() -> None:
    """Start the fork server before a test looks for processes that it has left behind."""
    python_peer("our_server", {})


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """Yield the environment for the processes of one test, none of which may outlive it."""
    with marked_environment() as marked:
        yield marked


@pytest.fixture
def official_server(environment: dict[str, str]) -> Launch:
    """Return the stdio server on the official Python SDK; it serves both eras."""
    return python_peer("official_server", environment)


@pytest.fixture
def our_server(environment: dict[str, str]) -> Launch:
    """Return a stdio server written with the public API of trio_mcp; it serves both eras."""
    return python_peer("our_server", environment)


@pytest.fixture
def everything_server(npm: node_peers.NodePeers, environment: dict[str, str]) -> Launch:
    """Return the npm reference server with one of everything; it knows the legacy era only."""
    return Launch(str(npm.node), [str(npm.server("everything"))], environment)


@pytest.fixture
def filesystem_server(npm: node_peers.NodePeers, environment: dict[str, str], tmp_path: Path) -> Launch:
    """Return the npm filesystem server, allowed to touch this test's own folder; it knows the legacy era only."""
    return Launch(str(npm.node), [str(npm.server("filesystem")), str(tmp_path)], environment)


@pytest.fixture
def memory_server(npm: node_peers.NodePeers, environment: dict[str, str], tmp_path: Path) -> Launch:
    """Return the npm knowledge-graph server, with its file in this test's own folder; it knows the legacy era only."""
    file = tmp_path / "memory.jsonl"
    return Launch(str(npm.node), [str(npm.server("memory"))], environment | {"MEMORY_FILE_PATH": str(file)})
