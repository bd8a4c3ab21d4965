"""Sends and receives messages as lines of NDJSON (`basic/transports/stdio`), and reads pipes and sockets fast."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

import trio

from trio_mcp._checks import check_count
from trio_mcp.direct_channel import DirectSendChannel
from trio_mcp.jsonrpc.codec import LineDecoder
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.link import Inbound, hand_on
from trio_mcp.text_sender import TextSender

__all__ = [
    "CHUNK",
    "CLOSE_GRACE",
    "HasFileno",
    "LineSender",
    "PipeReader",
    "check_size",
    "read_lines",
    "read_socket",
    "write_now",
]

CHUNK = 64 * 1024
"""The maximum number of bytes that are read or written at once: the default capacity of a pipe on Linux (pipe(7))."""

CLOSE_GRACE = 1.0
"""How many seconds the peer may take to read each `CHUNK` of the last messages (arbitrary). A peer that does not read
must not delay the end of the connection, but a slow reader gets all of the messages."""


async def read_lines(
    receive: Callable[[], Awaitable[bytes | bytearray]],
    decoder: LineDecoder,
    inbound: DirectSendChannel,
    outbound: LineSender,
    metadata: Mapping[str, Any] | None = None,
    chunk: bytes | bytearray = b"",
) -> None:
    """Read a stream to its end and pass each message to the session, as long as the session listens.

    Args:
        receive: Returns the next bytes, as the stream's ``receive_some`` does; must be a checkpoint.
        decoder: Turns the stream's bytes into messages.
        inbound: Where the messages go.
        outbound: The sending half of the link, which is told whether messages arrive several at a time.
        metadata: The transport's metadata, passed to the session with each message.
        chunk: Bytes that have already been read from the stream.

    Raises:
        trio.BrokenResourceError: If the stream breaks.
    """
    while chunk := chunk or await receive():
        inbound.renew()
        # Requests that arrived together get their responses written together.
        outbound.joining = chunk.find(b"\n") < chunk.rfind(b"\n")
        for message in decoder.feed(chunk):
            try:
                # The channel nearly always has room. Trying `send_nowait` first saves one coroutine for each message,
                # compared with `hand_on`.
                inbound.send_nowait(SessionMessage(message, metadata=metadata))
            except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                if not await hand_on(inbound, message, metadata):
                    return
            del message  # otherwise a long message would stay in memory until the next one arrives
        chunk = b""
    # A last line without a newline is read as well: some peers exit without writing the newline.
    if (last := decoder.finish()) is not None:
        await hand_on(inbound, last, metadata)


class HasFileno(Protocol):
    """An object with a descriptor: a pipe or a socket of Trio."""

    def fileno(self) -> int:
        """Return the number of the descriptor; negative once it is closed."""


def write_now(file: HasFileno, data: bytes | memoryview) -> int:
    """Write as much as the system accepts without waiting, and return the number of bytes written."""
    # A failure is not reported: the stream's own `send_all`, which is called next, finds out why, and waits if that
    # helps.
    try:
        return os.write(file.fileno(), data)
    except OSError:
        return 0


class LineSender(TextSender):
    """The sending half of a link over a stream: writes each message as a line.

    If nothing waits to be written, the task that sends a message writes it: for calls that follow each other, waking
    the task of `write` costs more than the write. Whatever the system does not accept at once is left to that task.

    Args:
        back: The channel to the session, on which requests that can't be encoded are reported.
        file: The pipe or socket below the stream, which must not block; None if the stream has neither, or encodes what
            it is given.

    Attributes:
        joining: Whether more messages will soon follow the current one, so that `write` should write them
            together; set by `read_lines`.
    """

    def __init__(self, back: Inbound, file: HasFileno | None = None) -> None:
        super().__init__(partial(hand_on, back))
        self.joining = False
        self._write_now: Callable[[bytes | memoryview], int] = (
            (lambda data: 0) if file is None else partial(write_now, file)
        )

    def _pass_on(self, text: bytes) -> bytes | None:
        # A long text is left to `write`, because writing it takes a while, and other messages may follow in the
        # meantime.
        if self.joining or len(text) >= CHUNK:
            return text
        line = text + b"\n"
        written = self._write_now(line)
        return None if written == len(line) else line[written:-1]

    async def write(self, send: Callable[[memoryview], Awaitable[None]], limit: trio.CancelScope | None = None) -> None:
        """Write what could not be written at once, until the session closes its side. A transport runs this as a task.

        Args:
            send: Writes to the stream: its ``send_all``.
            limit: A scope whose deadline is extended with each piece written, so that it does not expire while there is
                progress.

        Raises:
            trio.BrokenResourceError: If the stream breaks.
            trio.ClosedResourceError: If `refuse` has been called.
        """
        try:
            while True:
                # The texts are not kept in a variable: otherwise a long message would stay in memory until the next one
                # arrives.
                for part in _as_lines(await self.take()):
                    rest = memoryview(part)
                    # Each pass writes as much as the system accepts at once, and waits only for the next piece, so that
                    # the progress of a slow reader is seen. Waiting for every piece would make a long message up to a
                    # quarter slower.
                    while rest := rest[self._write_now(rest) :]:
                        await send(rest[:CHUNK])
                        rest = rest[CHUNK:]
                        if limit is not None:
                            limit.deadline = trio.current_time() + CLOSE_GRACE
        except trio.EndOfChannel:
            pass


def _as_lines(texts: list[bytes]) -> list[bytes]:
    """Turn texts into lines; unless the last is long, all are joined into one piece, which takes one system call."""
    # An encoded text contains no newline, so each message is one line (`basic/transports/stdio`).
    if len(texts[-1]) < CHUNK:
        return [b"\n".join([*texts, b""])]
    # Only the last text can be long; it is not copied just to add its newline.
    *before, last = texts
    return [*(text + b"\n" for text in before), last, b"\n"]


async def read_socket(socket: trio.socket.SocketType) -> bytes:
    """Return the next bytes from a socket, at most `CHUNK` of them; no bytes at the end.

    Raises:
        trio.BrokenResourceError: If the connection breaks.
        trio.ClosedResourceError: If this side has closed the socket.
    """
    # The wait comes before the read, for the same reason as in `PipeReader`. The descriptor is looked up again after
    # each wait, because another task may have closed the socket meanwhile. Then the descriptor is -1, and the old
    # number may belong to another file.
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
    # A stream must refuse the same arguments as trio's own streams do (`trio.testing.check_one_way_stream`).
    if max_bytes is not None:
        check_count("max_bytes", max_bytes)


class PipeReader(trio.abc.ReceiveStream):
    """A faster reader for an `FdStream` whose peer sends one message at a time; the `FdStream` keeps the descriptor."""

    # `FdStream` yields to other tasks, tries a read that fails, and then waits. `PipeReader` waits first, which saves a
    # scheduler step and a failing system call for each message. That is a tenth of the cost of the link when calls
    # follow one another.

    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None:
            check_size(max_bytes)
        while True:  # noqa: ASYNC913 - `wait_readable` is a checkpoint
            # The descriptor is looked up each time: it is negative after `close`, and the old one may belong to another
            # file.
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
