"""The server's end of stdio: exchanges messages with the client over this process's standard input and output.

A server must not write anything but messages to its stdout (`basic/transports/stdio`). Therefore the streams to the
client are moved to private descriptors, and what other code and child processes print goes to standard error.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp._platform import check_pipes
from trio_mcp.direct_channel import open_direct_channel
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder
from trio_mcp.jsonrpc.messages import TransportFailure
from trio_mcp.lines import CLOSE_GRACE, LineSender, read_lines
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.stdio.standard_streams import private_streams

__all__ = ["stdio_server"]


@contextlib.asynccontextmanager
async def stdio_server(
    *, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE, exit_grace: float | None = None
) -> AsyncIterator[Link]:
    """Serve one client over this process's standard input and output.

    Inside the block, ``print`` and child processes write to standard error, and standard input is empty. If standard
    error is the same pipe, socket or file as standard output, what they write is dropped, because it must not get
    between the messages. On cancellation, the block ends at once, even while waiting for input.

    Args:
        max_message_size: The maximum length of a line from the client, in bytes; a longer line is refused and skipped.
        exit_grace: Seconds within which the block must be left once the link has ended; after that the process exits
            at once with status 1, without any cleanup, so that code that can't be cancelled does not outlive the client
            forever. The limit is meant for the main program of a process. None sets no limit.

    Raises:
        LocalProtocolError: If this process is already serving its standard streams.
        TransportError: If standard input or output is closed; or, at the end of the block, if one of them has failed
            for a reason other than that the client has left, such as a full disk.
    """
    check_on_trio()
    check_pipes()
    decoder = LineDecoder(max_message_size)  # refuses an invalid limit, so it is made first
    await trio.lowlevel.checkpoint()
    with private_streams() as (stdin, stdout), _last_resort(exit_grace) as deserted:
        inbound, read = open_direct_channel(BUFFER)
        outbound = LineSender(inbound, stdout if isinstance(stdout, trio.lowlevel.FdStream) else None)
        reading = trio.CancelScope()
        written = trio.Event()
        closing = trio.CancelScope()
        failures: list[TransportError] = []

        async def reader() -> None:
            try:
                # When standard input has ended, the session responds to the requests that it has, and ends
                # (`basic/transports/stdio`, Shutdown).
                with reading:
                    await read_lines(stdin.receive_some, decoder, inbound, outbound)
                    inbound.close()
                    deserted()
            except trio.BrokenResourceError as exc:
                await lose("standard input can't be read", exc)

        async def writer() -> None:
            try:
                await outbound.write(stdout.send_all, closing)
            except trio.BrokenResourceError as exc:
                outbound.refuse()
                # Handling further requests would be useless.
                reading.cancel("the client is not reading the responses")
                await lose("standard output can't be written", exc)
            written.set()

        async def lose(what: str, exc: trio.BrokenResourceError) -> None:
            cause = exc.__cause__ or exc
            gone = isinstance(cause, ConnectionError)  # EPIPE, for example: a client may leave at any time
            if not gone:
                failures.append(TransportError(f"{what}: {cause}"))
            await hand_on(
                inbound,
                TransportFailure(
                    TransportError(f"{'the client has closed the connection' if gone else what}: {cause}")
                ),
            )
            inbound.close()
            deserted()

        async def close() -> None:
            # The last messages are still sent; `LineSender.write` extends the deadline while there is progress.
            outbound.close()
            closing.deadline = trio.current_time() + CLOSE_GRACE
            with closing:
                await written.wait()

        with inbound, read, contextlib.closing(outbound):
            async with background_nursery(close) as nursery:
                nursery.start_soon(writer)
                nursery.start_soon(reader)
                yield Link(read, outbound)
        # The failure is raised only here, so that the session, which receives it as a message, first ends in an orderly
        # way.
        if failures:
            raise failures[0]


@contextlib.contextmanager
def _last_resort(grace: float | None) -> Iterator[Callable[[], None]]:
    """Yield a function that starts the countdown to a forced exit of the process; leaving the block stops it."""

    # A thread runs even if a handler blocks the event loop. It calls `os._exit`, because `sys.exit` would end only the
    # thread.
    def give_up() -> None:
        logger.error("the client has left, but requests are still running after %g seconds: ending the process", grace)
        os._exit(1)

    timer = threading.Timer(grace or 0, give_up)
    # If the thread were not a daemon, a process that ends in time would have to wait for the thread.
    timer.daemon = True

    def start() -> None:
        if grace is not None and timer.ident is None:
            timer.start()

    try:
        yield start
    finally:
        timer.cancel()
