"""Opens a link over a byte stream, with one JSON text per line, as over stdio."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import attrs
import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery, closing
from trio_mcp.direct_channel import open_direct_channel
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder, decode
from trio_mcp.jsonrpc.messages import Malformed, TransportFailure
from trio_mcp.lines import CLOSE_GRACE, LineSender, read_lines
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.sockets.wire import DirectStream
from trio_mcp.types.error_codes import PARSE_ERROR

__all__ = ["PeerTerms", "first_line", "link_on_terms", "stream_link"]

LAST_WORDS = 10.0
"""The time limit for all of the last messages, in seconds, however steadily the peer reads them. An arbitrary
choice: enough for about 600 KB at the minimum speed that `CLOSE_GRACE` allows."""

MOMENT = 0.5
"""How long after a failed write the peer's earlier data is still read, in seconds. An arbitrary choice: the data has
already arrived."""


@attrs.frozen
class PeerTerms:
    """Facts about the peer of a link, and the requirements on it, beyond the framing of messages.

    Attributes:
        peer: The peer's name in error messages.
        guarded: Whether the first line must be a JSON object, because the peer may be any program.
        deadline: The time by which the first line must be complete.
        write_timeout: Seconds that the peer may take to read 64 KiB once its buffers are full.
        hint: Advice for the error message if a server closes the connection before it responds; None for a peer that
            may close it at any time.
    """

    peer: str = "the peer"
    guarded: bool = False
    deadline: float = math.inf
    write_timeout: float = math.inf
    hint: str | None = None


@contextlib.asynccontextmanager
async def stream_link(
    stream: trio.abc.Stream,
    *,
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE,
    metadata: Mapping[str, Any] | None = None,
) -> AsyncIterator[Link]:
    """Send and receive messages as lines over any Trio stream, such as a serial port, an SSH channel or a pipe.

    The peer may be a client or a server, and must frame its messages in the same way. When the block ends, the stream
    is closed: messages that were sent before are still delivered, as long as the peer reads them, for at most ten
    seconds. On cancellation, the stream is closed at once.

    Args:
        stream: The stream. Unless it can close one direction alone (`trio.abc.HalfCloseableStream`), it is closed as a
            whole when this side has nothing more to send.
        max_message_size: The maximum length of a line from the peer, in bytes; a longer line is refused and skipped.
        metadata: The metadata that handlers find in `Context.transport_metadata`, for example who the peer is.

    Raises:
        TypeError: If ``stream`` is not a stream.
    """
    check_on_trio()
    if not isinstance(stream, trio.abc.Stream):
        raise TypeError(f"expected a trio.abc.Stream, got {type(stream).__name__}")
    async with link_on_terms(stream, PeerTerms(), max_message_size, metadata) as link:
        yield link


@contextlib.asynccontextmanager
async def link_on_terms(
    stream: trio.abc.Stream, terms: PeerTerms, max_message_size: int, metadata: Mapping[str, Any] | None = None
) -> AsyncIterator[Link]:
    """Open a link as `stream_link` does, but on the given terms for the peer.

    If ``terms.guarded`` is set and the peer's first line is not a JSON object (an HTTP request line, most likely), all
    further bytes are ignored and the link is lost.
    """
    decoder = LineDecoder(max_message_size)
    async with closing(partial(trio.aclose_forcefully, stream)):
        # This checkpoint is inside `closing`, because a cancellation at this point still has to close the stream.
        await trio.lowlevel.checkpoint()
        lines = _Lines(DirectStream(stream, terms.write_timeout), decoder, terms, metadata)
        # The channels are closed after the nursery has ended, because its tasks use them to the end. A session that
        # still waits then gets an error.
        with lines.inbound, contextlib.closing(lines.outbound):
            async with background_nursery(lines.end) as nursery:
                nursery.start_soon(lines.read)
                nursery.start_soon(lines.write)
                yield lines.link


async def first_line(
    receive: Callable[[], Awaitable[bytes | bytearray]], max_size: int, peer: str, deadline: float = math.inf
) -> bytes | bytearray:
    """Read the first line from a peer that may be any program, and return it with everything that arrived with it.

    Args:
        receive: Returns the next bytes; none at the end of the stream, where the bytes so far are returned.
        max_size: The number of bytes after which an incomplete line is returned as it is: such a line is unlikely to
            belong to another protocol, and is later refused like any other line that is too long.
        peer: The peer's name in error messages.
        deadline: The time by which the line must be complete.

    Raises:
        TransportError: If the line is not a JSON object, or does not arrive in time.
    """
    data = bytearray()
    end = -1
    with trio.CancelScope(deadline=deadline) as scope:
        while end < 0 and len(data) <= max_size:
            chunk = await receive()
            if not chunk:
                return data
            at = len(data)  # the search begins here, so each byte is searched only once
            data += chunk if data else chunk.lstrip()
            # The first byte is checked before the line is complete, so that a peer with another protocol gets no time
            # to send more.
            if data and not data.startswith(b"{"):
                raise _not_mcp(peer, data)
            end = data.find(b"\n", at)
    if scope.cancelled_caught:
        raise TransportError(f"{peer} did not send its first message in time")
    first = decode(data[:end]) if end >= 0 else None
    if isinstance(first, Malformed) and first.code == PARSE_ERROR:
        raise _not_mcp(peer, data)
    return data


def _not_mcp(peer: str, data: bytearray) -> TransportError:
    # `repr` escapes line breaks, so that a peer can't forge lines of the log.
    excerpt = bytes(data[:40])
    error = TransportError(f"{peer} does not speak MCP: its first line begins with {excerpt!r}")
    logger.info("%s", error)
    return error


class _Lines:
    """The tasks that carry messages between a stream and the channels of a link."""

    def __init__(
        self, wire: DirectStream, decoder: LineDecoder, terms: PeerTerms, metadata: Mapping[str, Any] | None
    ) -> None:
        self._wire = wire
        self._decoder = decoder
        self._terms = terms
        self._metadata = metadata
        self.inbound, self._read_end = open_direct_channel(BUFFER)
        self.outbound = LineSender(self.inbound, wire.socket)
        self.link = Link(self._read_end, self.outbound)
        self._reading = trio.CancelScope()
        self._last_words = trio.CancelScope()
        self._written = trio.Event()
        self._unwritten: Exception | None = None
        self._lost = False

    async def end(self) -> None:
        """Write the messages that are still queued, and close the stream: first for sending, then for receiving."""
        self.outbound.close()
        # The reader now drops what arrives, but continues to read: the peer may be blocked in a write.
        self._read_end.close()
        # If the link is lost, the stream was closed forcefully: nothing can be written, and the end of the peer's data
        # will not arrive.
        if self._lost:
            return
        with trio.move_on_after(LAST_WORDS):
            # `LineSender.write` extends the deadline while there is progress.
            self._last_words.deadline = trio.current_time() + CLOSE_GRACE
            with self._last_words:
                await self._written.wait()
            # Closing a socket with unread bytes resets the connection, and the peer might lose data that it has not
            # read. So the peer gets time to end its sending first; that takes no time if the peer does so as soon as we
            # have ended ours.
            with trio.move_on_after(CLOSE_GRACE):
                await self._wire.wait_for_lull()

    async def read(self) -> None:
        """Read until the stream ends, and report the loss of the link if it does not end properly."""
        error: TransportError | None = None
        with self._reading:
            try:
                await self._read()
            except TransportError as exc:
                error = exc
            except trio.BrokenResourceError as exc:
                error = self._broken(exc)
            except trio.ClosedResourceError:
                pass  # the writer has closed the stream as a whole
        # After a failed write, the reading ends at the deadline of its scope, without an exception, although the link
        # is lost.
        if self._unwritten is not None:
            error = self._broken(self._unwritten)
        if error is not None:
            self._lost = True
            # From now on sending fails, too, instead of waiting for a peer that is gone. A peer that has closed only
            # its sending side learns from the abort that nothing more will come.
            self.outbound.refuse()
            await self._wire.abort()
            # The report comes last, because it may have to wait until the session makes room.
            await hand_on(self.inbound, TransportFailure(error))
        self.inbound.close()

    async def _read(self) -> None:
        start: bytes | bytearray = b""
        if self._terms.guarded:
            terms = self._terms
            start = await first_line(self._wire.receive, self._decoder.max_message_size, terms.peer, terms.deadline)
        await read_lines(self._wire.receive, self._decoder, self.inbound, self.outbound, self._metadata, start)
        while await self._wire.receive():
            pass  # the session has stopped reading, but the peer may have to write before it can leave
        # Only a client's terms include a hint. A client expects the server to stay connected, so if the server closes
        # first, it has refused the session or shut down.
        if self._terms.hint is not None and not self._wire.ended:
            raise TransportError(f"{self._terms.peer} has closed the connection{'' if start else self._terms.hint}")

    async def write(self) -> None:
        """Write messages until the link is closed; if a write fails, make reading end soon, too."""
        try:
            await self.outbound.write(self._wire.send, self._last_words)
            await self._wire.end_sending()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
            # From now on senders fail: they must not wait for a channel that is no longer emptied.
            self.outbound.refuse()
            self._unwritten = exc
            # Messages that the peer sent earlier are still read.
            self._reading.deadline = trio.current_time() + MOMENT
        self._written.set()

    def _broken(self, exc: Exception) -> TransportError:
        cause = exc.__cause__ or exc
        said = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        return TransportError(f"the connection to {self._terms.peer} is lost: {said}")
