"""NDJSON between byte streams and a session's channels, and the streams over descriptors."""

from __future__ import annotations

import contextlib
import logging
import os
import pty
import tty
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.transports.support import Recorder
from trio_mcp import SessionMessage, TransportError
from trio_mcp._nursery import background_nursery
from trio_mcp.direct_channel import open_direct_channel
from trio_mcp.jsonrpc.codec import LineDecoder
from trio_mcp.jsonrpc.messages import Failure, Incoming, Notification, Request, Response
from trio_mcp.lines import File, LineSender, PipeReader, read_lines
from trio_mcp.link import BUFFER
from trio_mcp.stdio.standard_streams import SharedStream, is_pollable

CHANNEL = 10_000


class Writing:
    """The sending half of a link, what surrounds it, and a pipe if there is one."""

    def __init__(self, stream: trio.abc.SendStream, file: File | None = None) -> None:
        self.stream = stream
        self.sender = LineSender(file)
        self._inbound, self.read = trio.open_memory_channel[SessionMessage](CHANNEL)

    def put(self, *messages: Incoming) -> None:
        for message in messages:
            self.sender.send_nowait(SessionMessage(message))

    async def run(self) -> None:
        await self.sender.write(self.stream.send_all, self._inbound)

    def reported(self) -> list[Incoming]:
        found = []
        with contextlib.suppress(trio.WouldBlock):
            while True:
                found.append(self.read.receive_nowait().message)
        return found


async def test_small_messages_that_wait_together_are_written_together() -> None:
    """One system call carries all that is waiting, rather than one per message."""
    writing = Writing(stream := Recorder())
    writing.put(*[Notification("m", {"n": n}) for n in range(BUFFER)])
    writing.sender.close()
    await writing.run()
    assert len(stream.written) == 1
    assert [line["params"]["n"] for line in stream.lines()] == list(range(BUFFER))


async def test_a_burst_does_not_grow_without_limit() -> None:
    """Bulk is written in pieces: what one write holds in memory is bounded by the burst plus one message."""
    size = 10_000
    writing = Writing(stream := Recorder())
    writing.put(*[Notification("m", {"x": "x" * size}) for _ in range(BUFFER)])
    writing.sender.close()
    await writing.run()
    assert max(map(len, stream.written)) < 100_000
    assert len(stream.lines()) == BUFFER


async def test_a_message_that_cannot_be_encoded_affects_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """A request fails its own call, a result becomes an error response, a notification is logged; the rest is sent."""
    bad = {"half": "\ud800"}
    writing = Writing(stream := Recorder())
    writing.put(
        Notification("first"), Request(1, "bad", bad), Response(2, bad), Notification("bad", bad), Notification("last")
    )
    writing.sender.close()
    await writing.run()
    assert [line.get("method") or line["error"]["code"] for line in stream.lines()] == ["first", -32603, "last"]
    (failure,) = writing.reported()
    assert isinstance(failure, Failure)
    assert failure.request_id == 1
    assert isinstance(failure.error, TransportError)
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2


async def test_a_broken_stream_is_raised_to_the_transport() -> None:
    """The transport, which knows the cause, tells the session."""

    async def fail() -> None:
        raise trio.BrokenResourceError("gone")

    writing = Writing(Recorder(fail))
    writing.put(Notification("m"))
    with pytest.raises(trio.BrokenResourceError):
        await writing.run()


async def test_a_stream_that_blocks_holds_a_bounded_number_of_messages() -> None:
    """The writer takes one burst and waits: senders wait in turn, on a bounded channel."""
    writing = Writing(Recorder(trio.sleep_forever))
    accepted = 0
    async with background_nursery() as nursery:
        nursery.start_soon(writing.run)
        with pytest.raises(trio.WouldBlock):
            while accepted < 1000:
                writing.put(Notification("m", {"x": "x" * 1000}))
                accepted += 1
                await trio.testing.wait_all_tasks_blocked()
    assert accepted <= BUFFER + 1


async def test_cancelling_the_writer_at_any_step_writes_whole_batches_once() -> None:
    """Nothing is written twice, in another order, or with a hole before something that was written."""
    stream = Recorder()

    async def scenario() -> None:
        stream.written.clear()
        writing = Writing(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writing.run)
            for n in range(4):
                writing.put(Notification("m", {"n": n}))
                await trio.lowlevel.checkpoint()
            writing.sender.close()

    async def after() -> None:
        numbers = [line["params"]["n"] for line in stream.lines()]
        assert numbers == list(range(len(numbers)))

    assert await cancel_everywhere(scenario, after) > 5
    assert len(stream.lines()) == 4


async def test_reading_stops_when_the_session_has_gone() -> None:
    """A closed session ends the reader, which would otherwise read on for no one."""
    ours, theirs = trio.testing.memory_stream_one_way_pair()
    inbound, read = open_direct_channel(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_lines, theirs.receive_some, LineDecoder(), inbound, LineSender())
        await ours.send_all(b'{"jsonrpc":"2.0","method":"m"}\n' * 3)
        assert (await read.receive()).message == Notification("m")
        await trio.testing.wait_all_tasks_blocked()
        read.close()


async def test_a_session_that_does_not_read_stops_the_reading() -> None:
    """Back-pressure: what is not read stays in the stream, not in memory."""
    reads = 0

    class Endless(trio.abc.ReceiveStream):
        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            nonlocal reads
            await trio.lowlevel.checkpoint()
            reads += 1
            return b'{"jsonrpc":"2.0","method":"m"}\n' * 100

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    inbound, _read = open_direct_channel(250)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_lines, Endless().receive_some, LineDecoder(), inbound, LineSender())
        await trio.testing.wait_all_tasks_blocked()
        assert reads == 3
        nursery.cancel_scope.cancel()


async def test_cancelling_the_reader_at_any_step_loses_no_order() -> None:
    """The messages delivered are a prefix of those sent; the last line needs no newline."""
    delivered: list[int] = []

    async def scenario() -> None:
        delivered.clear()
        ours, theirs = trio.testing.memory_stream_one_way_pair()
        inbound, read = open_direct_channel(1)

        async def collect() -> None:
            async for item in read:
                delivered.append(item.message.params["n"])  # type: ignore[union-attr,index]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(collect)
            for n in range(4):
                await ours.send_all(b'%s{"jsonrpc":"2.0","method":"m","params":{"n":%d}}' % (b"\n" * (n > 0), n))
            await ours.aclose()
            await read_lines(theirs.receive_some, LineDecoder(), inbound, LineSender())
            inbound.close()

    async def after() -> None:
        assert delivered == list(range(len(delivered)))

    assert await cancel_everywhere(scenario, after) > 5
    assert len(delivered) == 4


# --- streams over descriptors --------------------------------------------------------------------------------------


Ends = tuple[trio.abc.SendStream, trio.abc.ReceiveStream]


def pipe_reader(reader: int, writer: int) -> Ends:
    return trio.lowlevel.FdStream(writer), PipeReader(trio.lowlevel.FdStream(reader))


def shared(reader: int, writer: int) -> Ends:
    return SharedStream(writer), SharedStream(reader)


def makers(wrap: Callable[[int, int], Ends]) -> tuple[Callable[[], Awaitable[Ends]], Callable[[], Awaitable[Ends]]]:
    async def make() -> Ends:
        return wrap(*os.pipe())

    async def make_clogged() -> Ends:
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        try:
            while True:
                os.write(writer, b"x" * 4096)
        except BlockingIOError:
            os.set_blocking(writer, True)
        return wrap(reader, writer)

    return make, make_clogged


@pytest.mark.parametrize("wrap", [pipe_reader, shared])
async def test_trios_stream_checker_passes(wrap: Callable[[int, int], Ends]) -> None:
    """Checkpoints, closing while a task waits, conflicts, wrong arguments: `trio.testing.check_one_way_stream`."""
    make, make_clogged = makers(wrap)
    with trio.fail_after(30):
        await trio.testing.check_one_way_stream(make, make_clogged)


async def test_a_shared_stream_leaves_the_mode_of_its_descriptor_alone() -> None:
    """It works in either mode, as another process may have chosen it."""
    for blocking in (True, False):
        reader, writer = os.pipe()
        os.set_blocking(reader, blocking)
        os.set_blocking(writer, blocking)
        async with SharedStream(os.dup(writer)) as sending, SharedStream(os.dup(reader)) as receiving:
            received = bytearray()

            async def receive(stream: SharedStream = receiving, received: bytearray = received) -> None:
                while len(received) < 300_000:
                    received += await stream.receive_some()

            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(receive)
                    await sending.send_all(b"x" * 300_000)
            assert (os.get_blocking(reader), os.get_blocking(writer)) == (blocking, blocking)
        os.close(reader)
        os.close(writer)


async def test_what_waits_for_a_terminal_can_be_cancelled() -> None:
    """No thread is left behind to swallow the next line, which may be meant for another reader; nor a stuck write."""
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    try:
        with trio.fail_after(30):
            async with SharedStream(os.dup(theirs)) as stream:
                with trio.move_on_after(0.05):
                    await stream.receive_some()
            os.write(ours, b"for the next one")
            assert os.read(theirs, 100) == b"for the next one"
            async with SharedStream(os.dup(theirs)) as stream:
                with trio.move_on_after(0.2) as scope:
                    await stream.send_all(b"x" * 10_000_000)
        assert scope.cancelled_caught
    finally:
        os.close(theirs)
        os.close(ours)


def test_files_terminals_and_standard_error_are_not_made_non_blocking(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    ours, theirs = pty.openpty()
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    kept = os.dup(2)
    try:
        assert is_pollable(reader)
        assert is_pollable(writer)
        assert not is_pollable(theirs)
        assert not is_pollable(file)
        os.dup2(writer, 2)
        assert not is_pollable(writer)
    finally:
        os.dup2(kept, 2)
        for fd in (reader, writer, ours, theirs, file, kept):
            os.close(fd)
