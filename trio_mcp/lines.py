"""Messages as lines: NDJSON over byte streams (`basic/transports/stdio`), and faster reads of pipes and sockets."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import trio

from trio_mcp._checks import check_count
from trio_mcp.direct_channel import Closeable, DirectSendChannel
from trio_mcp.jsonrpc.codec import LineDecoder, encode, encode_or_replace
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.link import BUFFER, Inbound, hand_on, report_unsent

__all__ = [
    "CHUNK",
    "CLOSE_GRACE",
    "File",
    "LineSender",
    "PipeReader",
    "check_size",
    "read_lines",
    "read_socket",
    "write_now",
]

CHUNK = 64 * 1024
"""Bytes read or written at once: the default capacity of a pipe on Linux (pipe(7)).

Messages that wait together are written together up to this size.
"""

CLOSE_GRACE = 1.0
"""Seconds that the peer may take for each `CHUNK` of the last messages. Chosen: a peer that does not read must not
delay the end, but one that reads slowly gets them all."""


async def read_lines(
    receive: Callable[[], Awaitable[bytes | bytearray]],
    decoder: LineDecoder,
    inbound: DirectSendChannel,
    outbound: LineSender,
    metadata: Mapping[str, Any] | None = None,
    chunk: bytes | bytearray = b"",
) -> None:
    """Read a stream to its end and hand every message on, as long as the session listens.

    Args:
        receive: Reads from the stream: its ``receive_some``, which is a checkpoint.
        decoder: Turns its bytes into messages.
        inbound: Where the messages go.
        outbound: The other direction, which is told how busy this one is.
        metadata: What the session is told about each of them.
        chunk: What has been read from the stream before.

    Raises:
        trio.BrokenResourceError: If the stream breaks.
    """
    while chunk := chunk or await receive():
        inbound.renew()
        # Requests that came together have their responses written together.
        outbound.joining = chunk.find(b"\n") < chunk.rfind(b"\n")
        for message in decoder.feed(chunk):
            try:
                # By far the most frequent case: there is room. A coroutine less for each message than `hand_on`.
                inbound.send_nowait(SessionMessage(message, metadata=metadata))
            except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                if not await hand_on(inbound, message, metadata):
                    return
        chunk = b""
    # A last line without its newline counts too: some peers exit without writing one.
    if (last := decoder.finish()) is not None:
        await hand_on(inbound, last, metadata)


class File(Protocol):
    """What has a descriptor: a pipe or a socket of Trio."""

    def fileno(self) -> int:
        """Return the number of the descriptor; negative once it is closed."""


def write_now(file: File, data: bytes | memoryview) -> int:
    """Write what the system takes at once, and return how many bytes that is."""
    # If it fails, the stream's own `send_all` finds out why, and waits if that helps.
    try:
        return os.write(file.fileno(), data)
    except OSError:
        return 0


class LineSender(Closeable, trio.abc.SendChannel[SessionMessage]):
    """The sending half of a link over a stream, which writes each message as a line.

    If nothing waits to be written, the task that sends a message writes it: for calls that follow each other, waking
    the task of `write` costs more than the write. Whatever the system does not take at once is left to that task.

    Args:
        file: The pipe or socket below the stream, which must not block; None for a stream without one, or one that
            encodes what it is given.

    Attributes:
        joining: Whether others will soon follow what is sent now, so that the task writes them in one go; told by
            `read_lines`.
    """

    def __init__(self, file: File | None = None) -> None:
        self.joining = False
        self._file = file
        self._queue, self._queued = trio.open_memory_channel[SessionMessage | bytes](BUFFER)
        # Whether the task waits for something to write.
        self._idle = False

    def send_nowait(self, value: SessionMessage) -> None:
        """Write a message, or let it wait in the channel.

        Raises:
            trio.WouldBlock: If the channel is full.
            trio.BrokenResourceError: If the stream is broken.
            trio.ClosedResourceError: If this half is closed.
        """
        item: SessionMessage | bytes = value
        if self._idle and self._file is not None and not self.joining:
            try:
                text = encode(value.message)
            except (TypeError, ValueError):
                pass  # the task finds out, and reports it
            else:
                # What is long takes long to write, too, and others may follow meanwhile.
                if len(text) < CHUNK:
                    # The encoded text holds no newline, so each message is one line (`basic/transports/stdio`).
                    line = text + b"\n"
                    written = self._write_now(line)
                    if written == len(line):
                        return
                    text = line[written:-1]
                item = text
        self._queue.send_nowait(item)
        self._idle = False

    async def send(self, value: SessionMessage) -> None:
        """Write a message, or wait for room in the channel. If cancelled, it has not been sent.

        Raises:
            trio.BrokenResourceError: If the stream is broken.
            trio.ClosedResourceError: If this half is closed.
        """
        await trio.lowlevel.checkpoint()
        try:
            self.send_nowait(value)
        except trio.WouldBlock:
            await self._queue.send(value)

    def close(self) -> None:
        """Close this half: `write` ends once everything sent before has been written."""
        self._queue.close()
        self._idle = False

    def refuse(self) -> None:
        """Drop what waits, and refuse what follows, because nothing can be written any more."""
        self._queued.close()
        self._idle = False

    def _write_now(self, data: bytes | memoryview) -> int:
        """Write what the system takes at once, and return how many bytes that is."""
        return 0 if self._file is None else write_now(self._file, data)

    async def write(
        self, send: Callable[[memoryview], Awaitable[None]], inbound: Inbound, limit: trio.CancelScope | None = None
    ) -> None:
        """Write what can't be written at once, until the session closes its side; the task of a transport.

        Args:
            send: Writes to the stream: its ``send_all``.
            inbound: The channel to the session, for requests that can't be encoded.
            limit: A scope whose deadline is extended with each piece written, so that it does not expire while there is
                progress.

        Raises:
            trio.BrokenResourceError: If the stream breaks.
        """
        try:
            while True:
                for part in await self._next_lines(inbound):
                    rest = memoryview(part)
                    # What the system takes at once, and then a piece, so that a slow reader shows its progress: a wait
                    # for each piece would cost a long message up to a quarter of its time.
                    while rest := rest[self._write_now(rest) :]:
                        await send(rest[:CHUNK])
                        rest = rest[CHUNK:]
                        if limit is not None:
                            limit.deadline = trio.current_time() + CLOSE_GRACE
        except trio.EndOfChannel:
            pass
        finally:
            self._idle = False  # a rest would not be written any more

    async def _next_lines(self, inbound: Inbound) -> list[bytes]:
        """Wait for a message, and return the lines of all that wait together: one system call for many small ones."""
        item: SessionMessage | bytes | None
        try:
            item = self._queued.receive_nowait()
        except trio.WouldBlock:
            # Not earlier: until here, something waited or was being written.
            self._idle = True
            item = await self._queued.receive()
        else:
            await trio.lowlevel.checkpoint()
        parts: list[bytes] = []
        size = 0
        while item is not None:
            try:
                # Bytes are what the system did not take at once, encoded already.
                text: bytes | None = item if isinstance(item, bytes) else encode(item.message)
            except ValueError:
                assert not isinstance(item, bytes)
                text = await self._replaced(item, inbound)
            if text is not None:
                parts += text, b"\n"
                size += len(text)
            item = self._waiting() if size < CHUNK else None
        # Only the last text can be long, which is not copied for the sake of its newline.
        return [b"".join(parts)] if size < 2 * CHUNK else [b"".join(parts[:-2]), *parts[-2:]]

    async def _replaced(self, item: SessionMessage, inbound: Inbound) -> bytes | None:
        """Report a message that can't be encoded, and return the text that is written in its place, if any."""
        # Rare, so encoding a second time costs nothing that matters.
        data, problem = encode_or_replace(item.message)
        if problem is not None:
            await report_unsent(item, problem, inbound)
        return data

    def _waiting(self) -> SessionMessage | bytes | None:
        try:
            return self._queued.receive_nowait()
        except (trio.WouldBlock, trio.EndOfChannel):
            return None


async def read_socket(socket: trio.socket.SocketType) -> bytes:
    """Return the next bytes of a socket, at most a `CHUNK`; none at the end.

    Raises:
        trio.BrokenResourceError: If the connection breaks.
        trio.ClosedResourceError: If it was closed here.
    """
    # It waits first, for the reason that `PipeReader` has. Ask for the descriptor each time, also after the wait, whose
    # end another task may overtake: that of a closed socket is -1, and its number may belong to another file by now.
    while (fd := socket.fileno()) >= 0:
        await trio.lowlevel.wait_readable(fd)
        if socket.fileno() < 0:
            break
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            continue
        except OSError as exc:
            raise trio.BrokenResourceError from exc
    raise trio.ClosedResourceError("this stream was closed")


def check_size(max_bytes: int | None) -> None:
    """Check the argument of `receive_some` as trio does."""
    # Streams must refuse the same arguments as trio's own (`trio.testing.check_one_way_stream`).
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)


class PipeReader(trio.abc.ReceiveStream):
    """The reading side of an `FdStream`, for a peer that sends one message at a time; the `FdStream` owns it."""

    # `FdStream` yields to other tasks, tries a read that fails, and then waits. This class waits first, which saves a
    # scheduler step and a failing system call for each message: a tenth of the cost of the link when calls come one
    # after the other.

    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None:
            check_size(max_bytes)
        while True:  # noqa: ASYNC913 - the thread is one
            # After `close` the number is negative, and could belong to another file by now if it were kept.
            if (fd := self._stream.fileno()) < 0:
                raise trio.ClosedResourceError("this stream was closed")
            await trio.lowlevel.wait_readable(fd)
            try:
                return self.receive_nowait(max_bytes)
            except trio.WouldBlock:
                continue  # another reader of the same pipe was faster

    def receive_nowait(self, max_bytes: int | None = None) -> bytes:
        """Read what is available, or raise `trio.WouldBlock`."""
        if (fd := self._stream.fileno()) < 0:
            raise trio.ClosedResourceError("this stream was closed")
        try:
            return os.read(fd, max_bytes or CHUNK)
        except BlockingIOError:
            raise trio.WouldBlock from None
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    def close(self) -> None:
        self._stream.close()

    async def aclose(self) -> None:
        await self._stream.aclose()
