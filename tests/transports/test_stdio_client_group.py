"""The process group of a server: nothing in it survives, under whatever user or parent."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import textwrap
from pathlib import Path

import psutil
import pytest
import trio
import trio.testing

from tests.peer import ENVIRONMENT, script
from tests.transports.support import (
    DEADLINE,
    DIARY,
    MARK,
    marked,
    no_survivors,
    python,
    ready,
    run,
    shell,
    use,
)
from trio_mcp import stdio_client


async def test_a_stopped_server_is_killed(tmp_path: Path) -> None:
    """A process that does not run can't react to anything else."""
    async with no_survivors() as mark:
        code = 'echo \'{"jsonrpc":"2.0","method":"ready"}\'; kill -STOP $$'
        await use(shell(code, env=mark, shutdown_grace=0.1))


async def test_a_server_that_moved_to_another_group_is_still_ended(tmp_path: Path) -> None:
    """It then has no group of its own any more, but the process is still there."""
    code = "import os; os.setpgid(0, os.getpgid(os.getppid()))\n" + textwrap.dedent(DIARY)
    diary = tmp_path / "diary"
    async with no_survivors() as mark:
        await use(python(code, str(diary), "linger", env=mark, shutdown_grace=0.1))
    assert diary.read_text().split() == ["EOF", "SIGTERM"]


@pytest.mark.parametrize("end", ["normal", "exception", "cancelled"])
@pytest.mark.parametrize("ignore", ["", "trap '' TERM; "], ids=["obedient", "stubborn"])
async def test_no_child_or_grandchild_survives(end: str, ignore: str) -> None:
    """However the block ends, the whole group goes: children in the background, and those of double forks."""
    code = f"""
        {ignore}
        sleep 1000 &
        (sleep 1000 & sleep 1000 &)
        echo '{{"jsonrpc":"2.0","method":"ready"}}'
        read -r line
    """
    async with no_survivors() as mark:
        with trio.fail_after(DEADLINE), trio.CancelScope() as scope:
            try:
                async with stdio_client(shell(code, env=mark, shutdown_grace=0.2)) as (read, _):
                    await ready(read)
                    while len(marked(mark[MARK])) != 4:  # noqa: ASYNC110 - in the middle of an exec one has no environment
                        await trio.sleep(0.01)
                    if end == "exception":
                        raise KeyError("mine")
                    if end == "cancelled":
                        scope.cancel()
                        await trio.sleep_forever()
            except KeyError:
                assert end == "exception"
        assert scope.cancelled_caught == (end == "cancelled")


async def test_what_a_server_leaves_behind_gets_a_signal_before_it_is_killed(tmp_path: Path) -> None:
    """A helper of a server that exited properly may tidy up when it gets SIGTERM."""
    code = f"""
        sh -c 'trap "echo tidy > {tmp_path}/helper; exit" TERM; sleep 1000 & echo >{tmp_path}/up; wait' &
        while [ ! -e {tmp_path}/up ]; do sleep 0.01; done
        echo '{{"jsonrpc":"2.0","method":"ready"}}'
        read -r line
    """
    async with no_survivors() as mark:
        await use(shell(code, env=mark, shutdown_grace=20))
    assert (tmp_path / "helper").read_text() == "tidy\n"


def test_adopted_orphans_are_reaped() -> None:
    """The first process of a container inherits what a server leaves behind, and must not collect zombies."""
    code = """
        import ctypes, psutil, trio
        from trio_mcp import stdio_client, StdioServerParameters
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        async def main():
            double_fork = "(sleep 1000 & sleep 1000 &) ; read -r line"
            params = StdioServerParameters("sh", ["-c", double_fork], shutdown_grace=20)
            async with stdio_client(params):
                while len(psutil.Process().children(recursive=True)) < 3:
                    await trio.sleep(0.01)
            print([child.status() for child in psutil.Process().children(recursive=True)])
        trio.run(main)
    """
    harness = run(script(code), b"")
    assert (harness.stdout, harness.stderr) == (b"[]\n", b"")


@pytest.mark.root  # to start a process and then lose the right to signal it
def test_a_process_that_may_not_be_signalled_does_not_block_the_way_out() -> None:
    """A server that runs as another user (sudo) can't be killed; the wait for it is bounded all the same."""
    code = """
        import os, trio
        from trio_mcp import stdio_client, StdioServerParameters
        async def main():
            params = StdioServerParameters("sh", ["-c", "exec sleep 40.25"], shutdown_grace=0.1, stderr="discard")
            async with stdio_client(params):
                os.setuid(65534)
            print("out", flush=True)
        trio.run(main)
    """
    try:
        harness = run(script(code), b"", start_new_session=True)  # the server itself sleeps for longer
    finally:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline() == ["sleep", "40.25"]:
                    process.kill()
    assert harness.stdout == b"out\n", harness.stderr.decode()
    assert b"could not be killed" in harness.stderr


def test_the_interrupt_of_the_program_ends_its_servers() -> None:
    """Ctrl-C reaches the program, not the server's group; the server goes because its block is left."""
    code = """
        import os, trio
        from trio_mcp import stdio_client, StdioServerParameters
        async def main():
            code = "echo $$ >&2; trap '' INT; echo '{}'; sleep 1000"
            params = StdioServerParameters("sh", ["-c", code], shutdown_grace=0)
            async with stdio_client(params) as (read, write):
                await read.receive()
                print("up", flush=True)
                await trio.sleep_forever()
        try:
            trio.run(main)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """
    with subprocess.Popen(script(code), stdout=-1, stderr=-1, env=ENVIRONMENT) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"up\n"
        harness.send_signal(signal.SIGINT)
        output, errors = harness.communicate(timeout=DEADLINE)
    assert output == b"interrupted\n"
    assert not psutil.pid_exists(int(errors.split()[0]))
