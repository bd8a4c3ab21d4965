"""How a connection to a child process ends: by leaving the block, or because the server dies or is as good as dead.

Every pending call settles at once, with the cause, and nothing in the server's process group survives.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.peer import ENVIRONMENT, script
from tests.transports.support import (
    ANSWER_EVERYTHING,
    DEADLINE,
    DIARY,
    MARK,
    SHELL_ANSWERS_FIRST,
    marked,
    no_survivors,
    open_descriptors,
    python,
    ready,
    run,
    session_with,
    shell,
    use,
    vanished,
)
from tests.waiting import steps_within
from trio_mcp import ProcessExited, SessionOptions, StdioServerParameters, TransportError
from trio_mcp.jsonrpc.messages import Incoming, Notification, Request, Response, TransportFailure
from trio_mcp.low_level import BaseSession, SessionMessage, stdio_client
from trio_mcp.stdio.client import EXIT_MOMENT

# --- leaving the block ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "expected"), [((), "EOF exit"), (("linger", "obey"), "EOF SIGTERM"), (("linger",), "EOF SIGTERM")]
)
async def test_a_server_is_first_asked_to_exit_then_told_to_and_then_killed(
    how: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    """`basic/transports/stdio`, Shutdown: first its input is closed; one SIGTERM comes after the grace, if at all."""
    diary = tmp_path / "diary"
    async with no_survivors() as mark:
        await use(python(DIARY, str(diary), *how, env=mark, shutdown_grace=0.3 if how else 20))
    assert diary.read_text().split() == expected.split()


async def test_everything_written_before_the_end_reaches_the_server(tmp_path: Path) -> None:
    """Messages handed over just before leaving the block are written before the input is closed."""
    target = tmp_path / "received"
    with trio.fail_after(DEADLINE):
        async with stdio_client(StdioServerParameters("tee", [str(target)])) as (_, write):
            for n in range(50):
                await write.send(SessionMessage(Notification("m", {"n": n})))
    assert len(target.read_text().splitlines()) == 50


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_server_that_still_has_much_to_say_may_finish(when: str, tmp_path: Path) -> None:
    """What its client does not read, before the end of its input or after, must not keep it from exiting on its own."""
    code = """
        import sys
        print('{"jsonrpc":"2.0","method":"ready"}', flush=True)
        if sys.argv[2] == "after":
            sys.stdin.read()
        for _ in range(20_000):
            print('{"jsonrpc":"2.0","method":"bulk"}')
        sys.stdin.read()
        open(sys.argv[1], "w").write("done")
    """
    with trio.fail_after(DEADLINE):
        async with stdio_client(python(code, str(tmp_path / "done"), when, shutdown_grace=20)) as (read, _):
            await ready(read)
            await trio.testing.wait_all_tasks_blocked(0.05)
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


@pytest.mark.parametrize(
    ("error", "when"),
    [
        (RuntimeError("mine"), "open"),
        (ExceptionGroup("mine", [ValueError("inner")]), "open"),
        (KeyboardInterrupt(), "open"),
        (RuntimeError("mine"), "cancelled"),
        (RuntimeError("mine"), "dead"),
    ],
)
async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(error: BaseException, when: str) -> None:
    """No nursery of the transport's wraps it, and a cancellation of the way out does not replace it."""
    with pytest.raises(type(error)) as caught, trio.fail_after(DEADLINE), trio.CancelScope() as scope:
        async with stdio_client(shell("exit 1" if when == "dead" else "read -r line")) as (read, _):
            if when == "dead":
                async for _item in read:
                    pass
            if when == "cancelled":
                scope.cancel()
            raise error
    assert caught.value is error


async def test_what_a_callback_for_standard_error_raises_beyond_exceptions_leaves_the_block() -> None:
    """An exit requested in the callback is not an error to log; it comes out as it was raised."""

    def leave(line: str) -> None:
        raise SystemExit(line)

    with pytest.raises(SystemExit, match="now"), trio.fail_after(DEADLINE):
        async with stdio_client(shell("echo now >&2; read -r line", stderr=leave)):
            await trio.sleep_forever()


async def test_cancellation_at_every_step_of_start_use_and_close_leaves_no_process() -> None:
    """No descriptor stays open either."""
    async with no_survivors() as mark:
        before = open_descriptors()

        async def scenario() -> None:
            async with stdio_client(shell(SHELL_ANSWERS_FIRST, env=mark)) as link, BaseSession(*link) as session:
                await session.send_request("first")

        async def after() -> None:
            assert not [child for child in psutil.Process().children() if child.status() == psutil.STATUS_ZOMBIE]
            assert not marked(mark[MARK])
            assert open_descriptors() == before

        assert await cancel_everywhere(scenario, after) > 20


async def test_nothing_runs_in_an_idle_connection() -> None:
    """No polling: a quiet server costs no scheduler step."""
    async with session_with(python(ANSWER_EVERYTHING)) as session:
        await session.send_request("echo")
        await trio.testing.wait_all_tasks_blocked()
        assert await steps_within(0.1) == 0


async def test_leaving_the_block_wakes_tasks_that_wait_on_the_link() -> None:
    """They don't wait forever for something that is gone."""
    async with trio.open_nursery() as nursery:
        with trio.fail_after(DEADLINE):
            async with stdio_client(shell("read -r line; sleep 1000", shutdown_grace=0.05)) as (read, write):

                @nursery.start_soon
                async def receive() -> None:
                    with pytest.raises(trio.ClosedResourceError):
                        await read.receive()

                @nursery.start_soon
                async def send() -> None:
                    with pytest.raises(trio.ClosedResourceError):
                        while True:
                            await write.send(SessionMessage(Notification("m", {"x": "x" * 10_000})))

                await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.ClosedResourceError):
            await read.receive()
        with pytest.raises(trio.ClosedResourceError):
            await write.send(SessionMessage(Notification("m")))


async def test_an_object_that_is_not_a_message_raises_an_error_of_its_own() -> None:
    """A caller's mistake leaves the block as the exception it is, not in a group."""
    with pytest.raises((TypeError, AttributeError)), trio.fail_after(DEADLINE):
        async with stdio_client(shell("read -r line")) as (_, write):
            await write.send("no message")  # type: ignore[arg-type]
            await trio.sleep_forever()


# --- the process group ---------------------------------------------------------------------------------------------


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
        from trio_mcp import StdioServerParameters
        from trio_mcp.low_level import stdio_client
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
        from trio_mcp import StdioServerParameters
        from trio_mcp.low_level import stdio_client
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
        from trio_mcp import StdioServerParameters
        from trio_mcp.low_level import stdio_client
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


# --- a server that dies --------------------------------------------------------------------------------------------


# Answers every request but the one that says how to end.
DIE = """
    import json, os, signal, sys
    print("last words", file=sys.stderr, flush=True)
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message["method"] == "exit":
            os._exit(message["params"]["status"])
        if message["method"] == "kill":
            os.kill(os.getpid(), message["params"]["signal"])
        if message["method"] != "wait":
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}), flush=True)
"""


async def settle(session: BaseSession, outcomes: list[Any], method: str, params: dict[str, Any] | None = None) -> None:
    """Make a call and keep its outcome."""
    try:
        outcomes.append(await session.send_request(method, params))
    except TransportError as exc:
        outcomes.append(exc)


async def everything(params: StdioServerParameters) -> list[Incoming]:
    """Return everything that arrives on a server's link until it ends."""
    with trio.fail_after(DEADLINE):
        async with stdio_client(params) as (read, _):
            return [item.message async for item in read]


@pytest.mark.parametrize(
    ("method", "params", "returncode", "said"),
    [
        ("exit", {"status": 0}, 0, "exited with status 0"),
        ("exit", {"status": 3}, 3, "exited with status 3"),
        ("kill", {"signal": int(signal.SIGKILL)}, -9, "was killed by signal 9"),
        ("kill", {"signal": int(signal.SIGSEGV)}, -11, "was killed by signal 11"),
    ],
)
async def test_every_pending_call_settles_with_the_status_and_the_last_words(
    method: str, params: dict[str, Any], returncode: int, said: str
) -> None:
    """A death in mid-call fails every call that waits, and every later one, each with an error of its own."""
    outcomes: list[Any] = []
    async with session_with(python(DIE, stderr="discard")) as session:
        await session.send_request("answer")
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(settle, session, outcomes, "wait")
            nursery.start_soon(settle, session, outcomes, method, params)
        await settle(session, outcomes, "late")
    assert len({id(outcome) for outcome in outcomes}) == 7
    for outcome in outcomes:
        assert type(outcome) is ProcessExited
        assert outcome.returncode == returncode
        assert outcome.stderr_tail == "last words"
        assert said in str(outcome)
        assert "last words" in str(outcome)


async def test_a_server_that_dies_at_once_says_so() -> None:
    """The first call fails with the status, whether the pipe broke before or after it was written."""
    for _ in range(10):
        async with session_with(shell("echo 'no module' >&2; exit 7", stderr="discard")) as session:
            with pytest.raises(ProcessExited, match="no module") as caught:
                await session.send_request("first")
            assert caught.value.returncode == 7


async def test_what_the_server_sent_before_it_died_arrives_before_the_failure() -> None:
    """Nothing that was written is lost, even to a reader slower than the server's exit; then the link ends."""
    count = 400
    code = f"""
        for n in range({count}):
            print('{{"jsonrpc":"2.0","method":"n","params":{{"n":%d}}}}' % n)
    """
    received: list[Incoming] = []
    with trio.fail_after(DEADLINE):
        async with stdio_client(python(code)) as (read, _):
            await trio.sleep(EXIT_MOMENT + 0.1)  # more than a reader that gives up early would wait
            async for item in read:
                received.append(item.message)
    assert received[:-1] == [Notification("n", {"n": n}) for n in range(count)]
    assert isinstance(received[-1], TransportFailure)


async def test_answers_that_were_sent_before_the_death_count_though_writing_fails(tmp_path: Path) -> None:
    """A broken pipe on our side of the conversation must not throw away what the other side has said."""
    code = """
        import os, sys, time
        sys.stdin.buffer.readline()
        os.close(0)
        print('{"jsonrpc":"2.0","method":"closed"}', flush=True)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.005)
        print('{"jsonrpc":"2.0","id":1,"result":{"n":1}}', flush=True)
    """
    with trio.fail_after(DEADLINE):
        async with stdio_client(python(code, str(tmp_path / "go"))) as (read, write):
            await write.send(SessionMessage(Request(1, "first")))
            assert (await read.receive()).message == Notification("closed")
            await write.send(SessionMessage(Request(2, "second")))
            await trio.testing.wait_all_tasks_blocked()
            (tmp_path / "go").touch()
            answer, lost = [item.message async for item in read]
    assert answer == Response(1, {"n": 1})
    assert isinstance(lost, TransportFailure)
    assert isinstance(lost.error, ProcessExited)
    assert lost.error.returncode == 0


@pytest.mark.parametrize("detach", [False, True], ids=["in the group", "in a session of its own"])
async def test_a_grandchild_that_holds_the_pipes_does_not_hide_the_death(detach: bool) -> None:
    """The end of the server counts, not the end of its pipes; and what it leaves in its group goes with it."""
    code = """
        import os, subprocess, sys
        subprocess.Popen(["sleep", "1000"], start_new_session=sys.argv[1] == "True")
        print("parting", file=sys.stderr, flush=True)
        sys.stdin.buffer.readline()
        os._exit(4)
    """
    mark = ""
    try:
        async with no_survivors() as environment:
            mark = environment[MARK]
            params = python(code, str(detach), env=environment, stderr="discard")
            async with session_with(params) as session:
                with pytest.raises(ProcessExited) as caught:
                    await session.send_request("first")
                assert caught.value.returncode == 4
                assert caught.value.stderr_tail == "parting"
                if not detach:
                    await vanished(mark)  # while the block goes on
                    assert not marked(mark)
            if detach:  # it has left the group for good: its starter has to end it
                for process in marked(mark):
                    process.kill()
    finally:
        for process in marked(mark):
            process.kill()


async def test_a_server_that_closes_its_output_and_lives_on_is_lost() -> None:
    """It will never answer again: the calls settle, though the process is still there."""
    code = """
        import os, sys
        sys.stdin.buffer.readline()
        os.close(1)
        sys.stdin.read()
    """
    async with no_survivors() as mark, session_with(python(code, env=mark)) as session:
        with pytest.raises(ProcessExited, match="closed its standard output") as caught:
            await session.send_request("first")
        assert caught.value.returncode is None


async def test_a_server_that_closes_its_input_and_lives_on_is_lost() -> None:
    """It takes no more requests; the error says what happened, not that the process exited."""
    code = """
        import os, sys, time
        sys.stdin.buffer.readline()
        os.close(0)
        print("not listening", file=sys.stderr, flush=True)
        print('{"jsonrpc":"2.0","id":1,"result":{}}', flush=True)
        time.sleep(1000)
    """
    async with no_survivors() as mark:
        params = python(code, env=mark, shutdown_grace=0.1, stderr="discard")
        async with session_with(params) as session:
            assert await session.send_request("first") == {}
            with pytest.raises(TransportError, match="closed its standard input") as caught:
                await session.send_request("second")
            assert "not listening" in str(caught.value)


async def test_a_server_that_never_reads_stalls_only_its_own_client() -> None:
    """Writing waits, bounded; another client works on; leaving both blocks works."""
    text = "x" * 10_000
    async with no_survivors() as mark:
        deaf = python("import time; time.sleep(1000)", env=mark, shutdown_grace=0.1)
        sent = 0
        async with (
            stdio_client(deaf) as (_, write),
            session_with(python(ANSWER_EVERYTHING, env=mark)) as session,
            trio.open_nursery() as nursery,
        ):

            async def send_on() -> None:
                nonlocal sent
                while True:
                    await write.send(SessionMessage(Notification("m", {"x": text})))
                    sent += 1

            nursery.start_soon(send_on)
            for _ in range(50):
                await session.send_request("echo")
            assert sent < 200  # the pipe, one burst and the channel
            nursery.cancel_scope.cancel()


async def test_garbage_on_the_output_affects_nothing_else() -> None:
    """A server that prints to its output breaks a rule, not the conversation."""
    code = """
        import json, sys
        for line in sys.stdin.buffer:
            if b"method" not in line:
                continue  # the client answers the garbage
            print("Listening...", flush=True)
            sys.stdout.buffer.write(b"\\xff\\xfe\\n\\n[1, 2]\\n{}\\n")
            sys.stdout.flush()
            print(json.dumps({"jsonrpc": "2.0", "id": json.loads(line)["id"], "result": {}}), flush=True)
    """
    errors: list[Exception] = []
    async with session_with(python(code), options=SessionOptions(on_error=errors.append)) as session:
        for _ in range(3):
            assert await session.send_request("echo") == {}
    assert len(errors) >= 6


async def test_a_message_that_cannot_be_encoded_fails_only_its_own_call() -> None:
    async with session_with(python(ANSWER_EVERYTHING)) as session:
        with pytest.raises(TransportError, match="'echo' was not sent"):
            await session.send_request("echo", {"half": "\ud800"})
        assert await session.send_request("echo", {"n": 1}) == {"params": {"n": 1}}
