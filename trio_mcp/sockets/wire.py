"""Reads and writes the bytes of one stream, such as a socket."""

from __future__ import annotations

import math

import trio

from trio_mcp._platform import SOCKETS_ARE_FILES
from trio_mcp.lines import CLOSE_GRACE, read_socket

__all__ = ["DirectStream"]

LULL = 0.05
"""How long the peer must be silent before no more bytes are expected from it, in seconds. An arbitrary choice: data
that it sent earlier has nearly always arrived already."""


class DirectStream:
    """A wrapper for a stream: reads a socket with little overhead, and ends sending before receiving where it can.

    Args:
        stream: The stream to wrap.
        write_timeout: Seconds that the peer may take to read what one call to `send` sends.

    Attributes:
        ended: Whether this side has finished sending.
        socket: The socket, if the stream is a plain socket; it may be written to directly between two calls to `send`.
    """

    def __init__(self, stream: trio.abc.Stream, write_timeout: float = math.inf) -> None:
        self.ended = False
        self._stream = stream
        self.socket = stream.socket if SOCKETS_ARE_FILES and isinstance(stream, trio.SocketStream) else None
        self._write_timeout = write_timeout
        self._chunks = 0
        self._peer_ended = trio.Event()

    async def receive(self) -> bytes | bytearray:
        """Return the next bytes from the peer; none at the end.

        Raises:
            trio.BrokenResourceError: If the stream breaks.
            trio.ClosedResourceError: If the stream was closed on this side.
        """
        chunk = await (self._stream.receive_some() if self.socket is None else read_socket(self.socket))
        self._chunks += 1
        if not chunk:
            self._peer_ended.set()
        return chunk

    async def wait_for_lull(self) -> None:
        """Wait until the peer stops sending, or nothing has arrived for a moment; another task must be receiving."""
        seen = -1
        while seen != self._chunks:
            seen = self._chunks
            with trio.move_on_after(LULL):
                await self._peer_ended.wait()
                return

    async def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of the data, within the write timeout.

        Raises:
            trio.BrokenResourceError: If the stream breaks, or the peer does not read in time.
            trio.ClosedResourceError: If the stream was closed on this side.
        """
        with trio.move_on_after(self._write_timeout) as scope:
            await self._stream.send_all(data)
        # A part of a line may have been sent, so nothing may follow: for the caller, the stream is broken.
        if scope.cancelled_caught:
            raise trio.BrokenResourceError(f"the peer did not read a message within {self._write_timeout:g} seconds")

    async def abort(self) -> None:
        """Close the stream at once."""
        await trio.aclose_forcefully(self._stream)

    async def end_sending(self) -> None:
        """Tell the peer that nothing more will be sent; if possible, leave the stream open for receiving.

        Raises:
            trio.BrokenResourceError: If the stream breaks.
        """
        # `ended` is set before the end is sent: the peer may close at once in response, which must not count as a loss.
        self.ended = True
        if isinstance(self._stream, trio.abc.HalfCloseableStream):
            await self._stream.send_eof()
            return
        # Other streams, above all TLS, close both directions at once, so bytes that have arrived are read first.
        with trio.move_on_after(CLOSE_GRACE):
            await self.wait_for_lull()
        await self._stream.aclose()
