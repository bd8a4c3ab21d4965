"""The client's end of stdio: starts a server as a child process, and exchanges messages with it."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import AsyncIterator

import trio

from trio_mcp._checks import as_written, check_on_trio
from trio_mcp._nursery import background_nursery, closing
from trio_mcp._platform import check_pipes
from trio_mcp.direct_channel import open_direct_channel
from trio_mcp.errors import ProcessExited, TransportError
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder
from trio_mcp.jsonrpc.messages import TransportFailure
from trio_mcp.lines import LineSender, read_lines
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.stdio.child_process import ChildProcess, StderrCopier, start_process
from trio_mcp.stdio.parameters import StdioServerParameters

__all__ = ["stdio_client"]

EXIT_MOMENT = 0.5
"""Seconds to wait for a child's exit after one of its streams has ended, or for the rest of its standard error. An
arbitrary choice: a program that exits closes its streams first, and both should be reported as one event."""


@contextlib.asynccontextmanager
async def stdio_client(
    params: StdioServerParameters, *, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
) -> AsyncIterator[Link]:
    """Start a server as a child process and connect to its standard streams.

    When the block ends, the server's standard input is closed. The server has ``shutdown_grace`` seconds to exit; then
    its whole process group gets SIGTERM, and after the same time again, SIGKILL. On cancellation, SIGTERM is sent at
    once, and SIGKILL a moment later. No process that the server started survives the block, unless it has moved to
    another process group.

    Args:
        params: The program to start, with its arguments and settings.
        max_message_size: The maximum length of a line from the server, in bytes; a longer line is skipped.

    Raises:
        TypeError: If ``params`` is not a `StdioServerParameters`.
        TransportError: If the process can't be started.
    """
    check_on_trio()
    check_pipes()
    if not isinstance(params, StdioServerParameters):
        raise TypeError(f"expected StdioServerParameters, got {type(params).__name__}")
    connection = _Connection(params, LineDecoder(max_message_size), await start_process(params))
    with connection.inbound, contextlib.closing(connection.outbound):
        async with background_nursery(connection.end) as nursery:
            for task in connection.tasks:
                nursery.start_soon(task)
            yield connection.link


class _Connection:
    """The tasks that carry messages between a child's standard streams and the channels of a link."""

    def __init__(self, params: StdioServerParameters, decoder: LineDecoder, child: ChildProcess) -> None:
        self._params = params
        self._decoder = decoder
        self._child = child
        self._stderr = StderrCopier(child.stderr, params.stderr, params.label)
        self.inbound, self._read = open_direct_channel(BUFFER)
        self.outbound = LineSender(self.inbound, child.stdin)
        self.link = Link(self._read, self.outbound)
        self._output_ended = trio.Event()
        self._something_ended = trio.Event()
        self.tasks = (
            # There is a task for each of the three streams, because a child may fill one while it waits for another;
            # and one more for the callback on standard error, which may be slow.
            self._read_output,
            self._write_input,
            self._stderr.read,
            self._stderr.deliver,
            self._reap,
            self._tell_of_the_end,
        )

    async def end(self) -> None:
        """End the child while the tasks still read its output: it may have more to write than fits into a pipe."""
        # Without a reader of the channel, `_read_output` discards the rest of the child's output.
        self._read.close()
        # Closing a server's standard input tells it to exit (`basic/transports/stdio`, Shutdown).
        self.outbound.close()
        await self._child.end(self._params.shutdown_grace)
        # When this method returns, the nursery cancels the tasks, but the last lines that the child wrote should still
        # reach the sink.
        with trio.move_on_after(EXIT_MOMENT):
            await self._stderr.ended.wait()

    async def _read_output(self) -> None:
        stdout = self._child.stdout
        async with closing(stdout.aclose):
            try:
                await read_lines(stdout.receive_some, self._decoder, self.inbound, self.outbound)
                while await stdout.receive_some():
                    pass  # the session has stopped reading, but a server that is blocked in a write could not exit
            except trio.BrokenResourceError:
                pass  # a broken pipe is treated like its end
        self._output_ended.set()
        self._something_ended.set()

    async def _write_input(self) -> None:
        stdin = self._child.stdin
        async with closing(stdin.aclose):
            try:
                await self.outbound.write(stdin.send_all)
            except trio.BrokenResourceError:
                self.outbound.refuse()
                self._something_ended.set()  # a server that reads no more requests is useless

    async def _reap(self) -> None:
        await self._child.wait()
        self._something_ended.set()
        # The processes that an exited server has left behind are of no use. They are ended now, while the id of the
        # group can't belong to another one.
        await self._child.end(self._params.shutdown_grace)

    async def _tell_of_the_end(self) -> None:
        """Report to the session that the connection is lost, with the cause, after everything that the server sent."""
        # Wait a moment for the exit: with the exit status and the last lines of standard error, the report says far
        # more than "the pipe was closed".
        await self._something_ended.wait()
        with trio.move_on_after(EXIT_MOMENT):
            await self._child.wait()
        # The output of a child that has exited will end (`ChildOutput`); that of a running one need not.
        if self._child.returncode is not None:
            await self._output_ended.wait()
            with trio.move_on_after(EXIT_MOMENT):  # the callback for standard error may be slow
                await self._stderr.ended.wait()
        await hand_on(self.inbound, TransportFailure(self._cause()))
        self.inbound.close()

    def _cause(self) -> TransportError:
        command = shlex.join(map(as_written, [self._params.command, *self._params.args]))
        tail = "\n".join(self._stderr.tail)
        # If neither the process nor its output has ended, only standard input was closed.
        if self._child.returncode is None and not self._output_ended.is_set():
            said = f"; its standard error ends with:\n{tail}" if tail else ""
            return TransportError(f"the server process {command!r} closed its standard input{said}")
        return ProcessExited(command, self._child.returncode, tail)
