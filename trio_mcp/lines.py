"""Messages as lines: NDJSON over byte streams (`basic/transports/stdio`), and faster reads of pipes and sockets."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import trio

from trio_mcp._checks import check_count
from trio_mcp.direct_channel import DirectSendChannel
from trio_mcp.jsonrpc.codec import LineDecoder, encode, encode_or_replace
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.link import Inbound, hand_on, report_unsent

__all__ = ["CHUNK", "CLOSE_GRACE", "PipeReader", "check_size", "read_lines", "read_socket", "write_lines"]

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
    metadata: Mapping[str, Any] | None = None,
    chunk: bytes | bytearray = b"",
) -> None:
    """Read a stream to its end and hand every message on, as long as the session listens.

    Args:
        receive: Reads from the stream: its ``receive_some``, which is a checkpoint.
        decoder: Turns its bytes into messages.
        inbound: Where the messages go.
        metadata: What the session is told about each of them.
        chunk: What has been read from the stream before.

    Raises:
        trio.BrokenResourceError: If the stream breaks.
    """
    while chunk := chunk or await receive():
        inbound.renew()
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


async def write_lines(
    outbound: trio.MemoryReceiveChannel[SessionMessage],
    send: Callable[[bytearray | memoryview], Awaitable[None]],
    inbound: Inbound,
    limit: trio.CancelScope | None = None,
) -> None:
    """Write every message to a stream until the session closes its side.

    Only one task may do this for a stream.

    Args:
        outbound: The messages to write.
        send: Writes to the stream: its ``send_all``.
        inbound: The channel back to the session, for requests that can't be encoded.
        limit: A scope whose deadline is extended with each piece written, so that it does not expire while there is
            progress.

    Raises:
        trio.BrokenResourceError: If the stream breaks.
    """
    async for item in outbound:
        # Join what is waiting: one system call for many small messages.
        lines = bytearray()
        waiting: SessionMessage | None = item
        while waiting is not None:
            try:
                data: bytes | None = encode(waiting.message)
            except ValueError:
                # Rare, so encoding a second time costs nothing that matters.
                data, problem = encode_or_replace(waiting.message)
                if problem is not None:
                    await report_unsent(waiting, problem, inbound)
            # The encoded text holds no newline, so each message is one line (`basic/transports/stdio`).
            if data is not None:
                lines += data
                lines += b"\n"
            waiting = None
            if len(lines) < CHUNK:
                try:
                    waiting = outbound.receive_nowait()
                except (trio.WouldBlock, trio.EndOfChannel):
                    pass
        if limit is None:
            if lines:
                await send(lines)
            continue
        # In pieces, so that a slow reader shows its progress. The views must be released before the bytearray can go.
        with memoryview(lines) as view:
            for start in range(0, len(view), CHUNK):
                with view[start : start + CHUNK] as piece:
                    await send(piece)
                limit.deadline = trio.current_time() + CLOSE_GRACE


async def read_socket(socket: trio.socket.SocketType) -> bytes:
    """Return the next bytes of a socket, at most a `CHUNK`; none at the end.

    Raises:
        trio.BrokenResourceError: If the connection breaks.
        trio.ClosedResourceError: If it was closed here.
    """
    # It waits first, for the reason that `PipeReader` has. Ask for the descriptor each time: that of a closed socket is
    # -1, and the number that it had may belong to another file by now.
    while (fd := socket.fileno()) >= 0:
        await trio.lowlevel.wait_readable(fd)
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
