"""Wires that carry each message as a line, over any byte stream: to a process, a socket or a server in memory."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import trio
import trio.testing

from trio_mcp._nursery import background_nursery, start
from trio_mcp.client.targets import Servable
from trio_mcp.conformance.steps import Headers
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.conformance.wires.notes import WRITE_TIMEOUT, LineSplitter, Notes, TooMuch
from trio_mcp.conformance.wires.wire import MessageWire, OpenWire
from trio_mcp.errors import TransportError
from trio_mcp.sockets.addresses import read_address
from trio_mcp.sockets.client import open_socket
from trio_mcp.sockets.stream_link import stream_link
from trio_mcp.stdio.child_process import ChildProcess, StderrCopier, start_process
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["LinesWire", "half_close", "memory_wire", "process_wire", "reset", "socket_wire", "stream_wire"]

STDERR_LINES = 200
"""The maximum number of lines of standard error that are noted for one process (arbitrary)."""

EXIT_MOMENT = 0.5
"""Seconds to wait for the exit of a process whose output has ended (arbitrary)."""

SERVER_GRACE = 2.0
"""Seconds that a server in memory has to end after its connection is closed (arbitrary)."""


class LinesWire(MessageWire):
    """A wire over a byte stream, on which each message is a line.

    Attributes:
        transport: The name of the transport.
        number: The number of the connection.
    """

    def __init__(self, tape: Tape, number: int, transport: str, stream: trio.abc.Stream) -> None:
        self.transport = transport
        self.number = number
        self.notes = Notes(tape, number, transport)
        self._stream = stream
        self._sending = trio.Lock()
        self._sent = LineSplitter()
        self._lines = LineSplitter()
        self._written = 0

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers | None = None) -> None:
        """Send each text as a line or, if ``framed`` is false, unchanged."""
        await self._write([text + b"\n" for text in texts] if framed else texts)

    async def stop(self, how: Literal["close", "reset", "half"], which: int = 0) -> None:
        """Close or reset the connection; with ``half``, close only the sending side if that is possible."""
        # If the stream is TLS, which Trio can't half-close, or if the target has gone, the whole connection is closed.
        if how == "half" and await half_close(self._stream, self.notes):
            return
        # The close is noted before it is made: it ends the reader, which would otherwise note that the target has
        # closed the connection.
        self.notes.close("client", how)
        if how == "reset":
            reset(self._stream)
        await trio.aclose_forcefully(self._stream)

    async def _write(self, pieces: Sequence[bytes]) -> None:
        # Several tasks may send, hence the lock: the pieces of one task must not be mixed with those of another, and
        # Trio raises `BusyResourceError` if two tasks write to a stream at once.
        async with self._sending:
            for piece in pieces:
                # The connection is checked before each piece: the target may have ended it while the previous piece was
                # written.
                if not self.is_open:
                    self.notes.mark("unsent", reason="the connection has ended")
                    return
                self._written += len(piece)
                # The text is noted before it is written, because the response may arrive while this side is still
                # writing. The notes contain the lines that the peer sees, no matter how they were divided into pieces.
                self.notes.asked()
                for line in self._sent.feed(piece):
                    self.notes.text("client", line)
                try:
                    with trio.fail_after(WRITE_TIMEOUT):
                        await self._stream.send_all(piece)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.notes.mark("unsent", reason="the target is no longer reading")
                    return
                except trio.TooSlowError:
                    # Part of a line may have been sent, so no other message can be sent on this connection.
                    self.notes.mark("unsent", reason=f"the target has not read anything for {WRITE_TIMEOUT:g} seconds")
                    await self.stop("close")
                    return

    @property
    def unended(self) -> bytes:
        """The bytes that the target has sent since the last end of a line."""
        return bytes(self._lines.rest)

    async def read(self) -> None:
        """Note everything that arrives until the connection ends; this runs as a task."""
        lines = self._lines
        reason = "end"
        try:
            while chunk := await self._stream.receive_some():
                self.notes.count(len(chunk))
                for line in lines.feed(chunk):
                    self.notes.text("server", line)
        # Trio's exception says only that the stream is broken, but its cause, the system's error, distinguishes a reset
        # from a timeout.
        except trio.BrokenResourceError as exc:
            reason = str(exc.__cause__ or "the connection broke")
        except trio.ClosedResourceError:
            pass  # `stop` has closed the stream, and noted the close
        except TooMuch as exc:
            # `flood` notes the close before `ended` can note that the target has closed the connection. The rest of the
            # line is dropped, because it is too long to be kept.
            self.notes.flood(exc)
            lines.rest.clear()
        # A program that dies in the middle of a line leaves a part of that line. It is noted, because it may show what
        # the program was doing.
        if lines.rest:
            self.notes.text("server", bytes(lines.rest))
        await self.ended(reason)

    async def ended(self, reason: str) -> None:
        """Record that the target has ended the connection."""
        self.notes.close("server", reason)
        # The close is forceful, because a graceful close of TLS would first send an alert, and would wait if the target
        # has stopped reading.
        await trio.aclose_forcefully(self._stream)

    async def leave(self) -> None:
        """Close the connection when the wire's block ends."""
        self.notes.close("client", "done")
        await trio.aclose_forcefully(self._stream)


async def half_close(stream: trio.abc.Stream, notes: Notes, **facts: Any) -> bool:
    """Close a stream's sending half and note the close; return False if that is impossible, or the target has gone."""
    if isinstance(stream, trio.abc.HalfCloseableStream):
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_eof()
            notes.mark("half closed", **facts)
            return True
    return False


def reset(stream: trio.abc.Stream) -> None:
    """Make the next close of a TCP connection a reset; other streams are left as they are."""
    # The option has to be set on the socket below TLS. A forceful close then also skips the closing alert of TLS.
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if isinstance(stream, trio.SocketStream):
        # The target may have reset the connection already: macOS then refuses every option with EINVAL.
        with contextlib.suppress(OSError):
            # The fields are l_onoff and l_linger (socket(7)): with a linger time of 0, closing the socket sends a
            # reset.
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.asynccontextmanager
async def stream_wire(tape: Tape, number: int, transport: str, stream: trio.abc.Stream) -> AsyncIterator[LinesWire]:
    """Open a wire over a stream, which is closed when the block ends."""
    wire = LinesWire(tape, number, transport, stream)
    async with background_nursery(wire.leave) as nursery:
        nursery.start_soon(wire.read)
        yield wire


def socket_wire(url: str, *, ssl_context: ssl.SSLContext | None = None) -> OpenWire:
    """Return a function that opens wires to a server over TCP, TLS or a Unix socket.

    Raises:
        TypeError, ValueError: If ``url`` is not the URL of such a server.
    """
    address = read_address(url)

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[LinesWire]:
        stream = await open_socket(address, ssl_context)
        async with stream_wire(tape, number, address.scheme, stream) as wire:
            yield wire

    return opened


# --- in memory --------------------------------------------------------------------------------------------------------


def memory_wire(server: Servable) -> OpenWire:
    """Return a function that opens wires to a server in this program, over streams in memory."""

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[LinesWire]:
        ours, theirs = trio.testing.memory_stream_pair()
        async with background_nursery() as nursery:
            ended = trio.Event()

            async def serve(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC128 - the server calls it
                try:
                    async with stream_link(theirs) as link:
                        await server.serve(link, task_status=task_status)
                finally:
                    ended.set()

            try:
                # `start` waits, unlike `start_soon`: if the server's lifespan fails, opening the wire has to fail,
                # and the failure must not look like a server that closes the connection at once.
                await start(nursery, serve)
            except Exception as exc:
                # The user's server may raise anything, but callers expect a `TransportError` if the target can't be
                # reached.
                raise TransportError(f"the server did not start: {type(exc).__name__}: {exc}") from exc
            async with stream_wire(tape, number, "memory", ours) as wire:
                yield wire
            # The wire is closed by now, and a server that notices this cleans up. The end of the nursery would cancel
            # the clean-up, so it is awaited.
            with trio.move_on_after(SERVER_GRACE):
                await ended.wait()

    return opened


# --- a process --------------------------------------------------------------------------------------------------------


class ProcessWire(LinesWire):
    """A wire to a process, over its standard streams.

    Attributes:
        pid: The id of the process, and of its group.
    """

    def __init__(self, tape: Tape, number: int, child: ChildProcess, grace: float) -> None:
        super().__init__(tape, number, "stdio", trio.StapledStream(child.stdin, child.stdout))
        self.pid = child.pid
        self._child = child
        self._grace = grace
        self._ending = False
        self._heard = 0
        self.stderr = StderrCopier(child.stderr, self._hear)

    async def stop(self, how: Literal["close", "reset", "half"], which: int = 0) -> None:
        """End the process in an orderly way; with ``reset``, kill it; with ``half``, only close its input."""
        if how == "half":
            self.notes.mark("half closed")
            await self._close_input()
        elif how == "reset":
            self._ending = True
            self.notes.close("client", "killed")
            await self._child.end(0)
        else:
            await self._end()

    async def ended(self, reason: str) -> None:
        """Record that the process has ended, or has closed its output."""
        # `_end` notes the end itself, together with the exit status, which is not known yet when the output ends.
        if self._ending:
            return
        # A process that exits closes its output a moment before its exit status is known. Without this wait, each crash
        # would look like a server that has only closed its output and is still running.
        with trio.move_on_after(EXIT_MOMENT):
            await self._child.wait()
        status = self._child.returncode
        if status is None:
            self.notes.close("server", "the process closed its standard output")
        else:
            # A process that ended before it has read anything did not fail over a message: it could not start.
            facts = {"unread": True} if self._is_unread() else {}
            self.notes.close("server", "the process ended", status=status, **facts)

    def _is_unread(self) -> bool:
        """Return whether the process has read nothing of what was sent to it, as far as the system can tell."""
        if sys.platform == "win32":
            return False
        import fcntl
        import termios

        size = bytearray(4)
        # The pipe keeps its bytes after the reader has ended, and counts them for its writing end as well (pipe(7)).
        with contextlib.suppress(OSError, ValueError):
            fcntl.ioctl(self._child.stdin.fileno(), termios.FIONREAD, size)
        return 0 < self._written <= int.from_bytes(size, sys.byteorder)

    async def leave(self) -> None:
        """End the process when the wire's block ends."""
        await self._end()
        with trio.move_on_after(EXIT_MOMENT):
            # The last lines of standard error may still be in the pipe. They are often the traceback that explains why
            # the process ended.
            await self.stderr.ended.wait()

    async def _end(self) -> None:
        # This is the order of `basic/transports` (stdio, shutdown): close the input, wait, SIGTERM, SIGKILL.
        self._ending = True
        await self._close_input()
        began = trio.current_time()
        await self._child.end(self._grace)
        facts = {"status": self._child.returncode, "seconds": trio.current_time() - began}
        self.notes.close("client", "done", **facts)

    async def _close_input(self) -> None:
        # The scope is shielded: closing does not wait, but in a cancelled scope it would raise, and the process would
        # not be ended.
        with trio.CancelScope(shield=True):
            await trio.aclose_forcefully(self._child.stdin)

    def _hear(self, line: str) -> None:
        self._heard += 1
        # Further lines are still read, but dropped. If they were not read, the pipe would fill up, and the process
        # would block and seem to hang.
        if self._heard <= STDERR_LINES:
            self.notes.mark("stderr", text=line.encode())


def process_wire(parameters: StdioServerParameters) -> OpenWire:
    """Return a function that starts a server process and opens a wire to it; its standard error is only noted."""

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[LinesWire]:
        # There must be no checkpoint between starting the process and opening the nursery: a cancellation in between
        # would leave the process running.
        wire = ProcessWire(tape, number, await start_process(parameters), parameters.shutdown_grace)
        async with background_nursery(wire.leave) as nursery:
            for task in (wire.read, wire.stderr.read, wire.stderr.deliver):
                nursery.start_soon(task)
            yield wire

    return opened
