"""A child's standard error: cut into lines, handed to whoever wants them, the last ones kept for error messages."""

from __future__ import annotations

import logging
import os
import select
from collections import deque
from collections.abc import Awaitable, Iterator

import trio

from trio_mcp.stdio.parameters import StderrSink

__all__ = ["StderrCopier"]

logger = logging.getLogger("trio_mcp")

LONGEST_LINE = 8192
"""Bytes after which a line goes on as another one."""

TAIL = 20
"""Lines kept for the error message."""

PENDING = 256
"""Lines that may wait for a slow sink before the child has to wait, too."""


class StderrCopier:
    """Reads a child's standard error to its end.

    Attributes:
        tail: The last lines read, whether or not the sink has taken them.
        ended: Set when the sink has taken everything.
    """

    def __init__(self, stream: trio.abc.ReceiveStream, sink: StderrSink) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL)
        self.ended = trio.Event()
        self._stream = stream
        self._sink = sink
        self._pending, self._taken = trio.open_memory_channel[bytes](PENDING)
        # Of its own: those who wait for a slow terminal must not take the threads that others need.
        self._limiter = trio.CapacityLimiter(1)

    async def read(self) -> None:
        """One of the two tasks: cut what is read into lines, until the end of the stream, which it closes."""
        rest = b""
        async with self._stream, self._pending:
            while chunk := await self._receive():
                *lines, rest = (rest + chunk).split(b"\n")
                lines = [piece for line in lines for piece in _pieces(line)]
                if len(rest) > LONGEST_LINE:
                    *begun, rest = _pieces(rest)
                    lines += begun
                await self._keep(lines)
            if rest:
                await self._keep([rest])

    async def _receive(self) -> bytes | bytearray:
        try:
            return await self._stream.receive_some(LONGEST_LINE)
        except trio.BrokenResourceError:
            return b""

    async def _keep(self, lines: list[bytes]) -> None:
        self.tail.extend(map(_text, lines))
        if self._sink != "discard":
            for line in lines:
                await self._pending.send(line)

    async def deliver(self) -> None:
        """The other task: hand the lines to the sink, however long it takes."""
        async for line in self._taken:
            if self._sink == "inherit":
                lines = [line, *_waiting(self._taken), b""]
                await trio.to_thread.run_sync(
                    _write_stderr, b"\n".join(lines), abandon_on_cancel=True, limiter=self._limiter
                )
            else:
                await self._call(_text(line))
        self.ended.set()

    async def _call(self, line: str) -> None:
        assert not isinstance(self._sink, str)
        try:
            outcome = self._sink(line)
            if isinstance(outcome, Awaitable):
                await outcome
        except Exception:
            logger.exception("the callback for standard error failed")


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").removesuffix("\r")


def _pieces(line: bytes) -> Iterator[bytes]:
    """A line in pieces of bounded length, none of which begins inside a UTF-8 character."""
    while len(line) > LONGEST_LINE:
        cut = LONGEST_LINE
        while cut > LONGEST_LINE - 3 and line[cut] & 0xC0 == 0x80:
            cut -= 1
        yield line[:cut]
        line = line[cut:]
    yield line


def _waiting(taken: trio.MemoryReceiveChannel[bytes]) -> Iterator[bytes]:
    try:
        while True:
            yield taken.receive_nowait()
    except (trio.WouldBlock, trio.EndOfChannel):
        pass


def _write_stderr(data: bytes) -> None:
    """Runs in a thread: whoever reads our standard error may be slow, and must not stop the event loop."""
    try:
        while data:
            try:
                data = data[os.write(2, data) :]
            except BlockingIOError:  # somebody who shares the description has made it non-blocking
                poll = select.poll()
                poll.register(2, select.POLLOUT)
                poll.poll()
    except OSError:
        pass  # our standard error is closed: nobody wants to see it
