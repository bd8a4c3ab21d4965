"""Standard streams of every kind: pipes, sockets, files, terminals, shared, closed; and how they are left behind."""

from __future__ import annotations

import json
import os
import pty
import socket
import subprocess
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peer import ENVIRONMENT, HANDSHAKE, ProcessPeer, call, ndjson, script
from tests.transports.support import DEADLINE, NOISY

CONVERSATION = ndjson(*HANDSHAKE, call(1, "make_noise", how="descriptor"), call(2, "echo", value="there"))


@contextmanager
def started(command: list[str], send_fd: int, receive_fd: int, **streams: Any) -> Iterator[ProcessPeer]:
    """Start a server with the given streams; yield a peer that holds our ends of them."""
    with subprocess.Popen(command, env=ENVIRONMENT, **streams) as process:
        try:
            yield ProcessPeer(process, send_fd, receive_fd, -1)
        finally:
            process.kill()


def converse(wire: ProcessPeer) -> None:
    """Noise and calls in turn; none of the noise arrives."""
    wire.send(*HANDSHAKE)
    assert wire.receive()["id"] == 0
    for how in ("print", "descriptor", "child"):
        assert wire.call("make_noise", how=how) == "done"
    text = "x" * 2000
    assert wire.call("echo", value=text) == text
    assert wire.call("big", size=500_000) == "x" * 500_000


@pytest.mark.parametrize("shared", [False, True], ids=["stderr apart", "stderr on the wire"])
def test_a_socket_for_both_directions(shared: bool) -> None:
    """As inetd and some launchers do it; with the same socket as standard error, noise has nowhere to go."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        errors = theirs if shared else subprocess.DEVNULL
        with started(NOISY, ours.fileno(), ours.fileno(), stdin=theirs, stdout=theirs, stderr=errors) as wire:
            theirs.close()
            converse(wire)
            ours.shutdown(socket.SHUT_WR)
            assert wire.exit() == 0
            assert wire.received == b""


@pytest.mark.parametrize("errors_too", [False, True])
def test_regular_files(tmp_path: Path, errors_too: bool) -> None:
    """``server < requests >> answers``, and ``2>&1``: files can't be polled, are read to their end and appended to."""
    (tmp_path / "in").write_bytes(CONVERSATION)
    (tmp_path / "out").write_bytes(b'{"id": -1}\n')
    with (tmp_path / "in").open("rb") as stdin, (tmp_path / "out").open("ab") as stdout:
        errors = subprocess.STDOUT if errors_too else subprocess.PIPE
        result = subprocess.run(
            NOISY, stdin=stdin, stdout=stdout, stderr=errors, timeout=DEADLINE, env=ENVIRONMENT, check=False
        )
    assert result.returncode == 0
    assert errors_too or result.stderr == b"NOISE\n"
    answers = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    assert sorted(answer["id"] for answer in answers) == [-1, 0, 1, 2]


def test_null_as_input_ends_it() -> None:
    """A service started without anything to talk to goes at once."""
    result = subprocess.run(
        NOISY, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, env=ENVIRONMENT, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


@pytest.mark.parametrize("errors_too", [False, True], ids=["stderr apart", "stderr on the terminal"])
def test_a_terminal(errors_too: bool) -> None:
    """A pty is not a pipe; a person at it sees what goes to standard error, too."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    errors = theirs if errors_too else subprocess.DEVNULL
    try:
        with started(NOISY, ours, ours, stdin=theirs, stdout=theirs, stderr=errors, start_new_session=True) as wire:
            if errors_too:
                wire.send(*HANDSHAKE)
                assert wire.receive()["id"] == 0
                wire.send(call(1, "make_noise", how="print"))
                wire.wait_for_output(b"NOISE", b'"id":1')
            else:
                converse(wire)
            assert os.get_blocking(theirs)
            os.close(theirs)
            theirs = -1
            os.close(ours)  # hangs up
            ours = -1
            wire.process.wait(DEADLINE)
    finally:
        for fd in (ours, theirs):
            if fd >= 0:
                os.close(fd)


RESTORED = """
    import os, sys, time, trio
    from trio_mcp.low_level import stdio_server

    def state():
        found = []
        for fd in (0, 1, 2):
            try:
                status = os.fstat(fd)
                found.append((status.st_dev, status.st_ino, os.get_blocking(fd), os.get_inheritable(fd)))
            except OSError:
                found.append(None)
        return found, len(os.listdir("/proc/self/fd"))

    async def main(how):
        async with stdio_server() as (read, write):
            assert state()[0] != before[0]
            if how == "error":
                raise KeyError
            if how == "cancel":
                scope.cancel()
            async for item in read:
                await write.send(item)

    trio.run(trio.to_thread.run_sync, int)
    for how, blocking in ((how, blocking) for blocking in (True, False) for how in ("error", "cancel", "end")):
        os.set_blocking(0, blocking)
        os.set_blocking(1, blocking)
        before = state()
        scope = trio.CancelScope()
        async def run():
            with scope:
                await main(how)
        try:
            trio.run(run)
        except KeyError:
            pass
        end = time.monotonic() + 5  # an abandoned thread closes its descriptor when it has read
        while state() != before and time.monotonic() < end:
            time.sleep(0.001)
        if state() != before:
            with open(os.environ["REPORT"], "w") as report:
                print(how, before, "became", state(), file=report)
            os._exit(1)
    os.set_blocking(1, True)
    print("restored")
    sys.stdout.flush()
"""


@pytest.mark.parametrize("kind", ["pipes", "socket", "socket for all", "terminal", "file"])
def test_the_standard_streams_are_restored_after_the_block(kind: str, tmp_path: Path) -> None:
    """The same files behind 0, 1 and 2, O_NONBLOCK as it was, nothing left open: after the end, an error, a cancel."""
    report = tmp_path / "report"
    environment = {**ENVIRONMENT, "REPORT": str(report)}
    streams: dict[str, Any] = {"stderr": subprocess.PIPE}
    if kind == "pipes":
        (stdin, ours_in), (ours_out, stdout) = os.pipe(), os.pipe()
    elif kind == "terminal":
        ours_in, stdin = pty.openpty()
        stdout, ours_out = stdin, ours_in
    elif kind == "file":
        stdin = os.open(tmp_path / "in", os.O_RDONLY | os.O_CREAT)
        stdout = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
        ours_in, ours_out = -1, os.open(tmp_path / "out", os.O_RDONLY)
    else:
        pair = socket.socketpair()
        ours_in, stdin = (end.detach() for end in pair)
        stdout, ours_out = stdin, ours_in
        if kind == "socket for all":
            streams["stderr"] = stdin
    ends = {stdin, stdout, ours_in, ours_out} - {-1}
    try:
        with subprocess.Popen(script(RESTORED), stdin=stdin, stdout=stdout, env=environment, **streams) as process:
            try:
                if kind.startswith("socket"):
                    with socket.socket(fileno=os.dup(ours_in)) as end:
                        end.shutdown(socket.SHUT_WR)
                elif kind == "pipes":
                    os.close(ours_in)
                    ends.remove(ours_in)
                elif kind == "terminal":
                    _type_the_end(process, ours_in)
                assert process.wait(DEADLINE) == 0, report.exists() and report.read_text()
            finally:
                process.kill()
        if kind != "terminal":
            assert os.read(ours_out, 1000) == b"restored\n"
    finally:
        for fd in ends:
            os.close(fd)


def _type_the_end(process: subprocess.Popen[bytes], terminal: int) -> None:
    """Type Ctrl-D until the process has gone: one that came early may end the input of an earlier block."""
    deadline = time.monotonic() + DEADLINE
    while process.poll() is None and time.monotonic() < deadline:
        os.write(terminal, b"\x04")
        time.sleep(0.05)


@pytest.mark.parametrize("closed", [(2,), (0,), (1,), (0, 1, 2)])
def test_closed_standard_streams(closed: tuple[int, ...]) -> None:
    """``server 2>&-`` works; without an input or an output there is nothing to serve, and the error says so."""
    code = """
        import os, sys, trio
        from trio_mcp import TransportError
        from trio_mcp.low_level import stdio_server
        async def main():
            for _ in range(2):
                try:
                    async with stdio_server() as (read, write):
                        async for item in read:
                            print("noise", flush=True)
                            await write.send(item)
                    os.write(report, b"served\\n")
                except TransportError as exc:
                    os.write(report, f"{exc}\\n".encode())
        report = int(sys.argv[1])
        trio.run(main)
        os._exit(0)
    """
    report_in, report_out = os.pipe()
    close = "".join(f" {fd}>&-" for fd in closed)
    command = ["sh", "-c", f'exec "$@"{close}', "sh", *script(code), str(report_out)]
    with open(report_in, "rb") as reports:
        result = subprocess.run(
            command,
            input=b'{"jsonrpc":"2.0","method":"m"}\n',
            capture_output=True,
            timeout=DEADLINE,
            env=ENVIRONMENT,
            pass_fds=[report_out],
            check=False,
        )
        os.close(report_out)
        said = reports.read().decode().splitlines()
    assert result.returncode == 0, result.stderr
    if closed == (2,):
        assert said == ["served", "served"]
        assert result.stdout == b'{"jsonrpc":"2.0","method":"m"}\n'
    else:
        name = "standard output" if closed == (1,) else "standard input"
        assert said == [f"can't serve over {name}: it is closed"] * 2
