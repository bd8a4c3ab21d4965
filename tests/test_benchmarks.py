"""The benchmarks run, and check what they measure. Their figures are no business of the tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import transports
from benchmarks.against import interval_of_median

ROOT = Path(__file__).parent.parent


def run(*arguments: str, module: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.again
@pytest.mark.interop
def test_every_contender_gives_right_answers(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    scenarios = ["memory", "stdio", "http", "transports", "http-client", "http-both"]
    scenarios += ["stores", "payloads", "idle", "connections", "slow", "listeners", "protected", "load", "streams"]
    scenarios += ["cancellation"]
    done = run(*scenarios, "--seconds", "0.02", "--rounds", "1", "--before", str(ROOT), "--json", str(report))
    assert done.returncode == 0, done.stderr
    for scenario in scenarios:
        assert f"== {scenario}:" in done.stdout
    for contender in ("ours on hypercorn, modern, new heads", "official on uvicorn, modern, JSON", "before, modern"):
        assert contender in done.stdout
    figures = transports.tables(json.loads(report.read_text()))
    for row in ("Unix socket / stdio", "WebSocket / bare trio-websocket echo", "client of a list, WebSocket first /"):
        assert f"| {row}" in figures
    assert transports.put_into(f"before {transports.BEGIN} old {transports.END} after", "new") == (
        f"before {transports.BEGIN}\n\nnew\n\n{transports.END} after"
    )
    assert transports.BEGIN in transports.PAGE.read_text()


@pytest.mark.interop
def test_the_official_client_and_server_are_measured_in_both_eras() -> None:
    """`--quick` leaves the legacy era out, so the rows that need it have a run of their own."""
    done = run("http", "http-client", "--seconds", "0.2", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    ours, official = ("ours on hypercorn, legacy", "ours, legacy"), ("official on uvicorn, legacy, as it comes",)
    for row in (*ours, *official, "official on Trio, legacy", "events"):
        assert row in done.stdout


@pytest.mark.parametrize("arguments", [["memroy"], ["--seconds", "soon"], ["--rounds", "0"], ["--before", "nowhere"]])
def test_wrong_arguments_get_one_message_and_status_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_a_checkout_is_compared_with_itself(tmp_path: Path) -> None:
    report, table = tmp_path / "pairs.json", tmp_path / "pairs.md"
    chosen = ["--pairs", "1", "--calls", "64", "--rows", "in-memory-modern"]
    done = run(str(ROOT), *chosen, "--json", str(report), "--markdown", str(table), module="benchmarks.against")
    if not sys.platform.startswith("linux"):
        assert done.returncode == 1
        assert "on Linux only" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    rows = json.loads(report.read_text())["rows"]
    assert [row["row"] for row in rows] == ["in-memory-modern: sequential", "in-memory-modern: 64 in flight"]
    for row in rows:
        assert row["ratios"] == [row["after"][0] / row["before"][0]]
        assert row["verdict"] == "too few pairs"
        assert f"| {row['row']} |" in table.read_text()
        assert row["row"] in done.stdout


def test_the_interval_of_the_median_comes_from_the_order_of_the_values() -> None:
    assert interval_of_median(range(5)) is None
    assert interval_of_median([5, 3, 1, 2, 4, 0]) == (0, 5)
    assert interval_of_median(range(1, 21)) == (6, 15)


@pytest.mark.parametrize(
    "arguments",
    [[], ["nowhere"], [str(ROOT), "--pairs", "0"], [str(ROOT), "--calls", "1"], [str(ROOT), "--rows", "stdoi"]],
)
def test_wrong_arguments_of_a_comparison_get_one_line_and_status_2(arguments: list[str]) -> None:
    done = run(*arguments, module="benchmarks.against")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
