"""`trio-mcp bench`, as a user runs it, against servers that are programs of their own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.cli.running import environment, run
from trio_mcp.cli.parser import parse

# A few lines instead of one of our servers, which would take a second to start: `many.py [KIND [NUMBER]]`.
MANY = """
import json, os, pathlib, sys, time

kind = sys.argv[1] if sys.argv[1:] else "good"
number = int(sys.argv[2]) if sys.argv[2:] else 0
calls = 0

def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def tool(name, **annotations):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    return {"name": name, "inputSchema": schema, "annotations": annotations}

TOOLS = {
    "none": [],
    "writes": [tool("write"), tool("destroy", readOnlyHint=True, destructiveHint=True)],
    "other": [tool("other", readOnlyHint=True)],
}
for line in sys.stdin:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if method == "initialize":
        info = {"name": "many", "version": "1\\u001b[31m"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
        say(id=id, result=result)
    elif method == "tools/list":
        say(id=id, result={"tools": TOOLS.get(kind, [tool("read", readOnlyHint=True), tool("write")])})
    elif method == "tools/call":
        calls += 1
        if calls == 300:
            pathlib.Path("called").touch()
        if kind == "dies" and calls > number:
            print("dying", file=sys.stderr, flush=True)
            os._exit(7)
        if kind == "hangs" and calls > number:
            continue
        if kind == "asks":
            say(id=f"q{calls}", method="elicitation/create", params={"message": "?", "requestedSchema": {}})
            sys.stdin.readline()
        error = {"isError": True} if kind == "fails" and calls >= number else {}
        say(id=id, result={"content": [{"type": "text", "text": f"call {calls}"}], **error})
    elif method is not None and id is not None:
        say(id=id, error={"code": -32601, "message": "no such method"})
"""
KIT = ("hypothesis", "trio_mcp.bench.html", "trio_mcp.cli.bench")
# They end by the number of calls: 8 for the trial, 96 in each step. The time does not matter.
QUICK = ("--ladder", "1,2", "--seconds", "600", "--max-calls", "200")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    (tmp_path / "many.py").write_text(MANY)
    return tmp_path


def bench(folder: Path, *arguments: str, server: tuple[str, ...] = ("good",)) -> subprocess.CompletedProcess[str]:
    return run(folder, "bench", *arguments, "--", sys.executable, "many.py", *server, imported=KIT)


def steps_of(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["servers"][0]["steps"]
    return found


def test_it_says_what_it_will_do_and_what_it_has_measured(many: Path) -> None:
    ended = bench(many, *QUICK, "--json", "out.json", "--html", "out.html", "--seed", "7", server=("good",))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = " ".join(ended.stderr.split())
    assert said.startswith("Calls read, annotated read-only, with 8 sets of arguments at ")
    assert "many.py good (many 1\\x1b[31m) over stdio, revision 2025-11-25. First tries each once; then keeps" in said
    assert (
        "keeps 1, 2 calls in flight for 600 s, after a warm-up: about 1500 s in all. Makes at most 200 calls," in said
    )
    assert "and takes at most 300 s; a call may take 10 s." in said
    assert "not called, since not annotated as read-only (name those to call with --tool): write" in said
    lines = ended.stdout.splitlines()
    assert lines[1].split()[:5] == ["in", "flight", "calls/s", "p50", "ms"]
    assert [line.split()[0] for line in lines[2:4]] == ["1", "2"]
    assert lines[-1] == "All steps were measured. Cut short by --max-calls: 1, 2 in flight."
    assert "\x1b" not in ended.stdout + ended.stderr

    found = json.loads((many / "out.json").read_text())
    assert (found["version"], found["ended"], found["failed"], found["terms"]["seed"]) == (1, "complete", 0, 7)
    assert [step["in_flight"] for step in steps_of((many / "out.json").read_text())] == [1, 2]
    for step in steps_of((many / "out.json").read_text()):
        assert 0 < step["p50"] <= step["p99"] <= step["worst"]
        assert step["calls"] > 0
        assert 0 < step["client_busy"] <= 1
    assert (many / "out.html").read_text().startswith("<!doctype html>")


WRONG = {
    # What the server is like, and further arguments: the status, what standard error ends with, what is printed.
    ("none",): (1, "many.py none lists no tools, so there is nothing to measure\n", ""),
    ("writes",): (1, "destroy; name one with --tool NAME name=value\n", ""),
    ("good", "--tool", "raed"): (1, "trio-mcp bench: the server lists no tool 'raed'; did you mean 'read'?\n", ""),
    ("good", "--tool", "read", "n=x"): (2, "n: must be of type integer; got 'x'. See `trio-mcp bench --help`.\n", ""),
    ("fails",): (1, "", "each of its calls failed, the first with: call 1\nNo tool is left that can be measured.\n"),
    ("asks", "--tool", "read", "n=1"): (1, "", "it asks for input, which a benchmark can't give\nNo tool is left that"),
    ("asks", "--tool", "write", '{"n": 1}', "--json", "-"): (1, "bench: No tool is left that can be measured.\n", ""),
    ("fails 12",): (1, "", "\n1 in flight: "),
    ("dies 50",): (3, "", "exited with status 7\n"),
    ("dies 0",): (3, "exited with status 7\n", ""),
    ("hangs 8", "--timeout", "2"): (
        4,
        "",
        "The server stopped responding in the last step, so no further step was made. ",
    ),
    ("good", "--max-calls", "3"): (
        0,
        "",
        "The maximum number of calls was made (--max-calls); the last steps are missing.",
    ),
}


@pytest.mark.parametrize("line", WRONG, ids=" ".join)
def test_what_goes_wrong_is_a_clear_line_and_a_status(many: Path, line: tuple[str, ...]) -> None:
    status, said, printed = WRONG[line]
    kind, *words = line
    ended = bench(many, *QUICK, *words, server=tuple(kind.split()))
    assert ended.returncode == status, ended.stdout + ended.stderr
    assert ended.stderr.endswith(said)
    shown = ended.stdout.replace("\n  ", " ")
    assert printed in shown
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("kind", ["dies", "hangs"])
def test_what_was_measured_until_the_server_failed_is_there(many: Path, kind: str) -> None:
    ended = bench(many, *QUICK, "--timeout", "1", "--json", "-", server=(kind, "110"))
    first, second = steps_of(ended.stdout)
    # All but the fifth that warms up.
    assert (first["errors"], first["calls"]) == ({}, 96 - 19)
    assert second["errors"].keys() == {"lost connection" if kind == "dies" else "timeout"}


def test_a_tool_that_writes_is_called_if_it_is_named_as_the_announcement_says(many: Path) -> None:
    ended = bench(many, *QUICK, "--tool", "write", "n:=5")
    assert ended.returncode == 0, ended.stderr
    said = " ".join(ended.stderr.split())
    assert said.startswith("Calls write with one set of arguments at ")
    assert "Not annotated as read-only: write; any change that a call makes may be made up to 200 times." in said


def test_two_servers_are_compared(many: Path) -> None:
    mine = {"command": sys.executable, "args": ["many.py"]}
    other = {"command": sys.executable, "args": ["many.py", "other"]}
    (many / "mcp.json").write_text(json.dumps({"mcpServers": {"same": mine, "other": other}}))
    ended = bench(many, "--compare", "mcp.json#same", *QUICK, "--json", "-")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    found = json.loads(ended.stdout)
    assert [server["name"] for server in found["servers"]] == [
        "A: " + Path(sys.executable).name + " many.py good",
        "B: mcp.json#same",
    ]
    assert [(ratio["of"], ratio["pairs"]) for ratio in found["ratios"]] == 2 * [("rate", 6), ("p50", 6)]

    ended = bench(many, "--compare", "mcp.json#other")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "not called, since only one of the servers has them: other, read, write" in ended.stderr
    ended = bench(many, "--compare", "mcp.json#other", "--tool", "read", "n=1")
    assert ended.stderr.endswith("the server lists no tool 'read'; its tools are: other\n")


def test_ctrl_c_ends_it_with_what_was_measured(many: Path) -> None:
    # Of 1,000 calls a fifth warms up; the 301st gets no response.
    words = ("--ladder", "1", "--seconds", "600", "--timeout", "600", "--max-calls", "1000")
    server = ("--", sys.executable, "many.py", "hangs", "300")
    process = subprocess.Popen(
        [*forks.command("trio_mcp", *forks.LOADED, *KIT, options=("-W", "error")), "bench", *words, *server],
        cwd=many,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (many / "called").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=60)
    assert process.returncode == 130, out + said
    assert said.endswith("Stopping. Press Ctrl-C again to stop at once.\n")
    assert out.splitlines()[2].split()[0] == "1"
    assert out.endswith("\nThe benchmark was interrupted; this is what was measured until then.\n")


def test_the_target_may_stand_behind_the_arguments_of_a_tool() -> None:
    options = parse(["bench", "--tool", "read", "n=1", "m:=2", "many.py"])
    assert (options.target, options.tool) == ("many.py", [["read", "n=1", "m:=2"]])
    options = parse(["bench", "--tool", "read", "n=1", "--tool", "write", "--", "many.py", "x"])
    assert (options.process, options.tool) == (["many.py", "x"], [["read", "n=1"], ["write"]])
