"""One call gives a test for each rule, which passes, fails, or says why it did not run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from trio_mcp.conformance.plugin import conformance_tests

MODULE = """
import sys
import pytest
from trio_mcp import Server, StdioServerParameters
from trio_mcp.conformance import conformance_tests

server = Server("shop", version="1.0.0")
LIMITS = {"examples": 30, "rules": ["answered-once", "progress-*", "response-matches-request"]}
TWICE = StdioServerParameters(sys.executable, ["twice.py"])


@pytest.fixture(scope="module")
def target():
    return TWICE


test_ours = conformance_tests(server, **LIMITS)
test_twice = conformance_tests(fixture="target", **LIMITS)
test_known = conformance_tests(TWICE, baseline="known.yml", **LIMITS)
test_dying = conformance_tests(StdioServerParameters(sys.executable, [DYING, "", "stdio", "exits", "9"]), **LIMITS)
test_ending = conformance_tests(StdioServerParameters(sys.executable, ["ends.py"]), **LIMITS)
test_away = conformance_tests("http://127.0.0.1:9/mcp", **LIMITS)
"""

# It ends right after it has answered its third ping, and never because of what it was sent: malformed text would excuse
# the end, so a server that it kills ends without an excuse only by chance.
ENDS = """
import json, sys

sys.stdin.reconfigure(errors="replace")
pings = 0
for line in sys.stdin:
    try:
        message = dict(json.loads(line))
    except (RecursionError, TypeError, ValueError):
        continue
    if "id" not in message or "method" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if message["method"] == "initialize":
        info = {"name": "ends", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}}
    elif message["method"] == "ping":
        pings += 1
        answer = {"result": {}}
    for _ in range(2 if message["method"] == "ping" else 1):
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
    if pings == 3:
        break
"""


@pytest.mark.again
def test_a_test_for_each_rule(tmp_path: Path) -> None:
    from tests.cli.test_check import TWICE

    dying = ROOT / "tests" / "kit" / "dying_server.py"
    (tmp_path / "test_shop.py").write_text(f"DYING = {str(dying)!r}\n{MODULE}")
    (tmp_path / "twice.py").write_text(TWICE)
    (tmp_path / "ends.py").write_text(ENDS)
    (tmp_path / "known.yml").write_text("answered-once: fixed in the next version\n")
    ended = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-rA",
            "-k",
            "answered or matches or progress-token-known",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "PASSED test_shop.py::test_ours[answered-once]" in lines
    assert "PASSED test_shop.py::test_twice[response-matches-request]" in lines
    assert "FAILED test_shop.py::test_twice[answered-once]" in ended.stdout
    assert "  Answer each request only once." in lines
    assert "XFAIL test_shop.py::test_known[answered-once] - known from the baseline: " in ended.stdout
    assert (
        "the target could not be checked: can't connect to http://127.0.0.1:9/mcp: Connection refused" in ended.stdout
    )
    # A server that ends by itself, with no request open, breaks no rule; but none can be said to hold.
    assert "FAILED test_shop.py::test_dying[answered-once] - " in ended.stdout
    assert "PASSED test_shop.py::test_dying" not in ended.stdout
    assert "but the result is undecided: the target ended the connection" in ended.stdout
    # The rules that are left can't be said to hold either, if it broke one before it ended.
    assert "FAILED test_shop.py::test_ending[answered-once]" in ended.stdout
    assert "PASSED test_shop.py::test_ending" not in ended.stdout
    assert "Traceback" not in ended.stdout


@pytest.mark.parametrize("arguments", [{}, {"target": "http://x/", "fixture": "url"}])
def test_there_must_be_one_target(arguments: dict[str, str]) -> None:
    with pytest.raises(TypeError, match="takes exactly one of target and fixture"):
        conformance_tests(**arguments)  # type: ignore[arg-type]


def test_an_unknown_rule_is_named_when_the_tests_are_collected() -> None:
    with pytest.raises(ValueError, match="did you mean 'answered-once'"):
        conformance_tests("http://x/", rules=["anwered-once"])
