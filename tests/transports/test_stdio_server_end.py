"""How a stdio server ends: by the end of its input, a signal, a cancellation, or a client that has gone."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import trio
import trio.testing

from tests.peer import HANDSHAKE, ProcessPeer, call, process_peer, script
from tests.transports.support import ECHO, NOISY
from trio_mcp import SessionMessage, TransportError, stdio_server
from trio_mcp.jsonrpc.messages import Failure, Notification
from trio_mcp.stdio import server as stdio_server_module

# Seconds, wide: `benchmarks` measures how prompt it is. The tools sleep for 1000.
PROMPT = 15


def ended(wire: ProcessPeer) -> int:
    started = time.monotonic()
    status = wire.exit()
    assert time.monotonic() - started < PROMPT
    return status


def test_the_end_of_the_input_ends_an_idle_server() -> None:
    with process_peer(NOISY) as wire:
        wire.close_input()
        assert ended(wire) == 0
    assert (wire.received, wire.errors) == (b"", b"")


@pytest.mark.parametrize("tool", ["sleep_async", "sleep_sync"])
def test_the_end_of_the_input_ends_a_server_in_mid_tool(tool: str) -> None:
    """A client that has gone does not leave a process behind, whatever a tool is busy with."""
    with process_peer(NOISY) as wire:
        wire.send(call(1, tool))
        wire.wait_for_error_text("SLEEPING")
        wire.close_input()
        ended(wire)
    assert wire.received == b""


UNCANCELLABLE = """
    import sys, trio
    from trio_mcp import BaseSession, stdio_server
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


def test_a_block_left_in_time_is_spared_the_last_resort() -> None:
    """The process may go on to do something else."""
    code = """
        import time, trio
        from trio_mcp import stdio_server
        async def main():
            async with stdio_server(exit_grace=0.1) as (read, write):
                async for item in read:
                    pass
        trio.run(main)
        time.sleep(0.3)
        print("still here")
    """
    with process_peer(script(code), handshake=False) as wire:
        wire.close_input()
        assert ended(wire) == 0
    assert wire.received == b"still here\n"


@pytest.mark.parametrize("tool", [None, "sleep_async", "sleep_sync"])
def test_an_interrupt_ends_the_server_quietly(tool: str | None) -> None:
    """Ctrl-C: exit status 130, as a shell expects, and no traceback."""
    with process_peer(NOISY) as wire:
        if tool is not None:
            wire.send(call(1, tool))
            wire.wait_for_error_text("SLEEPING")
        wire.process.send_signal(signal.SIGINT)
        assert ended(wire) == 130
    assert wire.errors.strip() in (b"", b"SLEEPING")


def test_sigterm_ends_the_server() -> None:
    with process_peer(NOISY) as wire:
        wire.process.send_signal(signal.SIGTERM)
        assert ended(wire) in (-signal.SIGTERM, 128 + signal.SIGTERM)
    assert wire.errors == b""


def test_a_cancellation_with_idle_input_ends_the_block_at_once() -> None:
    """Nothing waits for the client's next line."""
    code = """
        import trio
        from trio_mcp import stdio_server
        async def main():
            with trio.move_on_after(0.05) as scope:
                async with stdio_server() as (read, write):
                    await read.receive()
            assert scope.cancelled_caught
        trio.run(main)
    """
    with process_peer(script(code), handshake=False) as wire:
        assert ended(wire) == 0  # while its input is still open
    assert wire.errors == b""


def test_leaving_the_block_with_idle_input_ends_it_at_once() -> None:
    """A server may decide to go, too; what it wrote before arrives."""
    code = """
        import trio
        from trio_mcp import SessionMessage, stdio_server
        from trio_mcp.jsonrpc.messages import Notification
        async def main():
            async with stdio_server() as (read, write):
                for n in range(50):
                    await write.send(SessionMessage(Notification("bye", {"n": n})))
        trio.run(main)
    """
    with process_peer(script(code), handshake=False) as wire:
        assert ended(wire) == 0
    assert [json.loads(line)["params"]["n"] for line in wire.received.splitlines()] == list(range(50))
    assert wire.errors == b""


def test_what_is_raised_in_the_block_leaves_it_as_the_very_object() -> None:
    code = """
        import trio
        from trio_mcp import stdio_server
        error = RuntimeError("mine")
        async def main():
            try:
                async with stdio_server() as (read, write):
                    await trio.sleep(0.01)
                    raise error
            except RuntimeError as exc:
                assert exc is error
        trio.run(main)
    """
    with process_peer(script(code), handshake=False) as wire:
        assert ended(wire) == 0
    assert wire.errors == b""


def test_a_client_that_closed_its_reading_end_ends_the_server_quietly() -> None:
    """EPIPE: no response would be read any more, so there is nothing left to do, and nothing to report."""
    with process_peer(NOISY) as wire:
        wire.close_output()
        wire.send(call(1, "echo", value=1))
        assert ended(wire) == 0  # though its input is still open
    assert wire.errors == b""


FULL = "No space left on device"


@pytest.mark.parametrize("by", ["run", "trio-mcp run"])
def test_a_full_disk_under_the_output_gives_an_exit_status(by: str, tmp_path: Path) -> None:
    """The client can't be told, so the exit status of the process has to say it."""
    source = tmp_path / "server.py"
    source.write_text(
        "from trio_mcp import Server\nserver = Server('s')\nif __name__ == '__main__':\n    server.run()\n"
    )
    command = [str(source)] if by == "run" else ["-m", "trio_mcp", "run", str(source)]
    said = b"".join(json.dumps(each).encode() + b"\n" for each in HANDSHAKE)
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, *command], input=said, stdout=full, stderr=subprocess.PIPE, timeout=PROMPT, check=False
        )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line == f"the server can't continue: standard output can't be written: [Errno 28] {FULL}"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EPIPE, errno.ECONNRESET])
def test_an_output_that_fails_is_told_from_a_client_that_has_gone(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing(trio.abc.SendStream):
        async def send_all(self, data: object) -> None:
            await trio.lowlevel.checkpoint()
            raise trio.BrokenResourceError from OSError(number, os.strerror(number))

        async def wait_send_all_might_not_block(self) -> None:
            await trio.lowlevel.checkpoint()

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    received: list[object] = []

    @contextlib.contextmanager
    def streams() -> Iterator[tuple[trio.abc.ReceiveStream, trio.abc.SendStream]]:
        there, here = trio.testing.memory_stream_one_way_pair()
        yield here, Failing()
        there.close()

    async def main() -> None:
        async with stdio_server() as (read, write):
            await write.send(SessionMessage(Notification("x")))
            received.extend([item.message async for item in read])

    monkeypatch.setattr(stdio_server_module, "private_streams", streams)
    if number in (errno.EPIPE, errno.ECONNRESET):
        trio.run(main)
    else:
        with pytest.raises(TransportError, match=f"standard output can't be written: .*{os.strerror(number)}"):
            trio.run(main)
    (failure,) = received
    assert isinstance(failure, Failure)
    assert os.strerror(number) in str(failure.error)


def test_the_loss_of_the_output_is_told_once_and_ends_the_link() -> None:
    """`Link`: the loss arrives as a `Failure`, and after that ``read`` ends, even if the client goes on talking."""
    code = """
        import sys, trio
        from trio_mcp import SessionMessage, stdio_server
        from trio_mcp.jsonrpc.messages import Failure, Notification
        async def main():
            async with stdio_server() as (read, write):
                await read.receive()
                await write.send(SessionMessage(Notification("x")))
                print(*[type(item.message).__name__ async for item in read], file=sys.stderr)
                try:
                    while True:
                        await write.send(SessionMessage(Notification("x")))
                except trio.BrokenResourceError:
                    print("broken", file=sys.stderr)
        trio.run(main)
    """
    with process_peer(script(code), handshake=False) as wire:
        wire.close_output()
        wire.send({"jsonrpc": "2.0", "method": "m"})
        assert ended(wire) == 0
    assert wire.errors.splitlines() == [b"Failure", b"broken"]


def test_a_client_that_never_reads_costs_bounded_memory_and_can_still_end_it() -> None:
    """Answers wait in the pipe and in bounded queues; requests are then refused or wait in the pipe, too."""
    request = json.dumps(call(1, "big", size=10_000)).encode() + b"\n"
    with process_peer(NOISY) as wire:
        process = psutil.Process(wire.process.pid)
        before = process.memory_info().rss
        os.set_blocking(wire.send_fd, False)
        sent, deadline = 0, time.monotonic() + 3
        while sent < 20_000 and time.monotonic() < deadline:
            try:
                os.write(wire.send_fd, request.replace(b'"id": 1,', b'"id": %d,' % (sent + 1)))
                sent += 1
            except BlockingIOError:
                time.sleep(0.01)
        time.sleep(0.2)
        grown = process.memory_info().rss - before
        wire.close_input()
        # Its output is not read while it ends.
        assert wire.process.wait(PROMPT) == 0
    assert sent > 500
    assert grown < 100_000_000  # all the answers would be more than a pipe takes, and less than a leak makes


def test_a_client_that_never_reads_does_not_keep_sigterm_from_working() -> None:
    with process_peer(NOISY) as wire:
        wire.send(*[call(n, "big", size=10_000) for n in range(1, 100)])
        time.sleep(0.2)
        wire.process.send_signal(signal.SIGTERM)
        assert wire.process.wait(PROMPT) == -signal.SIGTERM


def test_serving_twice_at_once_is_an_error_and_again_later_is_not() -> None:
    """The second attempt leaves the first alone; when that has ended the streams are free again."""
    code = """
        import sys, trio
        from trio_mcp import SessionMessage, stdio_server
        from trio_mcp.errors import LocalProtocolError
        from trio_mcp.jsonrpc.messages import Notification
        async def main():
            for name in ("first", "again"):
                async with stdio_server() as (read, write):
                    try:
                        async with stdio_server():
                            print("no error", file=sys.stderr)
                    except LocalProtocolError as exc:
                        assert "already" in str(exc), exc
                    await write.send(SessionMessage(Notification(name)))
        trio.run(main)
    """
    with process_peer(script(code), handshake=False) as wire:
        assert ended(wire) == 0
    assert [json.loads(line)["method"] for line in wire.received.splitlines()] == ["first", "again"]
    assert wire.errors == b""


def test_cancellation_at_every_step_leaves_the_streams_as_they_were() -> None:
    """Each time the descriptors are restored, none is left open, and the streams can be served again."""
    code = """
        import os, sys, trio
        from tests.transports.support import cancelled_at_every_step, open_descriptors
        from trio_mcp import SessionMessage, stdio_server
        from trio_mcp.jsonrpc.messages import Notification
        def state():
            return [os.get_blocking(0), os.get_blocking(1), open_descriptors()]
        async def scenario():
            async with stdio_server() as (read, write):
                for _ in range(3):
                    await write.send(SessionMessage(Notification("x")))
                with trio.move_on_after(0):
                    await read.receive()
        async def main():
            await trio.to_thread.run_sync(int)
            before = state()
            async def after():
                assert state() == before, (state(), before)
            steps = await cancelled_at_every_step(scenario, after)
            assert steps > 5, steps
        trio.run(main)
    """
    root = Path(__file__).parents[2]  # for the `tests` that the code imports
    command = script(f"import sys; sys.path.insert(0, {str(root)!r})\n{textwrap.dedent(code)}")
    with process_peer(command, handshake=False) as wire:
        assert ended(wire) == 0, wire.errors.decode()
    assert wire.errors == b""


def test_the_handshake_alone_then_the_end() -> None:
    """A client that connects and goes again leaves status 0 and no output."""
    with process_peer(NOISY, handshake=False) as wire:
        wire.send(*HANDSHAKE)
        wire.close_input()
        assert ended(wire) == 0
    assert wire.errors == b""
    assert json.loads(wire.received)["id"] == 0


def test_echo_ends_with_its_input() -> None:
    with process_peer(script(ECHO), handshake=False) as wire:
        wire.close_input()
        assert ended(wire) == 0
    assert (wire.received, wire.errors) == (b"", b"")
