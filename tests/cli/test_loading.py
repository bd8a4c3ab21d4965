"""`trio-mcp run` finds the server in a file or module, or reports why it can't."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import FASTMCP, run

SERVER = "from trio_mcp import Server\n"

GOOD = {
    "the only server": (SERVER + "anything = Server('found')\n", "app.py"),
    "one of several": (SERVER + "a = Server('other')\nb = Server('found')\n", "app.py:b"),
    "one with two names": (SERVER + "a = Server('found')\nb = a\n", "app.py"),
    "a factory that is named": (SERVER + "def make():\n    return Server('found')\n", "app.py:make"),
    "the factory that says so": (SERVER + "def make() -> Server:\n    return Server('found')\n", "app.py"),
    "an attribute": (SERVER + "class app:\n    server = Server('found')\n", "app.py:app.server"),
    "by its module": (SERVER + "a = Server('found')\n", "app:a"),
    "by its module alone": (SERVER + "a = Server('found')\n", "app"),
    "a main program": (SERVER + "a = Server('found')\nif __name__ == '__main__':\n    raise SystemExit(5)\n", "app.py"),
    "what it prints": (SERVER + "import os\nos.system('echo noise')\nprint('noise')\na = Server('found')\n", "app.py"),
    "a neighbour": (SERVER + "import neighbour\na = Server(neighbour.NAME)\n", "app.py"),
    "postponed annotations": (
        "from __future__ import annotations\n" + SERVER + "def make() -> Server:\n    return Server('found')\n",
        "app.py",
    ),
}


@pytest.mark.parametrize(
    "line", ["inspect app.py -- found --x=y", "inspect app:a -- found --x=y", "call app.py found a=b -- found --x=y"]
)
def test_it_gets_the_arguments_after_two_dashes(tmp_path: Path, line: str) -> None:
    source = "import sys\na = Server(sys.argv[1])\n@a.tool\ndef found(a: str) -> str: return sys.argv[1]"
    (tmp_path / "app.py").write_text(f"{SERVER}{source}\nassert sys.argv[2:] == ['--x=y'], sys.argv\n")
    done = run(tmp_path, *line.split())
    assert done.stdout.startswith("found"), done.stderr


@pytest.mark.parametrize(("source", "target"), GOOD.values(), ids=GOOD)
def test_it_is_found(tmp_path: Path, source: str, target: str) -> None:
    (tmp_path / "app.py").write_text(source)
    (tmp_path / "neighbour.py").write_text("NAME = 'found'\n")
    done = run(tmp_path, "inspect", target)
    assert done.stdout.startswith("found"), done.stderr


BAD = {
    "several": (SERVER + "a = Server('a')\nb = Server('b')\n", "app.py", 2, "app.py:a, app.py:b"),
    "none": ("x = 1\n", "app.py", 2, "app.py has no Server at its top level"),
    "no such name": (SERVER + "a = Server('a')\n", "app.py:b", 2, "app.py has no 'b'; the servers in it: a"),
    "no server": ("b = 1\n", "app.py:b", 2, "but is of type int"),
    "a factory with parameters": (SERVER + "def b(x): ...\n", "app.py:b", 2, "callable without arguments"),
    "a factory of something else": ("def b(): return 5\n", "app.py:b", 2, "returned something of type int"),
    "an async factory": ("async def b(): ...\n", "app.py:b", 2, "returned something of type coroutine"),
    "an exit": ("raise SystemExit(7)\n", "app.py", 1, "exited (status 7)"),
    "another library": (FASTMCP, "app.py", 2, "app.py has a server of FastMCP, which runs by itself"),
    "a library that is missing": ("import fastmcp\n", "app.py", 1, "app.py needs FastMCP, which is not installed"),
    "no module": ("", "nothing_there:x", 2, "there is no module 'nothing_there'"),
    "a folder": ("", ".", 2, "neither a Python file (server.py) nor a module"),
}


@pytest.mark.parametrize(("source", "target", "status", "message"), BAD.values(), ids=BAD)
def test_mistakes_are_reported_without_a_traceback(
    tmp_path: Path, source: str, target: str, status: int, message: str
) -> None:
    (tmp_path / "app.py").write_text(source)
    done = run(tmp_path, "run", target)
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


BROKEN = {
    "while importing": ("def inner():\n    1 / 0\n\ninner()\n", "app.py", "ZeroDivisionError"),
    "in the factory": ("def b():\n    1 / 0\n", "app.py:b", "ZeroDivisionError"),
    "a syntax error": ("def b(:\n", "app.py", "SyntaxError"),
    "a missing import": ("import nothing_there\n", "app.py", "ModuleNotFoundError"),
}


@pytest.mark.parametrize(("source", "target", "error"), BROKEN.values(), ids=BROKEN)
def test_an_exception_of_theirs_has_a_traceback_of_theirs_alone(
    tmp_path: Path, source: str, target: str, error: str
) -> None:
    (tmp_path / "app.py").write_text(source)
    done = run(tmp_path, "run", target)
    assert (done.returncode, done.stdout) == (1, "")
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"trio-mcp run: {target}{'()' if ':' in target else ''} ")
    assert f": {error}: " in last
    files = [line for line in done.stderr.splitlines() if line.lstrip().startswith("File ")]
    assert files
    assert all("app.py" in line for line in files), done.stderr
