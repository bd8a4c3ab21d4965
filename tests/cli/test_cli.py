"""The command line, run as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "trio_mcp", *arguments], capture_output=True, text=True, timeout=60)


def test_the_demo_shows_every_transport_and_succeeds() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    closed = "cancelled: the client closed the response stream"  # a modern cancellation over HTTP has no reason
    modern, seen = "demo, revision 2026-07-28", "cancelled: the demo has seen enough"
    expected = {
        "memory": (modern, seen),
        "stdio": (modern, seen),
        "http": (modern, closed),
        "sse": ("demo, revision 2025-11-25", seen),
    }
    for transport, (greeting, cancellation) in expected.items():
        rows = {line.split("  ")[1].strip(): line for line in lines if line.startswith(transport)}
        assert greeting in next(line for line in lines if line.startswith(transport))
        assert any("add(2, 3) = 5" in row for row in lines if row.startswith(transport))
        assert any("5 notifications, then the result 5" in row for row in lines if row.startswith(transport))
        assert any(cancellation in row for row in lines if row.startswith(transport))
        assert rows
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--fast"]])
def test_a_wrong_command_line_gets_one_message_and_status_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert re.search(r"^trio-mcp( demo)?: error:", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_version() -> None:
    from trio_mcp import __version__

    assert run("--version").stdout.strip() == f"trio-mcp {__version__}"
