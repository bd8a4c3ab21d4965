"""`trio-mcp check`, `record` and `replay`, as a user runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cli.running import ROOT, command, environment, run

TWICE = """
import json, pathlib, sys

pathlib.Path("started").touch()
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if message["method"] == "initialize":
        info = {"name": "twice", "version": "1"}
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}}
    elif message["method"] == "ping":
        answer = {"result": {}}
    for _ in range(2 if message["method"] == "ping" and "HEALTHY" not in sys.argv else 1):
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""

KIT = ("hypothesis", "trio_mcp.conformance.engine", "trio_mcp.conformance.clients", "trio_mcp.conformance.report")


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(folder, "check", *arguments, imported=KIT)


RULES = ("--rules", "answered-once,response-matches-request", "--examples", "30")


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    (tmp_path / "twice.py").write_text(TWICE)
    return tmp_path


@pytest.mark.again
def test_a_broken_server_is_told_what_it_breaks(twice: Path) -> None:
    reports = ["--report", "out/report.html", "--report", "out/report.json", "--write-baseline", "known.yml"]
    (twice / "out").mkdir()
    ended = check(twice, *RULES, *reports, "--", sys.executable, "twice.py")
    assert ended.returncode == 1, ended.stderr
    assert "✗ answered-once  MUST" in ended.stdout
    assert ended.stdout.endswith("\n1 MUST is broken.\n")
    assert "To see a failure again: trio-mcp replay out/answered-once.replay.json TARGET" in ended.stderr
    assert (twice / "out" / "report.html").read_text().startswith("<!doctype html>")
    assert json.loads((twice / "out" / "report.json").read_text())["counts"]["broken"] == 1

    # What was written shows it again, as long as it is there.
    replay = ("replay", "out/answered-once.replay.json", "--", sys.executable, "twice.py")
    ended = run(twice, *replay, imported=KIT)
    assert (ended.returncode, ended.stdout.splitlines()[0][:29]) == (1, "broken: answered-once (MUST):"), ended.stderr
    ended = run(twice, *replay, "HEALTHY", imported=KIT)
    assert (ended.returncode, ended.stdout) == (0, "the rule is not broken any more\n"), ended.stderr

    # What is known does not fail, and a rule that holds again is named.
    ended = check(twice, *RULES, "--baseline", "known.yml", "--", sys.executable, "twice.py")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 known from the baseline" in ended.stdout
    ended = check(twice, *RULES, "--baseline", "known.yml", "--json", "--", sys.executable, "twice.py", "HEALTHY")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert json.loads(ended.stdout)["counts"]["held"] >= 1
    assert "answered-once is in the baseline, but held this time" in ended.stderr


def test_a_dry_run_says_what_would_be_called(shop: Path) -> None:
    ended = check(shop, "--dry-run", "--tool", "price", "--examples", "7", "shop.py")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("7 examples, 60 seconds at most, seed 0\nshop 1.0.0, over stdio in revision ")
    assert "\n  calls the tools price\n" in ended.stdout
    assert "\n  not called, since not annotated as read-only: pack, escape, sleep (" in ended.stdout
    assert "\n  answered-once\n" in ended.stdout


def test_a_process_is_recorded_and_replayed(shop: Path) -> None:
    behind = [sys.executable, "-m", "trio_mcp", "record", "said.jsonl", "shop.py"]
    # A server process gets a short list of variables only.
    ended = run(shop, "call", "price", "item=pear", "--env", f"PYTHONPATH={ROOT}", "--", *behind)
    assert (ended.returncode, ended.stdout) == (0, "45\n"), ended.stderr
    assert (shop / "said.jsonl").stat().st_mode & 0o777 == 0o600

    ended = run(shop, "replay", "said.jsonl", "shop.py", imported=KIT)
    assert (ended.returncode, ended.stdout) == (0, "the same as before, by the rules\n"), ended.stderr
    (shop / "shop.py").write_text((shop / "shop.py").read_text().replace('"pear": 45', '"plum": 45'))
    ended = run(shop, "replay", "said.jsonl", "shop.py", "--json", imported=KIT)
    assert ended.returncode == 1, ended.stderr
    (line,) = json.loads(ended.stdout)["differences"]
    assert line.endswith(": a result before, a result with isError set to true now")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("replay none.jsonl twice.py", "can't read none.jsonl: No such file or directory"),
        ("replay twice.py twice.py", "twice.py: this is neither a transcript nor a plan of trio-mcp"),
        ("record no/such/folder.jsonl twice.py", "can't write no/such/folder.jsonl: No such file or directory"),
        ("record said.jsonl --port 99999 http://127.0.0.1:9/", "--port must be from 0 to 65535; got 99999"),
    ],
)
def test_what_can_not_be_recorded_or_replayed_is_one_line(twice: Path, line: str, problem: str) -> None:
    ended = run(twice, *line.split(), imported=KIT)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert problem in ended.stderr
    assert "Traceback" not in ended.stderr


REFUSED = {
    "http://127.0.0.1:9/mcp": "can't connect to http://127.0.0.1:9/mcp: Connection refused",
    "--rules anwered-once twice.py": "did you mean 'answered-once'?",
    "none.py": "there is no file 'none.py'",
    "--report x.pdf twice.py": "must end with one of .html",
    "--report none/x.html twice.py": "none is not a folder that can be written to",
    "--baseline none.yml twice.py": "can't read none.yml: No such file or directory",
    "--baseline bad.yml twice.py": "bad.yml, line 2: a line must have the form RULE: REASON; got 'answered-once'",
    "--baseline unknown.yml twice.py": "line 1: there is no rule 'anwered-once'; did you mean 'answered-once'?",
    "--client twice.py": "a client is given as the command that starts it",
    "--client --tool price -- x": "--tool is for checks of servers",
    "--time 1d twice.py": "must be a time, such as 90s or 5m; got '1d'",
    "--examples 0 twice.py": "must be a whole number of at least 1; got '0'",
    "-- false": "the target ended the connection in response to initialize",
    "-- echo hello": "it sent something other than JSON",
    "-- no-such-command": "can't start 'no-such-command'",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_can_not_run_is_one_line_and_status_2(twice: Path, line: str) -> None:
    (twice / "bad.yml").write_text("# known\nanswered-once\n")
    (twice / "unknown.yml").write_text("anwered-once: it is known\n")
    ended = check(twice, "--examples", "1", *line.split())
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert REFUSED[line] in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


def test_a_missing_extra_is_named(twice: Path) -> None:
    (twice / "hypothesis.py").write_text("raise ImportError")
    variables = environment() | {"PYTHONPATH": f"{twice}:{ROOT}"}
    ended = subprocess.run(command("check", "twice.py"), cwd=twice, env=variables, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        'trio-mcp check: this command needs Hypothesis, which is not installed: pip install "trio-mcp[testing]"\n'
    )


STUBBORN = """
import os, pathlib, signal, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
exec(open("twice.py").read().replace(".touch()", ".write_text(str(os.getpid()))"))
time.sleep(300)
"""


@pytest.mark.again
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_shows_what_was_found_and_ends_the_server(twice: Path, number: int, status: int) -> None:
    (twice / "stubborn.py").write_text(STUBBORN)
    process = subprocess.Popen(
        command("check", "--examples", "1000000", "--time", "1h", "--", sys.executable, "stubborn.py"),
        cwd=twice,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # Once the server runs, the check has begun to listen for signals.
        while not ((twice / "started").exists() and (twice / "started").read_text()):
            assert process.poll() is None
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == status, err
    assert "The check was interrupted: this report shows what was found until then." in out
    # It does not end by itself when it is asked to. The check waited for the end of the last one that it has started.
    with pytest.raises(ProcessLookupError):
        os.kill(int((twice / "started").read_text()), 0)


def test_the_action_checks_and_says_what_it_found(twice: Path) -> None:
    """The last step of `action.yml`, with a runner's environment."""
    script = textwrap.dedent((ROOT / "action.yml").read_text().rpartition("run: |\n")[2])
    program = twice / "trio-mcp" / "bin" / "trio-mcp"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m trio_mcp "$@"\n')
    program.chmod(0o755)
    variables = {
        "RUNNER_TEMP": str(twice),
        "GITHUB_STEP_SUMMARY": str(twice / "summary"),
        "GITHUB_OUTPUT": str(twice / "output"),
        "TARGET": "",
        "COMMAND": f"{sys.executable} twice.py",
        "ARGS": "--rules\nanswered-once\n\n--examples\n30\n",
        "REPORT": "found",
    }
    # As GitHub runs a step with `shell: bash`.
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    ended = subprocess.run(bash, cwd=twice, env=environment() | variables, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert (twice / "output").read_text() == "status=1\n"
    assert "\n    1 MUST is broken.\n" in (twice / "summary").read_text()
    written = {path.name for path in (twice / "found").iterdir()}
    assert written == {
        "answered-once.replay.json",
        *(f"report.{form}" for form in ("html", "json", "sarif", "txt", "xml")),
    }
