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
    scenarios = ["memory", "stdio", "http", "http-client", "http-both", "idle", "listeners"]
    done = run(*scenarios, "--seconds", "0.02", "--rounds", "1", "--json", str(report))
    assert done.returncode == 0, done.stderr
    for scenario in scenarios:
        assert f"== {scenario}:" in done.stdout
    assert "ours" in done.stdout
    assert "official" in done.stdout
    assert json.loads(report.read_text())


def test_the_official_client_and_server_are_measured_in_both_eras() -> None:
    """`--quick` leaves the legacy era out, so the rows that need it have a run of their own."""
    done = run("http", "http-client", "--seconds", "0.2", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    for row in ("ours, legacy", "official on uvicorn, legacy, as it comes", "official on Trio, legacy", "events"):
        assert row in done.stdout


@pytest.mark.parametrize("arguments", [["memroy"], ["--seconds", "soon"], ["--rounds", "0"]])
def test_wrong_arguments_get_one_message_and_status_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()
