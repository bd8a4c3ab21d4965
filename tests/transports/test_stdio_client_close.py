"""Leaving `stdio_client`: the order of the shutdown, and that nothing is left running."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
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
    session_with,
    shell,
    use,
)
from tests.waiting import steps_within
from trio_mcp import BaseSession, SessionMessage, StdioServerParameters, stdio_client
from trio_mcp.jsonrpc.messages import Notification


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
    """What nobody reads, before the end of its input or after, must not keep it from exiting on its own."""
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


async def test_leaving_the_block_wakes_a_task_that_waits_on_a_kept_channel() -> None:
    """Clones of the link's ends don't wait forever for something that is gone."""
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


async def test_an_object_that_is_not_a_message_raises_an_error_of_its_own() -> None:
    """A caller's mistake leaves the block as the exception it is, not in a group."""
    with pytest.raises((TypeError, AttributeError)), trio.fail_after(DEADLINE):
        async with stdio_client(shell("read -r line")) as (_, write):
            await write.send("no message")  # type: ignore[arg-type]
            await trio.sleep_forever()
