"""The client's end of stdio: a server as a child process."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.errors import ProcessExited
from trio_mcp.link import Link
from trio_mcp.protocol.framing import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder
from trio_mcp.protocol.messages import Failure, SessionMessage
from trio_mcp.transports.lines import BUFFER, hand_on, read_lines, write_lines
from trio_mcp.transports.process import STDERR_TAIL, StdioServerParameters, copy_stderr, end_process, start_process

__all__ = ["StdioServerParameters", "stdio_client"]

EXIT_MOMENT = 0.5
"""Seconds between the end of the child's output and its exit, or the other way round, that still count as one event."""


@contextlib.asynccontextmanager
async def stdio_client(
    params: StdioServerParameters, *, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
) -> AsyncIterator[Link]:
    """Start a server as a child process and connect to its standard streams.

    When the block ends, the server's standard input is closed; it has ``shutdown_grace`` seconds to exit, then its
    whole process group gets SIGTERM, and SIGKILL in the end. When cancelled, that happens at once. Nothing that the
    server started and left in its group survives.

    Args:
        params: What to start, and how.
        max_message_size: The longest line taken from the server, in bytes; a longer one is skipped.

    Raises:
        TypeError: ``params`` is something else.
        TransportError: The process can't be started.
    """
    if not isinstance(params, StdioServerParameters):
        raise TypeError(f"expected StdioServerParameters, got {type(params).__name__}")
    decoder = LineDecoder(max_message_size)
    process = await start_process(params)
    try:
        async with _connect(process, params, decoder) as link:
            yield link
    finally:
        await end_process(process, params.shutdown_grace)


@contextlib.asynccontextmanager
async def _connect(process: trio.Process, params: StdioServerParameters, decoder: LineDecoder) -> AsyncIterator[Link]:
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    inbound, read = trio.open_memory_channel[SessionMessage](BUFFER)
    write, outbound = trio.open_memory_channel[SessionMessage](BUFFER)
    tail: deque[str] = deque(maxlen=STDERR_TAIL)
    output_ended = trio.Event()

    async def reader() -> None:
        try:
            await read_lines(stdout, decoder, inbound)
            while await stdout.receive_some(65536):
                pass  # nobody listens any more, but a server that can't write could not exit
        except trio.BrokenResourceError:
            pass  # as good as its end
        output_ended.set()

    async def writer() -> None:
        async with stdin:
            try:
                await write_lines(outbound, stdin, inbound)
            except trio.BrokenResourceError:
                outbound.close()
                output_ended.set()  # a server that takes no more requests is as good as gone

    async def watcher() -> None:
        """Tell the session of the end, with its cause: the exit of the process or the end of its output."""
        async with trio.open_nursery() as nursery:

            async def until_exit() -> None:
                await process.wait()
                # A grandchild may hold the pipe open, so its end is not to be waited for.
                with trio.move_on_after(EXIT_MOMENT):
                    await output_ended.wait()
                nursery.cancel_scope.cancel()

            nursery.start_soon(until_exit)
            await output_ended.wait()
            with trio.move_on_after(EXIT_MOMENT):
                await process.wait()
            nursery.cancel_scope.cancel()
        with trio.move_on_after(EXIT_MOMENT):
            await stderr_copied.wait()
        command = " ".join([params.command, *params.args])
        await hand_on(inbound, Failure(ProcessExited(command, process.returncode, "\n".join(tail))))
        inbound.close()

    stderr_copied = trio.Event()

    async def errors() -> None:
        async with stderr:
            await copy_stderr(stderr, params.stderr, tail)
        stderr_copied.set()

    async with background_nursery() as nursery, read, write:
        for task in (reader, writer, errors, watcher):
            nursery.start_soon(task)
        try:
            yield Link(read, write)
        finally:
            # Closing its standard input is how a server learns that it should go (`basic/transports/stdio`, Shutdown).
            write.close()
            with trio.move_on_after(params.shutdown_grace):
                await process.wait()
                await stderr_copied.wait()
