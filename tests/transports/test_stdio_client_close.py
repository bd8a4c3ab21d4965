"""Leaving `stdio_client`: the order of the shutdown, and that nothing is left running."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing

from tests.transports.support import (
    ANSWER_EVERYTHING,
    DEADLINE,
    MARK,
    PACKAGE_ROOT,
    SHELL_ANSWERS_FIRST,
    cancelled_at_every_step,
    marked,
    no_survivors,
    open_descriptors,
    python,
    shell,
)
from trio_mcp import BaseSession, SessionMessage, StdioServerParameters, stdio_client
from trio_mcp.protocol.messages import Notification

# Writes down what happens to it, in the order in which it does.
DIARY = """
    import signal, sys, time
    diary = open(sys.argv[1], "a", buffering=1)
    def on_term(*_):
        print("SIGTERM", file=diary)
        if "obey" in sys.argv:
            sys.exit()
    signal.signal(signal.SIGTERM, on_term)
    print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
    sys.stdin.read()
    print("EOF", file=diary)
    while "linger" in sys.argv:
        time.sleep(0.01)
    print("exit", file=diary)
"""


async def ready(read: trio.abc.ReceiveChannel[SessionMessage]) -> None:
    assert (await read.receive()).message == Notification("ready")


async def use(params: StdioServerParameters) -> None:
    with trio.fail_after(DEADLINE):
        async with stdio_client(params) as (read, _):
            await ready(read)


async def test_a_server_is_asked_to_go_by_the_end_of_its_input(tmp_path: Path) -> None:
    """`basic/transports/stdio`, Shutdown: first its input is closed; one that goes gets no signal."""
    diary = tmp_path / "diary"
    await use(python(DIARY, str(diary)))
    assert diary.read_text().split() == ["EOF", "exit"]


async def test_then_by_a_signal(tmp_path: Path) -> None:
    """One SIGTERM, after the grace."""
    diary = tmp_path / "diary"
    async with no_survivors() as mark:
        await use(python(DIARY, str(diary), "linger", "obey", env=mark, shutdown_grace=0.3))
    assert diary.read_text().split() == ["EOF", "SIGTERM"]


async def test_then_it_is_killed(tmp_path: Path) -> None:
    """One that ignores both is gone all the same."""
    diary = tmp_path / "diary"
    async with no_survivors() as mark:
        await use(python(DIARY, str(diary), "linger", env=mark, shutdown_grace=0.3))
    assert diary.read_text().split() == ["EOF", "SIGTERM"]


async def test_a_stopped_server_is_killed(tmp_path: Path) -> None:
    """A process that does not run can't react to anything else."""
    async with no_survivors() as mark:
        code = 'echo \'{"jsonrpc":"2.0","method":"ready"}\'; kill -STOP $$'
        await use(shell(code, env=mark, shutdown_grace=0.1))


async def test_everything_written_before_the_end_reaches_the_server(tmp_path: Path) -> None:
    """Messages handed over just before leaving the block are written before the input is closed."""
    target = tmp_path / "received"
    with trio.fail_after(DEADLINE):
        async with stdio_client(StdioServerParameters("tee", [str(target)])) as (_, write):
            for n in range(50):
                await write.send(SessionMessage(Notification("m", {"n": n})))
    assert len(target.read_text().splitlines()) == 50


async def test_a_server_that_still_has_much_to_say_may_finish(tmp_path: Path) -> None:
    """Nobody reads its last words, but a full pipe must not keep it from exiting on its own."""
    code = """
        import sys
        print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
        sys.stdin.read()
        for _ in range(20_000):
            print('{"jsonrpc":"2.0","method":"bye"}')
        open(sys.argv[1], "w").write("done")
    """
    await use(python(code, str(tmp_path / "done"), shutdown_grace=20))
    assert (tmp_path / "done").read_text() == "done"


async def test_a_reader_that_stopped_reading_does_not_keep_the_server_from_exiting(tmp_path: Path) -> None:
    """The same while the channel to the session is full already."""
    code = """
        import sys, threading
        print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
        for _ in range(20_000):
            print('{"jsonrpc":"2.0","method":"bulk"}')
        sys.stdin.read()
        open(sys.argv[1], "w").write("done")
    """
    with trio.fail_after(DEADLINE):
        async with stdio_client(python(code, str(tmp_path / "done"), shutdown_grace=20)) as (read, _):
            await ready(read)
            await trio.sleep(0.1)
    assert (tmp_path / "done").read_text() == "done"


async def test_leaving_does_not_wait_for_more_than_the_process(tmp_path: Path) -> None:
    """A daemon in a session of its own that holds the pipes costs no grace: the server itself has exited."""
    code = """
        import subprocess, sys
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
        sys.stdin.read()
    """
    async with no_survivors() as mark:
        try:
            await use(python(code, env=mark, shutdown_grace=1000))
        finally:
            for process in marked(mark[MARK]):
                process.kill()


async def test_a_server_that_moved_to_another_group_is_ended_all_the_same(tmp_path: Path) -> None:
    """Then there is no group of its own any more, but there is still the process."""
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
                    assert len(marked(mark[MARK])) == 4
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


def test_orphans_that_fall_to_us_are_reaped() -> None:
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
    harness = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": PACKAGE_ROOT},
        check=False,
    )
    assert (harness.stdout, harness.stderr) == (b"[]\n", b"")


async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object() -> None:
    """No nursery of the transport's wraps it, whatever it is."""
    for error in (RuntimeError("mine"), ExceptionGroup("mine", [ValueError("inner")]), KeyboardInterrupt()):
        with pytest.raises(type(error)) as caught, trio.fail_after(DEADLINE):
            async with stdio_client(shell("read -r line")):
                await trio.lowlevel.checkpoint()
                raise error
        assert caught.value is error


async def test_what_is_raised_after_the_server_died_leaves_it_as_the_very_object() -> None:
    error = RuntimeError("mine")
    with pytest.raises(RuntimeError) as caught, trio.fail_after(DEADLINE):
        async with stdio_client(shell("exit 1")) as (read, _):
            async for _ in read:
                pass
            raise error
    assert caught.value is error


async def test_cancellation_at_every_step_of_start_use_and_close_leaves_no_process() -> None:
    """Nor a descriptor."""
    async with no_survivors() as mark:
        before = open_descriptors()

        async def scenario() -> None:
            async with stdio_client(shell(SHELL_ANSWERS_FIRST, env=mark)) as link, BaseSession(*link) as session:
                await session.send_request("first")

        async def after() -> None:
            assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]
            assert not marked(mark[MARK])
            assert open_descriptors() == before

        assert await cancelled_at_every_step(scenario, after) > 20


async def test_clients_side_by_side_close_in_any_order() -> None:
    """Twenty servers, each with calls of its own, none in another's way, left one after the other at random."""
    order = list(range(20))
    random.Random(20).shuffle(order)
    leave, gone = [trio.Event() for _ in order], [trio.Event() for _ in order]
    left: list[int] = []

    async def one(number: int, mark: dict[str, str], started: trio.Semaphore) -> None:
        async with stdio_client(python(ANSWER_EVERYTHING, env=mark)) as link, BaseSession(*link) as session:
            for n in range(5):
                assert await session.send_request("echo", {"n": n}) == {"params": {"n": n}}
            started.release()
            await leave[number].wait()
            assert await session.send_request("echo", {"n": number}) == {"params": {"n": number}}
        left.append(number)
        gone[number].set()

    async with no_survivors() as mark:
        started = trio.Semaphore(0)
        with trio.fail_after(DEADLINE):
            async with trio.open_nursery() as nursery:
                for number in order:
                    nursery.start_soon(one, number, mark, started)
                for _ in order:
                    await started.acquire()
                for number in order:
                    leave[number].set()
                    await gone[number].wait()
    assert left == order


async def test_nothing_runs_in_an_idle_connection() -> None:
    """No polling: a quiet server costs no scheduler step."""

    class Counter(trio.abc.Instrument):
        steps = 0

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            self.steps += 1

    with trio.fail_after(DEADLINE):
        async with stdio_client(python(ANSWER_EVERYTHING)) as link, BaseSession(*link) as session:
            await session.send_request("echo")
            await trio.testing.wait_all_tasks_blocked()
            counter = Counter()
            trio.lowlevel.add_instrument(counter)
            await trio.sleep(0.3)
            trio.lowlevel.remove_instrument(counter)
            assert counter.steps <= 1  # our own waking


async def test_a_channel_kept_beyond_the_block_wakes_whoever_waits_on_it() -> None:
    """Clones of the link's ends don't wait for ever for something that is gone."""
    with trio.fail_after(DEADLINE):
        async with stdio_client(shell("read -r line; sleep 1000", shutdown_grace=0.05)) as (read, write):
            assert isinstance(read, trio.MemoryReceiveChannel)
            assert isinstance(write, trio.MemorySendChannel)
            read, write = read.clone(), write.clone()
        with pytest.raises(trio.BrokenResourceError):
            while True:
                await write.send(SessionMessage(Notification("m")))
        with pytest.raises(trio.EndOfChannel):
            while True:
                await read.receive()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start a process and then lose the right to signal it")
def test_a_process_that_may_not_be_signalled_does_not_block_the_way_out() -> None:
    """A server that runs as somebody else (sudo) can't be killed; the wait for it is bounded all the same."""
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
    environment = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=-1, stderr=-1, env=environment, start_new_session=True
    ) as harness:
        first = psutil.Process(harness.pid)
        try:
            output, errors = harness.communicate(timeout=DEADLINE)  # the server itself sleeps for longer
        finally:
            for process in [*first.children(recursive=True)] if first.is_running() else []:
                process.kill()
            for process in psutil.process_iter():
                if process.name() == "sleep" and process.cmdline() == ["sleep", "40.25"]:
                    process.kill()
    assert output == b"out\n", errors.decode()
    assert b"could not be ended" in errors


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
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": PACKAGE_ROOT}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=-1, stderr=-1, env=environment
    ) as harness:
        assert harness.stdout is not None
        assert harness.stdout.readline() == b"up\n"
        harness.send_signal(signal.SIGINT)
        output, errors = harness.communicate(timeout=DEADLINE)
    assert output == b"interrupted\n"
    assert not psutil.pid_exists(int(errors.split()[0]))
