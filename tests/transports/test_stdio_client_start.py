"""Starting a server as a child process: its environment, its directory, and what is said when it can't be started."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.transports.support import (
    DEADLINE,
    no_survivors,
    open_descriptors,
    python,
    shell,
)
from trio_mcp import StdioServerParameters, TransportError, stdio_client
from trio_mcp.jsonrpc.messages import Notification

TELL = """
    import json, os, sys
    about = {"env": dict(os.environ), "cwd": os.getcwd(), "args": sys.argv[1:], "leader": os.getpgid(0) == os.getpid()}
    print(json.dumps({"jsonrpc": "2.0", "method": "about", "params": about}), flush=True)
    sys.stdin.read()
"""


async def told(params: StdioServerParameters) -> dict[str, Any]:
    """Return what a child that runs `TELL` reports of itself."""
    with trio.fail_after(DEADLINE):
        async with stdio_client(params) as (read, _):
            message = (await read.receive()).message
            assert isinstance(message, Notification)
            assert message.params is not None
            return message.params


# --- what the child gets ---------------------------------------------------------------------------------------------


async def test_only_the_safe_variables_and_the_given_ones_reach_the_child(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A secret in our environment stays here; PATH and what is given arrive. A function of bash could run code there.

    It runs in ``cwd``, gets its arguments as they are, for there is no shell in between, and leads a process group of
    its own: Ctrl-C in our terminal reaches us, not the child, and the whole group can be ended.
    """
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("TERM", "() { :; }")
    monkeypatch.setenv("TZ", "UTC")
    arguments = ["a b", "'\"", "*", "$HOME", "line\nbreak", ""]
    given = {"GIVEN": "yes", "EMPTY": "", "HOME": "/nowhere"}
    about = await told(python(TELL, *arguments, env=given, cwd=tmp_path))
    assert given.items() <= about["env"].items()
    assert (about["env"]["PATH"], about["env"]["TZ"]) == (os.environ["PATH"], "UTC")
    known = {"HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "GIVEN", "EMPTY"}
    assert set(about["env"]) <= known | {"LC_CTYPE"}  # Python sets the last itself (PEP 538)
    assert (about["cwd"], about["args"], about["leader"]) == (str(tmp_path), arguments, True)


async def test_the_command_is_looked_up_in_the_given_path(tmp_path: Path) -> None:
    """``env={"PATH": ...}`` decides where the command is found."""
    program = tmp_path / "the-server"
    program.write_text('#!/bin/sh\necho \'{"jsonrpc":"2.0","method":"about","params":{"found":1}}\'\nread -r line\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert await told(StdioServerParameters("the-server", env={"PATH": path})) == {"found": 1}


async def test_the_child_inherits_no_descriptors(tmp_path: Path) -> None:
    """Pipes of other servers and open files stay here."""
    with (tmp_path / "file").open("w"):
        listing = "ls -l /proc/self/fd"
        code = f"""
            import json, subprocess
            output = subprocess.run({listing.split()!r}, capture_output=True, text=True, close_fds=False).stdout
            print(json.dumps({{"jsonrpc": "2.0", "method": "about", "params": {{"output": output}}}}), flush=True)
        """
        async with stdio_client(shell("read -r line")):
            output = (await told(python(code)))["output"]
    numbers = {line.split(" -> ")[0].split()[-1] for line in output.splitlines() if " -> " in line}
    assert numbers <= {"0", "1", "2", "3"}  # 3 is the listing's own


# --- what is said when it can't be started ---------------------------------------------------------------------------


def executable(path: Path, content: str, mode: int = 0o755) -> str:
    path.write_text(content)
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda tmp: StdioServerParameters("no-such-command-here"), "no such command in PATH"),
        (lambda tmp: StdioServerParameters(str(tmp / "missing")), "no such file"),
        (lambda tmp: StdioServerParameters(str(tmp)), "is a directory"),
        (lambda tmp: StdioServerParameters(executable(tmp / "plain", "#!/bin/sh\n", 0o644)), "not executable"),
        (lambda tmp: StdioServerParameters(executable(tmp / "script", "#!/no/such/interpreter\n")), "interpreter"),
        (lambda tmp: StdioServerParameters(executable(tmp / "data", "\x01\x02\x03")), "Exec format error"),
        (lambda tmp: StdioServerParameters("sh", cwd=tmp / "missing"), "cwd=.* does not exist"),
        (lambda tmp: StdioServerParameters("sh", cwd=executable(tmp / "file", "")), "cwd=.* is not a directory"),
        (lambda tmp: StdioServerParameters("sh", ["x" * 3_000_000]), "Argument list too long"),
    ],
    ids=["unknown", "missing", "directory", "plain", "interpreter", "format", "no-cwd", "file-cwd", "too-long"],
)
async def test_a_command_that_cannot_be_started_is_one_clear_error(make: Any, said: str, tmp_path: Path) -> None:
    """It names the command and the cause, and leaves no process and no descriptor behind."""
    params, before = make(tmp_path), open_descriptors()
    async with no_survivors():
        with pytest.raises(TransportError, match=said) as caught, trio.fail_after(DEADLINE):
            async with stdio_client(params):
                pytest.fail("it was started")
    assert open_descriptors() == before
    assert repr(params.command) in str(caught.value)
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize(
    ("arguments", "options", "error", "said"),
    [
        ((5,), {}, TypeError, "command .*must be a non-empty string"),
        (("",), {}, ValueError, "command .*must be a non-empty string"),
        ((["python", "-m", "x"],), {}, TypeError, "its arguments go into args"),
        (("a\0b",), {}, ValueError, "command .*null character"),
        (("sh", "one two"), {}, TypeError, "args must be a sequence of strings"),
        (("sh", b"x"), {}, TypeError, "args must be a sequence of strings"),
        (("sh", 5), {}, TypeError, "args must be a sequence of strings"),
        (("sh", ["-c", 5]), {}, TypeError, "args must be a sequence of strings"),
        (("sh", [Path("x")]), {}, TypeError, "args must be a sequence of strings"),
        (("sh", ["a\0b"]), {}, ValueError, "args .*null character"),
        (("sh",), {"env": {"A": 1}}, TypeError, "env must map strings to strings"),
        (("sh",), {"env": {1: "A"}}, TypeError, "env must map strings to strings"),
        (("sh",), {"env": ["A=1"]}, TypeError, "env must map strings to strings"),
        (("sh",), {"env": {"A": "a\0b"}}, ValueError, "env .*null character"),
        (("sh",), {"env": {"A=B": "c"}}, ValueError, "env .*'A=B'"),
        (("sh",), {"env": {"": "c"}}, ValueError, "env .*''"),
        (("sh",), {"cwd": 5}, TypeError, "cwd must be a path"),
        (("sh",), {"cwd": "a\0b"}, ValueError, "cwd .*null character"),
        (("sh",), {"stderr": "inherti"}, ValueError, "stderr must be"),
        (("sh",), {"stderr": 2}, TypeError, "stderr must be"),
        (("sh",), {"stderr": None}, TypeError, "stderr must be"),
        (("sh",), {"shutdown_grace": "2"}, TypeError, "shutdown_grace must be a number"),
        (("sh",), {"shutdown_grace": True}, TypeError, "shutdown_grace must be a number"),
        (("sh",), {"shutdown_grace": -1}, ValueError, "shutdown_grace must be"),
        (("sh",), {"shutdown_grace": float("nan")}, ValueError, "shutdown_grace must be"),
        (("sh",), {"shutdown_grace": float("inf")}, ValueError, "shutdown_grace must be"),
    ],
)
def test_wrong_parameters_are_refused_where_they_are_written(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], said: str
) -> None:
    """The mistake shows at the line that makes it, not later, on the way into or out of a connection."""
    with pytest.raises(error, match=said):
        StdioServerParameters(*arguments, **options)


def test_parameters_do_not_change_after_they_were_checked() -> None:
    """Changing the list or the dict that was passed changes nothing; the value is usable as a key."""
    args, env = ["-c", "true"], {"A": "1"}
    assert tuple(StdioServerParameters("sh", iter(args)).args) == ("-c", "true")  # type: ignore[arg-type]
    params = StdioServerParameters("sh", args, env=env)
    args.append("\0")
    env["B"] = "\0"
    assert tuple(params.args) == ("-c", "true")
    assert dict(params.env) == {"A": "1"}
    assert "command='sh'" in repr(params)
    assert json.dumps([params.command, list(params.args), dict(params.env)])  # parts are plain


async def test_anything_but_parameters_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="expected StdioServerParameters, got list"):
        async with stdio_client([sys.executable]):  # type: ignore[arg-type]
            pass


async def test_an_invalid_size_limit_starts_nothing() -> None:
    async with no_survivors() as mark:
        with pytest.raises(ValueError, match="max_message_size"):
            async with stdio_client(shell("sleep 1000", env=mark), max_message_size=0):
                pass


async def test_a_long_message_is_skipped_and_reported(tmp_path: Path) -> None:
    """``max_message_size`` bounds what a server can make us hold; the next message arrives."""
    code = """
        import json
        for params in ({"x": "x" * 5000}, {"n": 1}):
            print(json.dumps({"jsonrpc": "2.0", "method": "m", "params": params}), flush=True)
    """
    with trio.fail_after(DEADLINE):
        async with stdio_client(python(code), max_message_size=1000) as (read, _):
            first, second = (await read.receive()).message, (await read.receive()).message
    assert first.limit == 1000  # type: ignore[union-attr]
    assert second == Notification("m", {"n": 1})
