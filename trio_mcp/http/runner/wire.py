"""Reads and writes the bytes of one connection, with a deadline for each wait."""

from __future__ import annotations

import array
import contextlib
import math
import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from socket import SHUT_WR
from typing import Any, Protocol

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import closing, without_cancellation
from trio_mcp._platform import SOCKETS_ARE_FILES
from trio_mcp.lines import write_now
from trio_mcp.tls import accept_tls

try:
    import fcntl
    import termios
except ImportError:  # Windows has no fcntl
    pass

__all__ = ["MAX_RECEIVED", "PIECE", "Connections", "DeadlineStream", "RunnableConnection", "address", "lifetime"]

MAX_RECEIVED = 64 * 1024
"""How many bytes are read at a time, and how many bytes of later requests are kept while one is being served.

An arbitrary choice.
"""

PIECE = 64 * 1024
"""The maximum size, in bytes, of a piece of data that is sent within one write timeout. An arbitrary choice."""

# This response is written by hand, so that a connection over the limit needs no parser.
REFUSED = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\nretry-after: 1\r\n\r\n"


class DeadlineStream:
    """A connection's stream: no wait outlives its deadline, and nothing is sent after data that could be sent only in
    part.

    Args:
        stream: The stream: a socket's, or TLS over one.
        read_timeout: Seconds for each wait for bytes; None for no limit.
        write_timeout: Seconds that the peer may take to read a `PIECE` once its buffers are full.

    Attributes:
        stream: The stream.
        tls: Whether the stream is TLS.
    """

    __slots__ = ("_deadline", "_direct", "_patience", "_sending", "_waiting", "_write_timeout", "stream", "tls")

    def __init__(self, stream: Any, read_timeout: float | None, write_timeout: float) -> None:
        self.stream = stream
        self.tls = isinstance(stream, trio.SSLStream)
        self._direct = SOCKETS_ARE_FILES and isinstance(stream, trio.SocketStream)
        self._patience = math.inf if read_timeout is None else read_timeout
        self._write_timeout = write_timeout
        # Hypercorn sends both from the reader's task and from requests' tasks. Trio raises BusyResourceError for a
        # second sender, and data that is sent piece by piece must not be mixed with other data.
        self._sending = trio.Lock()
        self._waiting = trio.CancelScope()  # the scope of the reader's wait for the next bytes
        self._deadline = math.inf

    @property
    def socket(self) -> Any:
        """The socket that underlies the stream."""
        return (self.stream.transport_stream if self.tls else self.stream).socket

    async def shake_hands(self, timeout: float) -> bool:
        """Do the TLS handshake, if the connection uses TLS, within ``timeout`` seconds.

        Returns:
            Whether it succeeded, or was not needed.
        """
        return not self.tls or await accept_tls(self.stream, trio.CancelScope(relative_deadline=timeout))

    def expire_at(self, deadline: float) -> None:
        """Set the time at which the reader stops waiting for bytes, now and later; infinity for never."""
        self._deadline = deadline
        # A wait under way ends no later than the new deadline; a later deadline matters only for the next wait. The
        # comparison avoids setting a deadline, which takes Trio much longer: most requests need no earlier one.
        if deadline < self._waiting.deadline:
            self._waiting.deadline = deadline

    def stop_waiting(self, why: str) -> None:
        """End the reader's wait for bytes, and every later one."""
        # A deadline in the past also ends the next wait, should the reader not be waiting just now.
        self._deadline = -math.inf
        self._waiting.cancel(why)

    async def receive(self) -> bytes | None:
        """Return the next bytes from the peer: empty at the end of the connection, None if the time ran out.

        The deadline applies only to the wait: bytes that have been read are handled, even if it has passed by then.
        """
        deadline = min(self._deadline, trio.current_time() + self._patience)
        with trio.CancelScope(deadline=deadline) as self._waiting:
            try:
                if not self._direct:
                    return bytes(await self.stream.receive_some(MAX_RECEIVED))
                # This bypasses the layers of `receive_some`, because every request is read this way. The
                # descriptor is looked up each time: a closed socket has none (-1), and its old number may belong to
                # another connection by now.
                socket = self.stream.socket
                while socket.fileno() >= 0:
                    await trio.lowlevel.wait_readable(socket)
                    # Linux may report a socket as readable and then drop the data for a wrong checksum (select(2)).
                    with contextlib.suppress(BlockingIOError):
                        return os.read(socket.fileno(), MAX_RECEIVED)
            except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            return b""
        return None

    def unread(self) -> int:
        """Return how many bytes the system has received and still keeps, because they have not been read yet.

        On Windows the number is not known, and 0 is returned.
        """
        if not SOCKETS_ARE_FILES:
            return 0
        # The bytes are only counted: if they were read, they would have to be kept in this process, while the system
        # keeps them already.
        count = array.array("i", [0])
        with contextlib.suppress(OSError, ValueError):  # the socket may be closed
            fcntl.ioctl(self.socket.fileno(), termios.FIONREAD, count)
        return count[0]

    async def send(self, data: bytes) -> bool:
        """Send everything, or close the connection.

        Returns:
            Whether everything was sent.
        """
        # The system nearly always takes all of the data at once, which needs no deadline and no iteration of the event
        # loop. If its buffer is full, or the connection is broken, `_send` deals with the rest.
        rest = memoryview(data)
        rest = rest[self.send_nowait(rest) :]
        return not rest or await self._send(rest)

    def send_nowait(self, data: bytes | memoryview) -> int:
        """Send as much as the system accepts without waiting, and return the number of bytes sent.

        The rest must be sent before anything else is.
        """
        # While another task sends, these bytes would get in between.
        if not data or not self._direct or self._sending.locked():
            return 0
        return write_now(self.stream.socket, data)

    async def _send(self, data: memoryview) -> bool:
        try:
            self._sending.acquire_nowait()  # unlike `acquire`, without a checkpoint
        except trio.WouldBlock:
            await self._sending.acquire()
        whole = False

        async def end() -> None:
            self._sending.release()
            if not whole:
                await trio.aclose_forcefully(self.stream)

        # `finally` can't be used: in a cancelled scope, the forceful close would raise Cancelled, which would replace
        # the exception that is being raised.
        async with closing(end):
            # BusyResourceError means that another task is closing the stream, which does not take the lock.
            with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError):
                whole = await self._send_pieces(data)
        return whole

    async def _send_pieces(self, data: memoryview) -> bool:
        """Send the data piece by piece, each with its own timeout, so that a large response has more time."""
        while data:
            with trio.CancelScope(deadline=trio.current_time() + self._write_timeout) as scope:
                await self.stream.send_all(data[:PIECE])
            if scope.cancelled_caught:
                return False  # a part of the piece may have been sent, so nothing can follow
            data = data[PIECE:]
            # The system may take more now: an iteration of the event loop for each piece costs more than sending it.
            if self._direct:
                data = data[write_now(self.stream.socket, data) :]
        return True

    def shut(self, why: str) -> None:
        """End the connection at once, and the reader's wait for bytes.

        The peer has the end of the connection at once, so that hardly any request can arrive in between.
        """
        if self._direct:
            with contextlib.suppress(OSError):
                self.stream.socket.shutdown(SHUT_WR)
        self.stop_waiting(why)

    async def end_sending(self) -> None:
        """Tell the peer that nothing more will be sent; over TLS, only closing the connection does that."""
        if not self.tls:
            with contextlib.suppress(trio.BrokenResourceError, trio.BusyResourceError, trio.ClosedResourceError):
                await self.stream.send_eof()

    async def close(self) -> None:
        """Close the connection within the write timeout; TLS sends its close_notify first."""
        with trio.move_on_after(self._write_timeout):
            await self.end_sending()
            await self.stream.aclose()


def address(name: Callable[[], Any]) -> tuple[str, int] | None:
    """Return a socket's own or its peer's address in ASGI's form; None for a Unix socket, or if the peer has gone."""
    # A peer that has already gone has no address any more; reading from its connection fails later.
    try:
        found = name()
    except OSError:
        return None
    # The name of an IPv6 socket also has a flow label and a scope, which ASGI does not represent.
    return found[:2] if isinstance(found, tuple) else None


class RunnableConnection(Protocol):
    """A connection that a client has opened, and that can be served until it ends."""

    async def run(self) -> None:
        """Serve requests until either end closes the connection, and close the stream."""

    def shut_if_idle(self, patience: float = 0.0) -> None:
        """End the connection; if a request is under way, or has arrived and waits to be read, end it after that.

        Args:
            patience: Seconds for which the connection is kept after a response that has promised another request.
        """


class Connections:
    """The connections of one server.

    Args:
        connect: Returns the connection that serves a stream.
        limit: How many connections may be open at once; further ones get a 503 and are closed.
    """

    def __init__(self, connect: Callable[[Any], RunnableConnection], limit: int) -> None:
        self._connect = connect
        self._limit = limit
        self._open: set[RunnableConnection] = set()
        self._none_left: trio.Event | None = None
        self._interruptions: list[BaseException] = []

    async def serve(self, stream: Any) -> None:
        """Serve a connection from its acceptance to its end."""
        if len(self._open) >= self._limit:
            await _refuse(stream)
            return
        # The connection is made only now, so that a refused stream needs no parser.
        connection = self._connect(stream)
        self._open.add(connection)
        try:
            await connection.run()
        except BaseException as exc:
            if (interruption := without_cancellation(exc)) is not None:
                self._interruptions.append(interruption)
            raise
        finally:
            self._open.discard(connection)
            if self._none_left is not None and not self._open:
                self._none_left.set()

    async def all_ended(self) -> None:
        """Wait until there is no connection; only one task may wait, when no more are accepted."""
        self._none_left = trio.Event()
        if not self._open:
            self._none_left.set()
        await self._none_left.wait()

    def shut_if_idle(self, patience: float = 0.0) -> None:
        """End each connection, after its request if it has one; see `RunnableConnection`."""
        for connection in tuple(self._open):
            connection.shut_if_idle(patience)

    async def interrupt(self) -> None:
        """Raise the KeyboardInterrupt, or the like, that a connection has raised; called at the very end.

        `trio.serve_listeners` closes a connection's stream with an await, which in a cancelled scope would replace the
        exception by Cancelled.
        """
        for exc in self._interruptions:
            raise exc


async def _refuse(stream: Any) -> None:
    """Send a 503 on a connection over the limit, unless that would need a TLS handshake, and close the connection."""
    if isinstance(stream, trio.SocketStream):
        # One second is enough, because the buffers of a new connection are empty.
        with trio.move_on_after(1), contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(REFUSED)
    await trio.aclose_forcefully(stream)


@contextlib.asynccontextmanager
async def lifetime(stream: Any) -> AsyncIterator[None]:
    """Close a stream at the end of the block. A failure ends only this connection, with a line in the log."""
    async with closing(partial(trio.aclose_forcefully, stream)):
        try:
            yield
        except (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer is gone
        except Exception as exc:
            # No traceback is logged, because a peer may be the cause, and could fill the log.
            logger.warning("an HTTP connection failed: %s", _said(exc))


def _said(exc: BaseException) -> str:
    """Return an exception as one line; for a group, its first member."""
    while isinstance(exc, BaseExceptionGroup):
        exc = exc.exceptions[0]
    return f"{type(exc).__name__}: {exc}"
