"""The benchmarks run, and check what they measure. Their figures are no business of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_every_contender_gives_right_answers(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run("memory", "stdio", "http", "listeners", "--seconds", "0.02", "--rounds", "1", "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert "== memory" in done.stdout
    assert "ours" in done.stdout
    assert "official" in done.stdout
    assert "== http" in done.stdout
    assert "== listeners" in done.stdout
    assert json.loads(report.read_text())


@pytest.mark.parametrize("arguments", [["memroy"], ["--seconds", "soon"], ["--rounds", "0"]])
def test_wrong_arguments_get_one_message_and_status_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
