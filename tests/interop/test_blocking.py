"""Where no loop of Trio runs: the client without async in a notebook and in a view of Django; a guest of a notebook."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.blocking.serving import served
from tests.conformance.suite import CHECKOUT

from . import python_peers
from .conftest import installed_peers
from .support import DEADLINE, PEERS

pytestmark = [pytest.mark.interop, pytest.mark.again]


@pytest.fixture(scope="module")
def python(request: pytest.FixtureRequest) -> Path:
    """Return an interpreter that has a notebook's kernel, Django, and what trio_mcp needs."""
    return installed_peers(request, lambda say: python_peers.install(say, "blocking"))


def run(python: Path, program: str, tmp_path: Path) -> Any:
    """Run a program with the URLs of a server over HTTP and WebSocket, and return the JSON that it prints."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "HOME": str(tmp_path), "IPYTHONDIR": str(tmp_path)}
    with served("http") as http, served("websocket") as websocket:
        done = subprocess.run(
            [str(python), str(PEERS / program), http, websocket],
            env=environment,
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_notebook_uses_it_over_several_cells(python: Path, tmp_path: Path) -> None:
    """The kernel has a running loop, which each cell blocks."""
    sums, tools, progress, threads = run(python, "blocking_notebook.py", tmp_path)
    assert (sums, threads) == ("[3, 3, 3]\n", "[]\n")
    assert len(set(json.loads(tools))) == 1
    assert progress.endswith("True\n")
    assert progress.count("progress=") == 2


def test_trio_is_a_guest_of_the_loop_of_a_notebook(python: Path, tmp_path: Path) -> None:
    """It lives over several cells; interrupting the kernel ends the cell, and the call that it waits for."""
    used, cancelled, after, refused, ended = run(python, "guest_notebook.py", tmp_path)
    assert (used, after, ended) == ("[30, 45]\n", "45\n", "ended\n")
    assert "on the server" in cancelled
    assert "in the cell" in cancelled
    for said, part in zip(
        refused.splitlines(), ("run() starts Trio", "from inside a run()", "needs Trio"), strict=True
    ):
        assert part in said


def test_a_view_of_django_uses_it_from_many_threads(python: Path, tmp_path: Path) -> None:
    assert run(python, "blocking_django.py", tmp_path) == [[200, True, 200]]
