"""Starting a server as a child process: what it gets, where its standard error goes, and what can't be started."""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.peer import ENVIRONMENT, script
from tests.transports.support import DEADLINE, no_survivors, open_descriptors, python, run, session_with, shell
from trio_mcp import ProcessExited, StdioServerParameters, TransportError
from trio_mcp.jsonrpc.messages import Notification, TransportFailure
from trio_mcp.low_level import stdio_client

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
        (
            lambda tmp: StdioServerParameters("no-such-command server.py"),
            r"belong in a list: write StdioServerParameters\('no-such-command', \['server.py'\]\)",
        ),
        (lambda tmp: StdioServerParameters(str(tmp / "missing")), "no such file"),
        (lambda tmp: StdioServerParameters(str(tmp)), "is a directory"),
        (lambda tmp: StdioServerParameters(executable(tmp / "plain", "#!/bin/sh\n", 0o644)), "not executable"),
        (lambda tmp: StdioServerParameters(executable(tmp / "script", "#!/no/such/interpreter\n")), "interpreter"),
        (lambda tmp: StdioServerParameters(executable(tmp / "data", "\x01\x02\x03")), "Exec format error"),
        (lambda tmp: StdioServerParameters("sh", cwd=tmp / "missing"), "cwd=.* does not exist"),
        (lambda tmp: StdioServerParameters("sh", cwd=executable(tmp / "file", "")), "cwd=.* is not a directory"),
        (lambda tmp: StdioServerParameters("sh", ["x" * 3_000_000]), "Argument list too long"),
    ],
    ids=[
        "unknown",
        "with-arguments",
        "missing",
        "directory",
        "plain",
        "interpreter",
        "format",
        "no-cwd",
        "file-cwd",
        "too-long",
    ],
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
        (("sh", ["-c", 5]), {}, TypeError, "args must be a sequence of strings"),
        (("sh", [Path("x")]), {}, TypeError, "args must be a sequence of strings"),
        (("sh", ["a\0b"]), {}, ValueError, "args .*null character"),
        (("sh",), {"env": {"A": 1}}, TypeError, "env must map strings to strings"),
        (("sh",), {"env": ["A=1"]}, TypeError, "env must map strings to strings"),
        (("sh",), {"env": {"A": "a\0b"}}, ValueError, "env: the value of 'A' .*null character"),
        (("sh",), {"env": {"A=B": "c"}}, ValueError, "env .*'A=B'"),
        (("sh",), {"env": {"": "c"}}, ValueError, "env .*''"),
        (("sh",), {"cwd": 5}, TypeError, "cwd must be a path"),
        (("sh",), {"stderr": "inherti"}, ValueError, "stderr must be"),
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


# --- standard error ------------------------------------------------------------------------------------------------


SAY_AND_EXIT = "printf 'first\\nsecond\\nthird' >&2; exit 3"


async def exit_of(params: StdioServerParameters) -> ProcessExited:
    """Run a child to its end, and return the failure that the link reports."""
    with trio.fail_after(DEADLINE):
        async with stdio_client(params) as (read, _):
            async for item in read:
                if isinstance(item.message, TransportFailure):
                    assert isinstance(item.message.error, ProcessExited)
                    return item.message.error
    raise AssertionError("the link ended without a word")


@pytest.mark.parametrize(
    ("options", "closed", "shown"),
    [
        (', label="git"', False, b"[git] one\n[git] two \xff\n[git] three\n"),
        (', stderr="discard"', False, b""),
        ("", True, b""),
    ],
    ids=["inherited", "discarded", "ours is closed"],
)
def test_where_standard_error_appears(options: str, closed: bool, shown: bytes) -> None:
    """Inherited is the default; bytes that are no UTF-8 pass unchanged. The error has the last lines in any case."""
    code = rf"""
        import sys, trio
        from trio_mcp import StdioServerParameters
        from trio_mcp.low_level import stdio_client
        async def main():
            params = StdioServerParameters("sh", ["-c", r"printf 'one\ntwo \377\nthree' >&2"]{options})
            async with stdio_client(params) as (read, write):
                async for item in read:
                    print(item.message.error.stderr_tail, end="")
        trio.run(main)
    """
    harness = run(script(code), b"", preexec_fn=(lambda: os.close(2)) if closed else None)
    assert (harness.returncode, harness.stderr) == (0, shown)
    assert harness.stdout.decode() == "one\ntwo \ufffd\nthree"


def test_our_own_non_blocking_standard_error_loses_nothing() -> None:
    """A process that shares the description may have set O_NONBLOCK; a slow reader then means EAGAIN, not the end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    size = 300_000
    code = f"""
        import sys, trio
        from trio_mcp import StdioServerParameters
        from trio_mcp.low_level import stdio_client
        write = "import sys; [sys.stderr.write('x' * 99 + '\\\\n') for _ in range({size // 100})]"
        async def main():
            params = StdioServerParameters(sys.executable, ["-c", write], shutdown_grace=20)
            async with stdio_client(params) as (read, _):
                async for item in read:
                    pass
        trio.run(main)
    """
    with subprocess.Popen(script(code), stderr=writer, env=ENVIRONMENT) as harness:
        deadline = time.monotonic() + DEADLINE
        while select.select([], [writer], [], 0)[1] and time.monotonic() < deadline:  # the pipe is not full
            time.sleep(0.005)
        os.close(writer)
        with open(reader, "rb") as stream:
            received = stream.read()
        assert harness.wait(DEADLINE) == 0
    assert len(received) == size


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_callback_gets_every_line(kind: str) -> None:
    """Line by line, without the newline, an unfinished last line included."""
    lines: list[str] = []

    async def later(line: str) -> None:
        await trio.lowlevel.checkpoint()
        lines.append(line)

    error = await exit_of(shell(SAY_AND_EXIT, stderr=lines.append if kind == "sync" else later))
    assert lines == ["first", "second", "third"]
    assert error.stderr_tail == "first\nsecond\nthird"
    assert error.returncode == 3


async def test_text_arrives_decoded_whatever_the_bytes() -> None:
    """Invalid UTF-8 becomes the replacement character; a carriage return before the newline goes.

    A character across two reads is not torn.
    """
    lines: list[str] = []
    code = r"printf 'caf\303\251\n\377bad\r\n\n\303' >&2; sleep 0.05; printf '\251\n' >&2"
    await exit_of(shell(code, stderr=lines.append))
    assert lines == ["café", "\ufffdbad", "", "é"]


async def test_a_long_line_comes_in_bounded_pieces() -> None:
    """A server that never ends its line fills no memory, and no character is torn at the cut."""
    pieces: list[str] = []
    code = "import sys; sys.stderr.buffer.write('€'.encode() * 500_000 + b'\\nend\\n')"
    error = await exit_of(python(code, stderr=pieces.append))
    assert "".join(pieces) == "€" * 500_000 + "end"
    assert max(map(len, pieces)) <= 8192
    assert len(error.stderr_tail) < 200_000


async def test_only_the_last_lines_are_kept_for_the_error() -> None:
    code = "import sys; [print(n, file=sys.stderr) for n in range(5000)]; sys.exit(1)"
    error = await exit_of(python(code, stderr="discard"))
    assert error.stderr_tail.splitlines() == [str(n) for n in range(4980, 5000)]
    assert "4999" in str(error)


async def test_a_callback_that_raises_is_logged_and_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """A fault in the program's own callback ends neither the connection nor the copying."""
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        raise RuntimeError("a bug")

    await exit_of(shell(SAY_AND_EXIT, stderr=fail))
    assert lines == ["first", "second", "third"]
    assert all(record.levelno == logging.ERROR and "standard error" in record.getMessage() for record in caplog.records)
    assert caplog.records


async def test_a_slow_callback_delays_neither_answers_nor_the_tail() -> None:
    """The server goes on while the callback is stuck, and the error has the last lines that the callback missed."""
    code = """
        import json, sys
        for line in sys.stdin.buffer:
            for n in range(100):
                print("line", n, file=sys.stderr)
            if b"stop" in line:
                sys.exit("the reason")
            print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}), flush=True)
    """

    async def stuck(line: str) -> None:
        await trio.sleep_forever()

    async with session_with(python(code, stderr=stuck)) as session:
        assert await session.send_request("go") == {}
        with pytest.raises(ProcessExited) as caught:
            await session.send_request("stop")
    assert caught.value.stderr_tail.endswith("line 99\nthe reason")


async def test_a_stuck_callback_holds_a_bounded_amount() -> None:
    """A server that floods its standard error waits for a stuck callback in the end: the pipe is not read on."""
    code = """
        import os, sys
        os.set_blocking(2, False)
        written = 0
        import time
        last = time.monotonic()
        while time.monotonic() - last < 0.3:
            try:
                written += os.write(2, b"x" * 99 + b"\\n")
                last = time.monotonic()
            except BlockingIOError:
                time.sleep(0.01)
        print('{"jsonrpc":"2.0","method":"written","params":{"bytes":%d}}' % written, flush=True)
        sys.stdin.read()
    """

    async def stuck(line: str) -> None:
        await trio.sleep_forever()

    with trio.fail_after(DEADLINE):
        async with stdio_client(python(code, stderr=stuck, shutdown_grace=0.2)) as (read, _):
            message = (await read.receive()).message
    assert message.params["bytes"] < 1_000_000  # type: ignore[union-attr,index]


def test_many_servers_start_while_our_own_standard_error_is_blocked() -> None:
    """Our standard error is not read: the threads that wait to write to it must not be those that others need."""
    code = """
        import os, sys, trio
        from trio_mcp import StdioServerParameters
        from trio_mcp.low_level import stdio_client
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        os.dup2(writer, 2)
        params = StdioServerParameters("sh", ["-c", "echo noise >&2; echo '{}'; read -r line"], shutdown_grace=0.1)
        async def one(started, end):
            async with stdio_client(params) as (read, write):
                await read.receive()
                started.release()
                await end.wait()
        async def main():
            trio.to_thread.current_default_thread_limiter().total_tokens = 4
            started, end = trio.Semaphore(0), trio.Event()
            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(one, started, end)
                with trio.fail_after(20):
                    for _ in range(8):
                        await started.acquire()
                    await trio.to_thread.run_sync(int)
                print("all started", flush=True)
                end.set()
        trio.run(main)
    """
    harness = run(script(code), b"")
    assert (harness.returncode, harness.stdout) == (0, b"all started\n")
