"""A stdio server: only messages on the wire, whatever runs in the process; and how it ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import textwrap
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from tests.peer import HANDSHAKE, ProcessPeer, call, ndjson, process_peer, script
from tests.transports.support import NOISY, Recorder, run
from trio_mcp import TransportError
from trio_mcp.jsonrpc.messages import Notification, TransportFailure
from trio_mcp.lines import CHUNK, CLOSE_GRACE
from trio_mcp.low_level import SessionMessage, stdio_server
from trio_mcp.stdio import server as stdio_server_module

# --- the wire ------------------------------------------------------------------------------------------------------


NOISES = ["print", "unflushed", "buffer", "original", "descriptor", "child", "shell", "inherited", "logging"]


@pytest.fixture(scope="module")
def server() -> Iterator[ProcessPeer]:
    """One server for all: each piece of noise and garbage leaves it as it was, and its output empty."""
    with process_peer(NOISY) as wire:
        yield wire
        wire.close_input()
        assert wire.exit() == 0
        assert wire.received == b""


def test_no_noise_reaches_the_wire(server: ProcessPeer) -> None:
    """Whatever prints, in this process or a child of it, finds standard error in place of standard output."""
    for number, how in enumerate(NOISES, 1):
        assert server.call("make_noise", how=how) == "done"
        if how != "unflushed":
            server.wait_for_error_text("NOISE\n" * number if how == "print" else "NOISE")
    assert server.errors.count(b"NOISE") >= len(NOISES) - 1


def test_tools_and_their_children_read_nothing_from_the_wire(server: ProcessPeer) -> None:
    """Standard input is empty for them: a tool that reads it must not swallow the next request."""
    for how in ("descriptor", "child", "file"):
        server.send(call("read", "read_input", how=how), call("next", "echo", value=how))
        answers = {answer["id"]: answer for answer in (server.receive(), server.receive())}
        assert answers["read"]["result"]["structuredContent"] == {"result": ""}
        assert answers["next"]["result"]["structuredContent"] == {"result": how}


@pytest.mark.parametrize(
    ("garbage", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', -32700, 7),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[1]}', -32602, 7),
        (b"[" * 100_000, -32700, None),
        *((answer, None, None) for answer in (b'{"id":9,"result":{}}', b'{"jsonrpc":"2.0","id":9,"result":')),
        *(
            (b'{"jsonrpc":"2.0","method":"notifications/%s","params":[]}' % name, None, None)
            for name in (b"x", b"progress")
        ),
    ],
)
def test_garbage_is_answered_if_possible_and_affects_nothing_else(
    garbage: bytes, code: int | None, request_id: int | None, server: ProcessPeer
) -> None:
    """JSON-RPC 2.0, section 5.1: an error response, with the id if it could be read; then the session goes on.

    Unexpected responses and malformed notifications are not answered: that could go on forever.
    """
    server.send(garbage + b"\n", call("next", "echo", value=1))
    answers = {answer.get("id"): answer for answer in [server.receive() for _ in range(1 if code is None else 2)]}
    assert answers.pop("next")["result"]["structuredContent"] == {"result": 1}
    assert {key: answer["error"]["code"] for key, answer in answers.items()} == (
        {} if code is None else {request_id: code}
    )


# Without a server: a size limit, and what the process prints around the block. Every request comes back as a result.
LINK = """
    print("before")
    import trio
    from trio_mcp.low_level import SessionMessage, stdio_server
    from trio_mcp.jsonrpc.messages import Malformed, Request, Response
    async def main():
        async with stdio_server(max_message_size=2000) as (read, write):
            print("within")
            async for item in read:
                match item.message:
                    case Request(id, _, params):
                        await write.send(SessionMessage(Response(id, params)))
                    case Malformed(_, said, id):
                        await write.send(SessionMessage(Response(id, {"said": said})))
    trio.run(main)
    print("after")
"""


def test_what_is_printed_before_in_and_after_the_block_and_what_is_too_long_stay_apart_from_the_wire() -> None:
    """A message over the limit is known by its id, wherever in the message that is; what follows is read as usual."""

    def request(request_id: int, text: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": request_id, "method": "m", "params": {"text": text}}

    id_last = {"jsonrpc": "2.0", "method": "m", "params": {"text": "x" * 100_000}, "id": 3}
    result = run(script(LINK), ndjson(request(1, "ü"), request(2, "x" * 1_000_000), id_last, request(4, "\u2028")))
    first, *lines, last = result.stdout.splitlines()
    assert (first, last, result.stderr, result.returncode) == (b"before", b"after", b"within\n", 0)
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, lines)}
    assert (answers[1], answers[4]) == ({"text": "ü"}, {"text": "\u2028"})
    assert all("max_message_size=2000" in answers[number]["said"] for number in (2, 3))


def test_requests_piped_in_one_go_are_all_answered_before_the_exit() -> None:
    """``printf ... | server``: the end of the input does not cut off what is quick; the last line needs no newline."""
    count = 300
    result = run(NOISY, ndjson(*HANDSHAKE, *[call(n, "echo", value=n) for n in range(1, count + 1)]).rstrip(b"\n"))
    answers = {answer["id"]: answer for answer in map(json.loads, result.stdout.splitlines())}
    assert set(answers) == set(range(count + 1))
    assert all(answers[n]["result"]["structuredContent"] == {"result": n} for n in range(1, count + 1))
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_large_answer_leaves_whole_before_the_exit() -> None:
    """More than any pipe holds, to a client that takes a moment before it reads."""
    size = 5_000_000
    with process_peer(NOISY) as wire:
        wire.send(call(1, "big", size=size))
        wire.close_input()
        answer = wire.receive()
        assert len(answer["result"]["structuredContent"]["result"]) == size
        assert wire.exit() == 0


# --- the end -------------------------------------------------------------------------------------------------------


# Seconds, wide: `benchmarks` measures how prompt it is. The tools sleep for 1000.
PROMPT = 15


def ended(wire: ProcessPeer) -> int:
    started = time.monotonic()
    status = wire.exit()
    assert time.monotonic() - started < PROMPT
    return status


# --- processes ------------------------------------------------------------------------------------------------------


def begin(wire: ProcessPeer, tool: str | None) -> None:
    """Call a tool, if there is one, and wait until it runs."""
    if tool is not None:
        wire.send(call(1, tool))
        wire.wait_for_error_text("SLEEPING")


@pytest.mark.parametrize("tool", [None, "sleep_async", "sleep_sync"])
def test_the_end_of_the_input_ends_the_server(tool: str | None) -> None:
    """A client that has gone does not leave a process behind, whatever a tool is busy with."""
    with process_peer(NOISY) as wire:
        begin(wire, tool)
        wire.close_input()
        assert ended(wire) == 0 or tool == "sleep_sync"
    assert wire.received == b""
    assert tool is not None or wire.errors == b""


@pytest.mark.parametrize("tool", [None, "sleep_sync"])
def test_an_interrupt_ends_the_server_quietly(tool: str | None) -> None:
    """Ctrl-C: exit status 130, as a shell expects, and no traceback."""
    with process_peer(NOISY) as wire:
        begin(wire, tool)
        wire.process.send_signal(signal.SIGINT)
        assert ended(wire) == 130
    assert wire.errors.strip() in (b"", b"SLEEPING")


def test_a_server_in_the_background_of_a_shell_ignores_an_interrupt_and_ends_on_sigterm() -> None:
    """A shell starts what it puts into the background so; docs/how-to/serving.md says it."""
    with process_peer(["sh", "-c", 'trap "" INT; exec "$@"', "sh", *NOISY]) as wire:
        wire.process.send_signal(signal.SIGINT)
        wire.send(call(1, "big", size=10))
        assert wire.receive()["id"] == 1
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(PROMPT) == -signal.SIGTERM


def test_sigterm_ends_a_server_whose_client_never_reads() -> None:
    """Answers wait in the pipe and in bounded queues (`tests/session/test_limits.py` measures them)."""
    with process_peer(NOISY) as wire:
        wire.send(*[call(n, "big", size=10_000) for n in range(1, 100)])
        waiting = bytearray(4)
        deadline = time.monotonic() + PROMPT
        while int.from_bytes(waiting, sys.byteorder) < 60_000 and time.monotonic() < deadline:  # until the pipe is full
            fcntl.ioctl(wire.process.stdout.fileno(), termios.FIONREAD, waiting)  # type: ignore[union-attr]
            time.sleep(0.005)
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(PROMPT) == -signal.SIGTERM


UNCANCELLABLE = """
    import sys, trio
    from trio_mcp.low_level import BaseSession, stdio_server
    async def handler(params, context):
        print("SLEEPING", file=sys.stderr, flush=True)
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)
    async def main():
        async with stdio_server(exit_grace=0.3) as link, BaseSession(*link) as session:
            session.add_request_handler("shield", handler)
            await session.wait_closed()
    trio.run(main)
"""


@pytest.mark.parametrize("how", ["shield", "closed output"])
def test_a_tool_that_cannot_be_cancelled_ends_with_the_process(how: str) -> None:
    """``exit_grace``: with the client gone, a shielded handler does not keep the process for as long as it likes."""
    with process_peer(script(UNCANCELLABLE), handshake=False) as wire:
        wire.send({"jsonrpc": "2.0", "id": 1, "method": "shield"})
        wire.wait_for_error_text("SLEEPING")
        if how == "closed output":
            wire.close_output()
            wire.send({"jsonrpc": "2.0", "id": 2, "method": "ping"})
        else:
            wire.close_input()
        assert ended(wire) == 1
    assert b"the client has left" in wire.errors


def test_a_client_that_closed_its_reading_end_ends_the_server_quietly() -> None:
    """EPIPE: no response would be read any more, so there is nothing left to do, and nothing to report."""
    with process_peer(NOISY) as wire:
        wire.close_output()
        wire.send(call(1, "echo", value=1))
        assert ended(wire) == 0  # though its input is still open
    assert wire.errors == b""


@pytest.mark.parametrize("by", ["run", "trio-mcp run"])
def test_a_full_disk_under_the_output_gives_an_exit_status(by: str, tmp_path: Path) -> None:
    """The client can't be told, so the exit status of the process has to say it."""
    source = tmp_path / "server.py"
    source.write_text(
        "from trio_mcp import Server\nserver = Server('s')\nif __name__ == '__main__':\n    server.run()\n"
    )
    command = [str(source)] if by == "run" else ["-m", "trio_mcp", "run", str(source)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, *command],
            input=ndjson(*HANDSHAKE),
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=PROMPT,
            check=False,
        )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    said = "the server can't continue: standard output can't be written: [Errno 28] No space left on device"
    assert line == said


def test_cancellation_at_every_step_leaves_the_streams_as_they_were() -> None:
    """Each time the descriptors are restored, none is left open, and the streams can be served again, but not twice."""
    code = """
        import os, sys, trio
        from tests.injection import cancel_everywhere
        from tests.transports.support import open_descriptors
        from trio_mcp.low_level import SessionMessage, stdio_server
        from trio_mcp.errors import LocalProtocolError
        from trio_mcp.jsonrpc.messages import Notification
        def state():
            return [os.get_blocking(0), os.get_blocking(1), open_descriptors()]
        async def scenario():
            async with stdio_server() as (read, write):
                try:
                    async with stdio_server():
                        print("no error", file=sys.stderr)
                except LocalProtocolError as exc:
                    assert "already" in str(exc), exc
                for _ in range(3):
                    await write.send(SessionMessage(Notification("x")))
                with trio.move_on_after(0):
                    await read.receive()
        async def main():
            await trio.to_thread.run_sync(int)
            before = state()
            async def after():
                assert state() == before, (state(), before)
            steps = await cancel_everywhere(scenario, after)
            assert steps > 5, steps
        trio.run(main)
    """
    root = Path(__file__).parents[2]  # for the `tests` that the code imports
    command = script(f"import sys; sys.path.insert(0, {str(root)!r})\n{textwrap.dedent(code)}")
    with process_peer(command, handshake=False) as wire:
        assert ended(wire) == 0, wire.errors.decode()
    assert wire.errors == b""


# --- in memory ------------------------------------------------------------------------------------------------------


@attrs.define
class Streams:
    """A server's standard streams, and the client's ends of them."""

    to_server: trio.testing.MemorySendStream
    from_server: trio.testing.MemoryReceiveStream
    stdin: trio.abc.ReceiveStream
    stdout: trio.abc.SendStream

    async def written(self) -> list[str]:
        """Return the methods of the messages that were written."""
        return [json.loads(line)["method"] for line in (await self.from_server.receive_some()).splitlines()]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    to_server, stdin = trio.testing.memory_stream_one_way_pair()
    stdout, from_server = trio.testing.memory_stream_one_way_pair()
    made = Streams(to_server, from_server, stdin, stdout)

    @contextlib.contextmanager
    def private_streams() -> Iterator[tuple[trio.abc.ReceiveStream, trio.abc.SendStream]]:
        yield made.stdin, made.stdout

    monkeypatch.setattr(stdio_server_module, "private_streams", private_streams)
    return made


NOTE = SessionMessage(Notification("x"))


async def test_leaving_the_block_with_idle_input_ends_it_at_once(streams: Streams) -> None:
    """Nothing waits for the client's next line, and what was written before arrives."""
    with trio.fail_after(5):
        async with stdio_server() as (_, write):
            for _n in range(50):
                await write.send(NOTE)
    assert await streams.written() == ["x"] * 50


@pytest.mark.parametrize(("takes", "gets_it"), [(0.9 * CLOSE_GRACE, True), (1000, False)])
async def test_a_slow_client_gets_the_last_messages_and_one_that_never_reads_holds_nothing_up(
    takes: float, gets_it: bool, streams: Streams, autojump_clock: trio.testing.MockClock
) -> None:
    streams.stdout = slow = Recorder(partial(trio.sleep, takes))
    async with stdio_server() as (_, write):
        await write.send(SessionMessage(Notification("x", {"x": "x" * 10 * CHUNK})))
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
    assert (sum(map(len, slow.written)) > 10 * CHUNK) == gets_it
    assert gets_it or trio.current_time() - began == pytest.approx(CLOSE_GRACE)


async def test_a_cancellation_with_idle_input_ends_the_block_at_once(streams: Streams) -> None:
    with trio.fail_after(5), trio.CancelScope() as scope:
        async with stdio_server() as (read, _):
            scope.cancel()
            await read.receive()
    assert scope.cancelled_caught


async def test_what_is_raised_in_the_block_leaves_it_as_the_very_object(streams: Streams) -> None:
    error = RuntimeError("mine")
    with pytest.raises(RuntimeError) as caught:
        async with stdio_server():
            await trio.testing.wait_all_tasks_blocked()
            raise error
    assert caught.value is error


@pytest.mark.parametrize("in_time", [True, False])
async def test_the_last_resort_is_stopped_by_leaving_the_block(
    in_time: bool, streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The countdown begins with the end of the link; a process that left the block may go on to do something else."""
    exited = trio.Event()
    token = trio.lowlevel.current_trio_token()
    monkeypatch.setattr(stdio_server_module.os, "_exit", lambda status: token.run_sync_soon(exited.set))
    with trio.fail_after(5):
        async with stdio_server(exit_grace=1000 if in_time else 0.001) as (read, _):
            await streams.to_server.aclose()
            async for _ in read:
                pass
            if not in_time:
                await exited.wait()
    assert exited.is_set() != in_time
    for timer in threading.enumerate():
        if isinstance(timer, threading.Timer):
            timer.join(5)
            assert not timer.is_alive()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.ECONNRESET])
async def test_an_output_that_fails_is_told_from_a_client_that_has_gone(number: int, streams: Streams) -> None:
    """Its loss arrives once, as a `TransportFailure`; then ``read`` ends and ``write`` is broken (`Link`)."""

    async def fail() -> None:
        raise trio.BrokenResourceError from OSError(number, os.strerror(number))

    streams.stdout = Recorder(fail)
    gone = number in (errno.EPIPE, errno.ECONNRESET)
    said = f"standard output can't be written: .*{os.strerror(number)}"
    with contextlib.nullcontext() if gone else pytest.raises(TransportError, match=said), trio.fail_after(5):
        async with stdio_server() as (read, write):
            await write.send(NOTE)
            (failure,) = [item.message async for item in read]
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await write.send(NOTE)
    assert isinstance(failure, TransportFailure)
    assert os.strerror(number) in str(failure.error)
