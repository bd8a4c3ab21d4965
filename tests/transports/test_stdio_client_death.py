"""A server that dies, or is as good as dead: every pending call settles at once, with the cause."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.transports.support import (
    ANSWER_EVERYTHING,
    DEADLINE,
    MARK,
    marked,
    no_survivors,
    python,
    session_with,
    shell,
    vanished,
)
from trio_mcp import (
    BaseSession,
    ProcessExited,
    SessionMessage,
    SessionOptions,
    StdioServerParameters,
    TransportError,
    stdio_client,
)
from trio_mcp.jsonrpc.messages import Failure, Incoming, Notification, Request, Response
from trio_mcp.stdio.client import EXIT_MOMENT

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
    assert isinstance(received[-1], Failure)


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
    assert isinstance(lost, Failure)
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
