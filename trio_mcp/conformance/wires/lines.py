"""Messages as lines, over any byte stream: a process, a socket, a server in memory."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
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
"""The most lines of standard error that are noted for one process (arbitrary)."""

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

    async def write(self, texts: Sequence[bytes], *, framed: bool = True, headers: Headers | None = None) -> None:
        """Send each text as a line or, if it is not ``framed``, as it is."""
        await self._write([text + b"\n" for text in texts] if framed else texts)

    async def stop(self, how: Literal["close", "reset", "half"], which: int = 0) -> None:
        """Close or reset the connection; with ``half``, close only the sending side if that is possible."""
        # Trio can't half-close TLS, and the target may have gone: in these cases the whole connection is closed.
        if how == "half" and await half_close(self._stream, self.notes):
            return
        # The close is noted first: it ends the reader, which would otherwise note that the target ended it.
        self.notes.close("client", how)
        if how == "reset":
            reset(self._stream)
        await trio.aclose_forcefully(self._stream)

    async def _write(self, pieces: Sequence[bytes]) -> None:
        # Several tasks may send. The pieces of one must not be mixed with those of another, and Trio raises
        # `BusyResourceError` if two write to a stream at once.
        async with self._sending:
            for piece in pieces:
                # This is checked before each piece: the target may have ended the connection during the previous one.
                if not self.is_open:
                    self.notes.mark("unsent", reason="the connection has ended")
                    return
                # The text is noted before the write: a response may be read while this side is still writing. The notes
                # contain the lines that the peer sees, however they were divided into pieces.
                self.notes.asked()
                for line in self._sent.feed(piece):
                    self.notes.text("client", line)
                try:
                    with trio.fail_after(WRITE_TIMEOUT):
                        await self._stream.send_all(piece)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    self.notes.mark("unsent", reason="the target does not read any more")
                    return
                except trio.TooSlowError:
                    # Part of a line may have been sent, so nothing can follow.
                    self.notes.mark("unsent", reason=f"the target has not read for {WRITE_TIMEOUT:g} seconds")
                    await self.stop("close")
                    return

    async def read(self) -> None:
        """Note everything that arrives until the connection ends; this runs as a task."""
        lines = LineSplitter()
        reason = "end"
        try:
            while chunk := await self._stream.receive_some():
                self.notes.count(len(chunk))
                for line in lines.feed(chunk):
                    self.notes.text("server", line)
        # Trio's message only says that the stream is broken. The system's error behind it distinguishes a reset from a
        # timeout.
        except trio.BrokenResourceError as exc:
            reason = str(exc.__cause__ or "the connection broke")
        except trio.ClosedResourceError:
            pass  # closed by `stop`, which has noted that
        except TooMuch as exc:
            # The close is noted before `ended`, which would note that the target closed the connection. The rest of the
            # line is too long to be kept.
            self.notes.flood(exc)
            lines.rest.clear()
        # A program that dies in the middle of a line leaves a part of it, which may show what it was doing.
        if lines.rest:
            self.notes.text("server", bytes(lines.rest))
        await self.ended(reason)

    async def ended(self, reason: str) -> None:
        """Record that the target has ended the connection."""
        self.notes.close("server", reason)
        # A graceful close of TLS would first send an alert, and would wait if the target has stopped reading.
        await trio.aclose_forcefully(self._stream)

    async def leave(self) -> None:
        """Close the connection when the wire's block ends."""
        self.notes.close("client", "done")
        await trio.aclose_forcefully(self._stream)


async def half_close(stream: trio.abc.Stream, notes: Notes, **facts: Any) -> bool:
    """Close a stream's sending half and note that; return False if it can't be closed, or the target has gone."""
    if isinstance(stream, trio.abc.HalfCloseableStream):
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await stream.send_eof()
            notes.mark("half closed", **facts)
            return True
    return False


def reset(stream: trio.abc.Stream) -> None:
    """Make the next close of a TCP connection a reset; other streams are left as they are."""
    # The option belongs to the socket below TLS. A forceful close then skips TLS's own closing alert, too.
    while isinstance(stream, trio.SSLStream):
        stream = stream.transport_stream
    if isinstance(stream, trio.SocketStream):
        # The target may have reset the connection already: macOS then refuses every option with EINVAL.
        with contextlib.suppress(OSError):
            # l_onoff, l_linger (socket(7))
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
                # `start` waits, unlike `start_soon`: if the server's lifespan fails, opening the wire has to fail, and
                # not look like a server that closes at once.
                await start(nursery, serve)
            except Exception as exc:
                # The user's server may raise anything. Callers expect `TransportError` for a target that can't be
                # reached.
                raise TransportError(f"the server did not start: {type(exc).__name__}: {exc}") from exc
            async with stream_wire(tape, number, "memory", ours) as wire:
                yield wire
            # The wire is closed by now. A server that notices this still has its own clean-up to run, which the end of
            # the nursery would cancel.
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
        """End the process in an orderly way, or kill it with ``reset``; with ``half``, only close its input."""
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
        # A process that exits closes its output a moment earlier. Without this wait, each crash would look like a
        # server that has only closed its output and is still running.
        with trio.move_on_after(EXIT_MOMENT):
            await self._child.wait()
        status = self._child.returncode
        if status is None:
            self.notes.close("server", "the process closed its standard output")
        else:
            self.notes.close("server", "the process ended", status=status)

    async def leave(self) -> None:
        """End the process when the wire's block ends."""
        await self._end()
        with trio.move_on_after(EXIT_MOMENT):
            # The last lines may still be in the pipe, and are often the traceback that explains the end.
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
        # Further lines are still read, and dropped: a process whose standard error is full would block, and seem to
        # hang.
        if self._heard <= STDERR_LINES:
            self.notes.mark("stderr", text=line.encode())


def process_wire(parameters: StdioServerParameters) -> OpenWire:
    """Return a function that starts a server process and opens a wire to it; its standard error is only noted."""

    @contextlib.asynccontextmanager
    async def opened(tape: Tape, number: int, revision: str) -> AsyncIterator[LinesWire]:
        # There must be no checkpoint between the start and the nursery: a cancellation there would leave the process
        # behind.
        wire = ProcessWire(tape, number, await start_process(parameters), parameters.shutdown_grace)
        async with background_nursery(wire.leave) as nursery:
            for task in (wire.read, wire.stderr.read, wire.stderr.deliver):
                nursery.start_soon(task)
            yield wire

    return opened
