"""Messages as lines: NDJSON over byte streams (`basic/transports/stdio`), and the stream that reads a pipe."""

from __future__ import annotations

import os

import trio

from trio_mcp.jsonrpc.codec import LineDecoder, encode, encode_or_replace
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.link import hand_on, report_unsent

__all__ = ["CHUNK", "PipeReader", "check_size", "read_lines", "write_lines"]

CHUNK = 64 * 1024
"""Bytes that are read or written at once: what a pipe holds by default.

Small messages that wait together are written together; one that is larger needs no company.
"""

CLOSE_GRACE = 1.0
"""Seconds that the client may take for each `CHUNK` of the last messages: one that does not read must not keep the
process alive, one that reads slowly gets them all."""


async def read_lines(
    stream: trio.abc.ReceiveStream, decoder: LineDecoder, inbound: trio.MemorySendChannel[SessionMessage]
) -> None:
    """Read a stream to its end, handing every message on, as long as the session listens.

    Raises:
        trio.BrokenResourceError: The stream broke.
    """
    while chunk := await stream.receive_some():
        for message in decoder.feed(chunk):
            try:
                inbound.send_nowait(SessionMessage(message))  # by far the most frequent: there is room
            except (trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                if not await hand_on(inbound, message):
                    return
    if (last := decoder.finish()) is not None:
        await hand_on(inbound, last)


async def write_lines(
    outbound: trio.MemoryReceiveChannel[SessionMessage],
    stream: trio.abc.SendStream,
    inbound: trio.MemorySendChannel[SessionMessage],
    limit: trio.CancelScope | None = None,
) -> None:
    """Write every message to a stream until the session closes its side. The only task that writes to it.

    Args:
        outbound: What to write.
        stream: Where to.
        inbound: The way back, for what can't be written.
        limit: Its deadline moves with each piece that is written: as long as there is progress it does not pass.

    Raises:
        trio.BrokenResourceError: The stream broke.
    """
    async for item in outbound:
        lines = bytearray()
        waiting: SessionMessage | None = item
        while waiting is not None:
            try:
                data: bytes | None = encode(waiting.message)  # type: ignore[arg-type]
            except ValueError:
                data, problem = encode_or_replace(waiting.message)  # type: ignore[arg-type]
                if problem is not None:
                    await report_unsent(waiting, problem, inbound)
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
                await stream.send_all(lines)
            continue
        with memoryview(lines) as view:
            for start in range(0, len(view), CHUNK):
                with view[start : start + CHUNK] as piece:
                    await stream.send_all(piece)
                limit.deadline = trio.current_time() + CLOSE_GRACE


def check_size(max_bytes: int | None) -> None:
    """Check the argument of `receive_some`, as trio does."""
    if max_bytes is None:
        return
    if not isinstance(max_bytes, int):
        raise TypeError(f"max_bytes must be an integer or None, got {max_bytes!r}")
    if max_bytes < 1:
        raise ValueError(f"max_bytes must be at least 1, got {max_bytes}")


class PipeReader(trio.abc.ReceiveStream):
    """The reading side of an `FdStream`, which stays the owner, for a peer that sends one message at a time.

    `FdStream` lets others run, tries in vain, and then waits. This one waits first: a scheduler step and a failing
    system call less for each message (a tenth of what the link costs when calls come one after the other).
    """

    def __init__(self, stream: trio.lowlevel.FdStream) -> None:
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if max_bytes is not None:
            check_size(max_bytes)
        while True:  # noqa: ASYNC913 - the thread is one
            if (fd := self._stream.fileno()) < 0:
                raise trio.ClosedResourceError("this stream was closed")
            await trio.lowlevel.wait_readable(fd)
            try:
                return self.receive_nowait(max_bytes)
            except trio.WouldBlock:
                continue  # somebody else was faster

    def receive_nowait(self, max_bytes: int | None = None) -> bytes:
        """What there is, or `trio.WouldBlock`."""
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
