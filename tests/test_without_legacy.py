"""The modern era is whole without what exists for the legacy era over HTTP.

That lies in two folders, each behind a door. Here both are deleted from a copy of the package, and the tests of the
modern era run in the copy, in a process of its own. The official suite does so in
`tests/conformance/test_conformance.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from tests.modern_copy import LEGACY, copy_without_legacy, environment

NET = 300
"""Seconds. Against a hang only."""

PLUGIN = f"""
import importlib.util, pathlib, sys

LEGACY = {LEGACY!r}


def pytest_sessionstart(session):
    import trio_mcp

    here = pathlib.Path(__file__).parent
    assert pathlib.Path(trio_mcp.__file__).parent == here / "trio_mcp", trio_mcp.__file__
    assert not any(importlib.util.find_spec(name) for name in LEGACY)
    assert not list((here / "trio_mcp").rglob("*legacy*"))


def pytest_sessionfinish(session):
    assert not [name for name in sys.modules if name.startswith(LEGACY)]
"""
"""Makes sure that it is the copy that is tested, and that nothing of the two folders is there."""


@attrs.frozen
class Selection:
    """Tests that run in the copy.

    Attributes:
        what: Files and folders.
        least: As many of them must pass. None may fail or be skipped.
        choose: What ``-k`` gets.
    """

    what: tuple[str, ...]
    least: int
    choose: str = ""


SELECTIONS = {
    # All there is about HTTP, but for what says that it is of the legacy era: a new test is chosen by itself. The
    # streams and windows of HTTP/2 are left out: they know no era and take ten seconds.
    "server": Selection(("tests/server/http",), 45, "not test_http2"),
    # The same for the client.
    "client": Selection(("tests/transports/test_http_*.py",), 170),
    # The rules of HTTP without I/O, for both sides, and sessions, which know no transport.
    "rules": Selection(("tests/protocol/test_http_*.py", "tests/protocol/test_sse.py", "tests/session"), 650),
    # The specification row by row, as 2026-07-28 has it: over HTTP, and in memory; and over WebSocket, on which both
    # eras must be there still.
    # Left out is a row that sends `initialize` over HTTP, which is of no modern revision.
    "specification": Selection(
        ("tests/requirements/test_requirements.py",),
        330,
        "memory-2026-07-28 or http-2026-07-28 and not session_after_modern or WebSocket-2",
    ),
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the copy with its plugin."""
    copy = copy_without_legacy(tmp_path_factory.mktemp("copy"))
    (copy / "only_modern.py").write_text(PLUGIN)
    return copy


@pytest.mark.again
@pytest.mark.parametrize("name", SELECTIONS)
def test_the_tests_of_the_modern_era_pass(copy: Path, name: str) -> None:
    selection = SELECTIONS[name]
    what = [str(path) for each in selection.what for path in (sorted(copy.glob(each)) or [each])]
    report = copy / f"{name}.xml"
    command = ["-m", "pytest", "-q", "-p", "only_modern", "-n0", "-p", "no:cacheprovider", f"--junitxml={report}"]
    marks = ("-m", "not legacy and not interop and not conformance", "-k", selection.choose)
    done = run(copy, *command, *marks, *what)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    counts = {key: int(value) for key, value in suite_of(report).items() if value.isdigit()}
    assert (counts["failures"], counts["errors"], counts["skipped"]) == (0, 0, 0), done.stdout[-2000:]
    assert counts["tests"] >= selection.least


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env=environment(copy),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=NET,
    )


def suite_of(report: Path) -> dict[str, str]:
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    return suite.attrib


# --- what is not there is said to be so ---------------------------------------------------------------------------


def say(copy: Path, script: str) -> list[str]:
    """Return the lines that a script prints in the copy."""
    done = run(copy, "-W", "error", "-c", script)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


PUBLIC = """
import trio_mcp
import trio_mcp.low_level
for door in (trio_mcp, trio_mcp.low_level):
    for name in door.__all__:
        try:
            getattr(door, name)
        except ImportError as exc:
            print(exc)
try:
    from trio_mcp.low_level import sse_client
except ImportError as exc:
    print(exc)
"""


def test_every_other_public_name_is_there(copy: Path) -> None:
    missing = "{} is not available: this installation does not support the legacy era over HTTP"
    said = say(copy, PUBLIC)
    assert said == [missing.format("sse_client")] * 2


SERVED = """
from functools import partial
import httpx, trio
from trio_mcp import Client, Server

server = Server("small")

async def main():
    async with trio.open_nursery() as nursery:
        url = await nursery.start(partial(server.serve_http, port=0))
        initialize = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize}
        async with httpx.AsyncClient(headers={"Accept": "application/json, text/event-stream"}) as http:
            refused = await http.post(url, json=message)
            print(refused.status_code, refused.json()["error"]["code"])
            print((await http.get(url)).status_code)
        nursery.cancel_scope.cancel()
    try:
        await server.serve_sse(port=0)
    except RuntimeError as exc:
        print(exc)

trio.run(main)
"""


def test_a_server_refuses_the_handshake_like_one_that_serves_modern_revisions_alone(copy: Path) -> None:
    assert say(copy, SERVED) == [
        "400 -32020",
        "405",
        "sse_path needs trio_mcp.http.server.legacy, which is not installed",
    ]


CONNECTED = """
import sys, trio
from trio_mcp import Client, HttpServerParameters, TransportError
from tests.http_peer import peer

async def main():
    async with peer() as server:
        for mode, kind in (("auto", "http"), ("legacy", "http"), ("auto", "sse")):
            try:
                async with Client(HttpServerParameters(server.url, kind=kind), mode=mode):
                    print("it connected")
            except TransportError as exc:
                print(exc)

trio.run(main)
"""


def test_a_client_tells_a_legacy_server_what_it_does_not_speak(copy: Path) -> None:
    absent = "this installation does not support the legacy era over HTTP"
    unsent = f"'initialize' was not sent: {absent}, and the server may support nothing else"
    assert say(copy, CONNECTED) == [unsent, unsent, f"HTTP+SSE is not available: {absent}"]
