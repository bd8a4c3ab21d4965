"""The server's end of stdio: messages on standard input and output, everything else kept away from them.

`basic/transports/stdio`: a server must not write anything to its stdout that is not a message. So the wire moves to
private descriptors, and what prints or runs in this process finds standard error where standard output was.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import trio

from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.errors import TransportError
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder
from trio_mcp.jsonrpc.messages import Failure, SessionMessage
from trio_mcp.link import BUFFER, Link, hand_on
from trio_mcp.stdio.lines import CLOSE_GRACE, read_lines, write_lines
from trio_mcp.stdio.standard_streams import private_streams

__all__ = ["stdio_server"]


@contextlib.asynccontextmanager
async def stdio_server(
    *, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE, exit_grace: float | None = None
) -> AsyncIterator[Link]:
    """Serve the process's standard input and output.

    Inside the block ``print`` and child processes write to standard error, and read nothing from standard input.
    Where standard error is the same pipe, socket or file as standard output, what they write is dropped: it must not
    get between the messages. When cancelled, the block ends at once, also while nothing arrives.

    Args:
        max_message_size: The longest line taken from the client, in bytes; a longer one is refused, and skipped.
        exit_grace: Seconds after the end of the link within which the block must have been left, or the process ends
            with status 1 there and then: code that can't be cancelled must not outlive the client forever. None sets
            no such limit. For the main program of a process; nothing else gets a chance to clean up.

    Raises:
        LocalProtocolError: This process serves its standard streams already.
        TransportError: Standard input or output is closed; or, at the end of the block, one of them has failed
            otherwise than by the client's leaving: the disk is full that standard output goes to, for example.
    """
    decoder = LineDecoder(max_message_size)
    await trio.lowlevel.checkpoint()
    with private_streams() as (stdin, stdout), _last_resort(exit_grace) as deserted:
        inbound, read = trio.open_memory_channel[SessionMessage](BUFFER)
        write, outbound = trio.open_memory_channel[SessionMessage](BUFFER)
        reading = trio.CancelScope()
        written = trio.Event()
        closing = trio.CancelScope()
        failures: list[TransportError] = []

        async def reader() -> None:
            try:
                with reading:
                    await read_lines(stdin, decoder, inbound)
                    inbound.close()
                    deserted()
            except trio.BrokenResourceError as exc:
                await lose("standard input can't be read", exc)

        async def writer() -> None:
            try:
                await write_lines(outbound, stdout, inbound, closing)
            except trio.BrokenResourceError as exc:
                outbound.close()
                reading.cancel("nobody reads the answers")
                await lose("standard output can't be written", exc)
            written.set()

        async def lose(what: str, exc: trio.BrokenResourceError) -> None:
            cause = exc.__cause__ or exc
            gone = isinstance(cause, ConnectionError)  # EPIPE and its like: nothing to complain about
            if not gone:
                failures.append(TransportError(f"{what}: {cause}"))
            await hand_on(
                inbound, Failure(TransportError(f"{'the client has closed its end' if gone else what}: {cause}"))
            )
            inbound.close()
            deserted()

        async def close() -> None:
            write.close()
            closing.deadline = trio.current_time() + CLOSE_GRACE
            with closing:
                await written.wait()

        with inbound, outbound, read, write:
            async with background_nursery(close) as nursery:
                nursery.start_soon(writer)
                nursery.start_soon(reader)
                yield Link(read, write)
        if failures:
            raise failures[0]


@contextlib.contextmanager
def _last_resort(grace: float | None) -> Iterator[Callable[[], None]]:
    """Gives what starts the time within which the block must be left; a thread keeps it, whatever holds the loop up."""

    def give_up() -> None:
        logger.error(
            "the client has gone, and what it asked for still runs after %g seconds: ending the process", grace
        )
        os._exit(1)

    timer = threading.Timer(grace or 0, give_up)
    timer.daemon = True

    def start() -> None:
        if grace is not None and timer.ident is None:
            timer.start()

    try:
        yield start
    finally:
        timer.cancel()
