"""NDJSON between byte streams and a session's channels, and the streams over descriptors."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import logging
import os
import pty
import socket
import tracemalloc
import tty
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.transports.support import Recorder
from trio_mcp import TransportError
from trio_mcp._nursery import background_nursery
from trio_mcp.direct_channel import BURST, open_direct_channel
from trio_mcp.jsonrpc.codec import LineDecoder
from trio_mcp.jsonrpc.messages import Incoming, Notification, Request, Response, TransportFailure
from trio_mcp.lines import CHUNK, HasFileno, LineSender, PipeReader, read_lines, read_socket
from trio_mcp.link import BUFFER
from trio_mcp.low_level import SessionMessage
from trio_mcp.stdio.standard_streams import SharedStream, is_pollable
from trio_mcp.text_sender import MAX_WAITING

CHANNEL = 10_000


class Writing:
    """The sending half of a link, what surrounds it, and a pipe if there is one."""

    def __init__(self, stream: trio.abc.SendStream, file: HasFileno | None = None) -> None:
        self.stream = stream
        inbound, self.read = trio.open_memory_channel[SessionMessage](CHANNEL)
        self.sender = LineSender(inbound, file)

    def put(self, *messages: Incoming) -> None:
        for message in messages:
            self.sender.send_nowait(SessionMessage(message))

    async def send(self, *messages: Incoming) -> None:
        for message in messages:
            await self.sender.send(SessionMessage(message))

    async def run(self) -> None:
        await self.sender.write(self.stream.send_all)

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
    """Bulk is written in pieces: what one write holds in memory is bounded in bytes, plus one message."""
    size = 10_000
    writing = Writing(stream := Recorder())
    async with trio.open_nursery() as nursery:
        for _ in range(BUFFER):
            nursery.start_soon(writing.send, Notification("m", {"x": "x" * size}))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(writing.run)
        await trio.testing.wait_all_tasks_blocked()
        writing.sender.close()
    assert max(map(len, stream.written)) < MAX_WAITING + 2 * size
    assert len(stream.lines()) == BUFFER


async def test_a_message_that_cannot_be_encoded_affects_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """A request fails its own call, a result becomes an error response, a notification is logged; the rest is sent."""
    bad = {"half": "\ud800"}
    writing = Writing(stream := Recorder())
    await writing.send(
        Notification("first"), Request(1, "bad", bad), Response(2, bad), Notification("bad", bad), Notification("last")
    )
    writing.sender.close()
    await writing.run()
    assert [line.get("method") or line["error"]["code"] for line in stream.lines()] == ["first", -32603, "last"]
    (failure,) = writing.reported()
    assert isinstance(failure, TransportFailure)
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


@pytest.mark.parametrize("size", [1, 1000, MAX_WAITING - 1000, 3 * MAX_WAITING])
async def test_a_stream_that_blocks_holds_a_bounded_number_of_bytes(size: int) -> None:
    """The writer takes one burst and waits: senders wait in turn, for room in bytes. A long message passes alone."""
    writing = Writing(Recorder(trio.sleep_forever))
    accepted = 0
    async with background_nursery() as nursery:
        nursery.start_soon(writing.run)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(trio.WouldBlock):
            while accepted < 10_000:
                writing.put(Notification("m", {"x": "x" * size}))
                accepted += 1
                if accepted == 1:
                    await trio.testing.wait_all_tasks_blocked()
    # What the task is writing, what fills the room, and at most one that had some room.
    assert 2 <= accepted <= 2 + MAX_WAITING // size


async def test_senders_that_wait_for_room_end_with_the_link() -> None:
    """Closed by us or lost: a sender that waits must not wait forever, and learns which of the two it was."""
    for end, error in (("close", trio.ClosedResourceError), ("refuse", trio.BrokenResourceError)):
        writing = Writing(Recorder())
        writing.put(Notification("m", {"x": "x" * MAX_WAITING}))
        ended = 0

        async def send(writing: Writing = writing, error: type[Exception] = error) -> None:
            nonlocal ended
            with pytest.raises(error):
                await writing.send(Notification("late"))
            ended += 1

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(send)
                nursery.start_soon(send)
                await trio.testing.wait_all_tasks_blocked()
                assert not ended
                getattr(writing.sender, end)()
        assert ended == 2


async def test_a_refusal_wakes_the_writer() -> None:
    """The reader has found that the link is lost: the task that writes ends, though nothing was sent."""
    writing = Writing(Recorder())

    async def write() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await writing.run()

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await trio.testing.wait_all_tasks_blocked()
            writing.sender.refuse()


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


# --- lines that are written at once ----------------------------------------------------------------------------------

ROOM = 4096
"""Bytes that the pipe of a test holds: a page, the least that there is (pipe(7))."""


class Piped:
    """A `LineSender` on a small pipe, whose writer waits for something to do."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, ROOM)
        os.set_blocking(self.reader, False)
        self.stream = trio.lowlevel.FdStream(writer)
        self.writing = Writing(self.stream, self.stream)
        self.raised: list[BaseException] = []
        self.sent = 0
        self.scope = trio.CancelScope()
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        try:
            with self.scope:
                await self.writing.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self.raised.append(exc)
        if not self.scope.cancel_called:
            self.stream.close()

    def put(self, size: int = 0) -> None:
        self.writing.put(Notification("m", {"n": self.sent, "x": "x" * size}))
        self.sent += 1

    def take(self) -> bytes:
        """Return what is in the pipe."""
        try:
            return os.read(self.reader, 10 * ROOM)
        except BlockingIOError:
            return b""

    async def take_all(self) -> bytes:
        """Return everything that can be written, as it is read."""
        found = b""
        while True:
            await trio.testing.wait_all_tasks_blocked()
            if not (piece := self.take()):
                return found
            found += piece


@pytest.fixture
async def piped() -> AsyncIterator[Piped]:
    async with background_nursery() as nursery:
        piped = Piped(nursery)
        await trio.testing.wait_all_tasks_blocked()
        try:
            yield piped
        finally:
            piped.stream.close()
            with contextlib.suppress(OSError):
                os.close(piped.reader)


def numbers(data: bytes) -> list[int]:
    assert not data or data.endswith(b"\n")
    return [json.loads(line)["params"]["n"] for line in data.splitlines()]


async def test_a_line_is_written_at_once_if_nothing_waits(piped: Piped) -> None:
    """No turn of the loop between a response and the client."""
    for n in range(3):
        piped.put()
        assert numbers(piped.take()) == [n]


async def test_lines_that_will_be_followed_by_others_are_joined(piped: Piped) -> None:
    """Requests that came together: their responses are worth one system call."""
    inbound, _ = open_direct_channel(BUFFER)
    line = b'{"jsonrpc":"2.0","method":"m"}\n'
    for together in (2, 1):
        chunks = iter([line * together, b""])

        async def receive(chunks: Any = chunks) -> bytes:
            return next(chunks)

        await read_lines(receive, LineDecoder(), inbound, piped.writing.sender)
        piped.put()
        assert bool(piped.take()) == (together == 1)
        assert bool(await piped.take_all()) == (together > 1)


@pytest.mark.parametrize("size", [ROOM - 100, 3 * ROOM, CHUNK, 3 * CHUNK])
async def test_what_a_pipe_does_not_take_is_written_before_what_is_sent_later(piped: Piped, size: int) -> None:
    """Whole lines in the order of sending, however little of the first one the system took."""

    async def send() -> None:
        for n, later in enumerate((size, 0, 0, ROOM, 0)):
            await piped.writing.send(Notification("m", {"n": n, "x": "x" * later}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        data = await piped.take_all()
    assert numbers(data) == [0, 1, 2, 3, 4]
    # Nothing waits any more, so the next one goes at once again.
    piped.put()
    assert numbers(piped.take()) == [0]


async def test_a_peer_that_does_not_read_stops_the_senders(piped: Piped) -> None:
    """What waits is bounded, and nothing is lost or out of order once the peer reads again."""
    with pytest.raises(trio.WouldBlock):
        while piped.sent < 1000:
            piped.put(ROOM // 4)
            await trio.testing.wait_all_tasks_blocked()
    # What the pipe took, what the task is writing, and what waits.
    assert piped.sent <= 4 + CHUNK // (ROOM // 4) + 1 + MAX_WAITING // (ROOM // 4) + 1
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(piped.writing.sender.send, SessionMessage(Notification("never")))
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert numbers(await piped.take_all()) == list(range(piped.sent))


async def test_a_peer_that_is_gone_is_found_by_the_writer(piped: Piped) -> None:
    """A send does not fail; the transport reports the loss, and refuses what follows."""
    os.close(piped.reader)
    piped.put()
    assert not piped.raised
    await trio.testing.wait_all_tasks_blocked()
    (raised,) = piped.raised
    assert isinstance(raised.__cause__, BrokenPipeError)
    piped.writing.sender.refuse()
    with pytest.raises(trio.BrokenResourceError):
        piped.put()


@pytest.mark.parametrize("size", [0, 3 * ROOM])
async def test_after_a_close_what_was_sent_is_written_and_nothing_else(piped: Piped, size: int) -> None:
    """Closing ends the sending side once everything sent before has been written."""
    piped.put(size)
    piped.put()
    piped.writing.sender.close()
    with pytest.raises(trio.ClosedResourceError):
        piped.put()
    with pytest.raises(trio.ClosedResourceError):
        await piped.writing.sender.send(SessionMessage(Notification("m")))
    assert numbers(await piped.take_all()) == [0, 1]
    assert os.read(piped.reader, 1) == b""  # its end


async def test_after_a_refusal_nothing_is_written(piped: Piped) -> None:
    """The link is lost, though the system might still take what is sent."""
    piped.writing.sender.refuse()
    with pytest.raises(trio.BrokenResourceError):
        piped.put()
    with pytest.raises(trio.BrokenResourceError):
        await piped.writing.sender.send(SessionMessage(Notification("m")))
    assert piped.take() == b""


async def test_without_its_writer_nothing_is_written_at_once(piped: Piped) -> None:
    """A rest that the system does not take would never follow, and the peer would see half a line."""
    piped.scope.cancel()
    await trio.testing.wait_all_tasks_blocked()
    piped.put()
    assert piped.take() == b""


async def test_a_message_that_cannot_be_encoded_does_not_fail_its_sender(piped: Piped) -> None:
    """Reporting may have to wait, so a send that does not wait says that there is no room; the next one is written."""
    bad = Request(1, "bad", {"half": "\ud800"})
    with pytest.raises(trio.WouldBlock):
        piped.writing.put(bad)
    assert not piped.writing.reported()
    await piped.writing.send(bad)
    piped.put()
    assert numbers(await piped.take_all()) == [0]
    (failure,) = piped.writing.reported()
    assert isinstance(failure, TransportFailure)
    assert failure.request_id == 1


async def test_cancelling_at_any_step_leaves_whole_lines_and_at_most_one_cut_short() -> None:
    """A send that is cancelled has sent nothing; the writer that is cancelled stops in the middle of one line."""
    returned = 0
    data = b""

    async def scenario() -> None:
        nonlocal returned, data
        returned, data = 0, b""
        async with background_nursery() as nursery:
            piped = Piped(nursery)
            try:
                for n, size in enumerate((0, 2 * ROOM, 0, ROOM, 0, 0)):
                    message = Notification("m", {"n": n, "x": "x" * size})
                    await piped.writing.sender.send(SessionMessage(message))
                    returned += 1
                    data += piped.take()
                piped.writing.sender.close()
                while not piped.stream.fileno() < 0:
                    data += piped.take()
                    await trio.lowlevel.checkpoint()
            finally:
                data += piped.take()
                piped.stream.close()
                os.close(piped.reader)

    async def after() -> None:
        whole = data[: data.rfind(b"\n") + 1]
        assert numbers(whole) == list(range(whole.count(b"\n")))
        assert whole.count(b"\n") <= returned

    assert await cancel_everywhere(scenario, after) > 10
    assert numbers(data) == list(range(6))


async def test_a_flood_does_not_starve_other_tasks() -> None:
    """A peer that sends as fast as it can: other tasks run after each burst, though the session never waits."""
    taken: list[SessionMessage] = []
    seen: list[int] = []

    class Flood(trio.abc.ReceiveStream):
        left = 5

        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            await trio.lowlevel.checkpoint()
            self.left -= 1
            return b'{"jsonrpc":"2.0","method":"m"}\n' * 1000 if self.left else b""

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    async def other() -> None:
        while True:
            seen.append(len(taken))
            await trio.lowlevel.checkpoint()

    inbound, read = open_direct_channel(BUFFER)
    async with background_nursery() as nursery:
        nursery.start_soon(read.deliver_to, taken.append)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other)
        await read_lines(Flood().receive_some, LineDecoder(), inbound, LineSender(inbound))
        while len(taken) < 4000:
            await trio.lowlevel.checkpoint()
    # A burst as it is read, and one that waited; and Trio may give one task two turns between two of another.
    assert max(later - earlier for earlier, later in itertools.pairwise([0, *seen])) <= 4 * BURST


async def test_messages_that_come_one_by_one_never_wait() -> None:
    """Each read is a checkpoint, so each begins a new burst: a session acts on each message as it is read."""
    taken: list[SessionMessage] = []
    reads = 0

    async def receive() -> bytes:
        nonlocal reads
        await trio.lowlevel.checkpoint()
        assert len(taken) == reads
        reads += 1
        return b'{"jsonrpc":"2.0","method":"m"}\n' if reads <= 3 * BURST else b""

    inbound, read = open_direct_channel(BUFFER)
    async with background_nursery() as nursery:
        nursery.start_soon(read.deliver_to, taken.append)
        await trio.testing.wait_all_tasks_blocked()
        await read_lines(receive, LineDecoder(), inbound, LineSender(inbound))


async def test_a_stream_that_takes_everything_does_not_starve_other_tasks() -> None:
    """The writer never waits for such a stream, but lets other tasks run between its writes."""

    class Null:
        writes = 0

        def fileno(self) -> int:
            self.writes += 1
            return fd

    async def other() -> None:
        while True:
            seen.append(null.writes)
            await trio.lowlevel.checkpoint()

    null, seen = Null(), list[int]()
    fd = os.open(os.devnull, os.O_WRONLY)
    writing = Writing(Recorder(), null)
    async with background_nursery() as nursery:
        for _ in range(3 * BUFFER):
            nursery.start_soon(writing.sender.send, SessionMessage(Notification("m", {"x": "x" * CHUNK})))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(other)
        nursery.start_soon(writing.run)
        while null.writes < 3 * BUFFER:
            await trio.lowlevel.checkpoint()
    os.close(fd)
    assert max(later - earlier for earlier, later in itertools.pairwise(seen)) <= 2


async def test_reading_stops_when_the_session_has_gone() -> None:
    """A closed session ends the reader, which would otherwise read on for no one."""
    ours, theirs = trio.testing.memory_stream_one_way_pair()
    inbound, read = open_direct_channel(0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read_lines, theirs.receive_some, LineDecoder(), inbound, LineSender(inbound))
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
        nursery.start_soon(read_lines, Endless().receive_some, LineDecoder(), inbound, LineSender(inbound))
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
            await read_lines(theirs.receive_some, LineDecoder(), inbound, LineSender(inbound))
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


async def test_a_socket_closed_as_its_bytes_arrive_is_not_read_by_its_number() -> None:
    """The number of a closed descriptor may belong to another file at once."""
    ours, theirs = (trio.socket.from_stdlib_socket(end) for end in socket.socketpair())
    number = ours.fileno()
    reader, writer = os.pipe()
    os.write(writer, b"of another file")

    async def read() -> None:
        with pytest.raises(trio.ClosedResourceError):
            await read_socket(ours)

    class Closing(trio.abc.Instrument):
        """Closes the socket between the end of the wait and the reader's next step."""

        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            if task.name == "reader" and ours.fileno() >= 0:
                ours.close()
                os.dup2(reader, number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, name="reader")
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(closing := Closing())
        await theirs.send(b"x")
    trio.lowlevel.remove_instrument(closing)
    assert os.read(number, CHUNK) == b"of another file"
    theirs.close()
    for descriptor in (number, reader, writer):
        os.close(descriptor)


async def test_a_long_message_is_written_without_a_copy_for_its_newline() -> None:
    """Only its text is in memory while it is written, and its line ends all the same."""
    size = 4 << 20
    message = Notification("notifications/message", {"data": "x" * size})
    written: list[int] = []
    last = b""

    async def send(data: memoryview) -> None:
        nonlocal last
        written.append(len(data))
        last = bytes(data[-3:])
        await trio.lowlevel.checkpoint()

    inbound, read = open_direct_channel(BUFFER)
    sender = LineSender(inbound)
    with inbound, read:
        tracemalloc.start()
        try:
            sender.send_nowait(SessionMessage(message))
            sender.close()
            await sender.write(send)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (last, written[-2:]) == (b"\n", [written[-2], 1])
    assert sum(written) > size
    assert peak < 1.3 * size
