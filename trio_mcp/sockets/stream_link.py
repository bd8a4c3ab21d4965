"""A link over a byte stream: one JSON text per line, as over stdio."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery, closing
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder, decode
from trio_mcp.jsonrpc.messages import Failure, Malformed, SessionMessage
from trio_mcp.lines import CLOSE_GRACE, read_lines, write_lines
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.types.error_codes import PARSE_ERROR

__all__ = ["Terms", "guarded_link", "stream_link"]

LAST_WORDS = 10.0
"""Seconds in all for the last messages, however steadily the peer reads them. Chosen: about 600 KB, at the least speed
that `CLOSE_GRACE` allows."""

MOMENT = 0.5
"""Seconds between a failed write and the end of what the peer has sent before. Chosen: it is only local reads."""


@attrs.frozen
class Terms:
    """What is demanded of a peer that may be anybody, besides the framing.

    Attributes:
        peer: Who it is, for error messages.
        deadline: The time by which its first line must be complete.
        write_timeout: Seconds that it may take to read 64 KiB once its buffers are full.
        silence: The error if it leaves without a word; None if it may.
    """

    peer: str
    deadline: float = math.inf
    write_timeout: float = math.inf
    silence: str | None = None


@contextlib.asynccontextmanager
async def stream_link(
    stream: trio.abc.Stream,
    *,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    metadata: Mapping[str, Any] | None = None,
) -> AsyncIterator[Link]:
    """Send and receive messages over any stream of Trio, as lines: a serial port, a channel of SSH, a pipe.

    The peer may be a client or a server, which frames its messages in the same way. The block closes the stream at its
    end: what was sent before still goes out, for as long as the peer reads it, for at most ten seconds. When cancelled,
    it closes the stream at once.

    Args:
        stream: The stream. One that can't close one direction alone (`trio.abc.HalfCloseableStream`) is closed as a
            whole when this side has nothing more to send.
        max_message_size: The longest line accepted from the peer, in bytes; a longer one is refused and skipped.
        metadata: What handlers find in `Context.transport_metadata`, for example who the peer is.

    Raises:
        TypeError: If it is not a stream.
    """
    if not isinstance(stream, trio.abc.Stream):
        raise TypeError(f"expected a trio.abc.Stream, got {type(stream).__name__}")
    async with _opened(_Lines(stream, LineDecoder(max_message_size), metadata, None)) as link:
        yield link


def guarded_link(
    stream: trio.abc.Stream, max_message_size: int, terms: Terms, metadata: Mapping[str, Any] | None = None
) -> contextlib.AbstractAsyncContextManager[Link]:
    """Do what `stream_link` does, with a peer whose first line must be a JSON object.

    Otherwise, above all if it is the line of an HTTP request, nothing after it is looked at, and the link is lost.
    """
    return _opened(_Lines(stream, LineDecoder(max_message_size), metadata, terms))


@contextlib.asynccontextmanager
async def _opened(lines: _Lines) -> AsyncIterator[Link]:
    async with closing(partial(trio.aclose_forcefully, lines.stream)):
        await trio.lowlevel.checkpoint()
        with lines.inbound, lines.outbound:
            async with background_nursery(lines.end) as nursery:
                nursery.start_soon(lines.read)
                nursery.start_soon(lines.write)
                yield lines.link


class _Lines:
    """The tasks between a stream and the channels of a link."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        decoder: LineDecoder,
        metadata: Mapping[str, Any] | None,
        terms: Terms | None,
    ) -> None:
        self.stream = stream
        self._decoder = decoder
        self._metadata = metadata
        self._terms = terms
        self.inbound, self._read_end = trio.open_memory_channel[SessionMessage](BUFFER)
        self._write_end, self.outbound = trio.open_memory_channel[SessionMessage](BUFFER)
        self.link = Link(self._read_end, self._write_end)
        self._reading = trio.CancelScope()
        self._last_words = trio.CancelScope()
        self._written = trio.Event()
        self._all_read = trio.Event()
        self._unwritten: Exception | None = None
        self._lost = False

    async def end(self) -> None:
        """Write what has been sent, and close the stream's directions one after the other."""
        self._write_end.close()
        self._read_end.close()
        if self._lost:
            return
        with trio.move_on_after(LAST_WORDS):
            # `write_lines` moves the deadline on while there is progress.
            self._last_words.deadline = trio.current_time() + CLOSE_GRACE
            with self._last_words:
                await self._written.wait()
            # A socket that is closed while it holds unread bytes resets the connection, and the peer might lose what
            # it has not read. So let the peer close its direction first; one that does so on our end takes no time.
            with trio.move_on_after(CLOSE_GRACE):
                await self._all_read.wait()

    async def read(self) -> None:
        error: Exception | None = None
        with self._reading:
            error = await self._read()
        # Of the two, this is the first that was noticed.
        if self._unwritten is not None:
            error = TransportError(f"{self._the('connection')} is lost: {_said(self._unwritten)}")
        if error is not None:
            self._lost = True
            await hand_on(self.inbound, Failure(error))
        self.inbound.close()
        self._all_read.set()

    async def _read(self) -> Exception | None:
        """Read to the end of the stream; return the reason if that is not a proper one."""
        try:
            chunk = b""
            if self._terms is not None:
                chunk, error = await self._first_line(self._terms)
                if error is not None:
                    return TransportError(error)
            await read_lines(self.stream, self._decoder, self.inbound, self._metadata, chunk)
            while await self.stream.receive_some():
                pass  # the session has stopped reading, but the peer may have to write before it can leave
        except trio.BrokenResourceError as exc:
            return TransportError(f"{self._the('connection')} is lost: {_said(exc)}")
        except trio.ClosedResourceError:
            pass  # the writer has closed the stream as a whole
        return None

    async def _first_line(self, terms: Terms) -> tuple[bytes, str | None]:
        """Return what was read up to the end of the first line, and what is wrong with it."""
        data = bytearray()
        end = -1
        with trio.CancelScope(deadline=terms.deadline) as scope:
            # A line over the limit can't be of another protocol any more: it is refused and skipped like any other.
            while end < 0 and len(data) <= self._decoder.max_message_size:
                chunk = await self.stream.receive_some()
                if not chunk:
                    return bytes(data), None if data else terms.silence
                at = len(data)  # so that each byte is looked at once, however small the chunks are
                data += chunk if data else chunk.lstrip()
                if data and not data.startswith(b"{"):
                    return b"", self._refused(data)
                end = data.find(b"\n", at)
        if scope.cancelled_caught:
            return b"", f"{terms.peer} has not sent its first message in time"
        first = decode(data[:end]) if end >= 0 else None
        if isinstance(first, Malformed) and first.code == PARSE_ERROR:
            return b"", self._refused(data)
        return bytes(data), None

    def _refused(self, data: bytearray) -> str:
        peer, excerpt = self._the("peer"), bytes(data[:40])
        text = f"{peer} does not speak MCP: its first line is no JSON object, but begins with {excerpt!r}"
        logger.info("%s", text)
        return text

    async def write(self) -> None:
        sending: Any = self.stream if self._terms is None else _Patient(self.stream, self._terms.write_timeout)
        try:
            await write_lines(self.outbound, sending, self.inbound, self._last_words)
            if isinstance(self.stream, trio.abc.HalfCloseableStream):
                await self.stream.send_eof()
            else:
                await self.stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            self.outbound.close()
            self._unwritten = exc
            self._reading.deadline = trio.current_time() + MOMENT
        self._written.set()

    def _the(self, what: str) -> str:
        if self._terms is None:
            return f"the {what}"
        return f"the connection to {self._terms.peer}" if what == "connection" else self._terms.peer


class _Patient(trio.abc.SendStream):
    """The sending side of a stream whose peer must read.

    Args:
        stream: The stream.
        seconds: How long the peer may take for what is sent at once.
    """

    def __init__(self, stream: trio.abc.Stream, seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        with trio.move_on_after(self._seconds) as scope:
            await self._stream.send_all(data)
        if scope.cancelled_caught:
            raise trio.BrokenResourceError(f"the peer has not read for {self._seconds:g} seconds")

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


def _said(exc: Exception) -> str:
    cause = exc.__cause__ or exc
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
