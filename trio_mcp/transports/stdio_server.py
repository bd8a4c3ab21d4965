"""The server's end of stdio: messages on standard input and output, everything else kept away from them.

`basic/transports/stdio`: a server must not write anything to its stdout that is not a message. So the wire moves to
private descriptors, and what prints or runs in this process finds standard error where standard output was.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Iterator

import trio

from trio_mcp._nursery import background_nursery
from trio_mcp.errors import LocalProtocolError, TransportError
from trio_mcp.link import Link
from trio_mcp.protocol.framing import DEFAULT_MAX_MESSAGE_SIZE, LineDecoder
from trio_mcp.protocol.messages import Failure, SessionMessage
from trio_mcp.transports.lines import BUFFER, hand_on, read_lines, write_lines

__all__ = ["stdio_server"]

CLOSE_GRACE = 1.0
"""Seconds that the last messages are given to leave; a client that does not read must not keep the process alive."""

_in_use = False


@contextlib.asynccontextmanager
async def stdio_server(*, max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE) -> AsyncIterator[Link]:
    """Serve the process's standard input and output.

    Inside the block ``print`` and child processes write to standard error, and read nothing from standard input.

    Args:
        max_message_size: The longest line taken from the client, in bytes; a longer one is refused, and skipped.

    Raises:
        LocalProtocolError: This process serves its standard streams already.
    """
    decoder = LineDecoder(max_message_size)
    with _private_descriptors() as (fd_in, fd_out):
        stdin, stdout = _open_input(fd_in), _open_output(fd_out)
        inbound, read = trio.open_memory_channel[SessionMessage](BUFFER)
        write, outbound = trio.open_memory_channel[SessionMessage](BUFFER)

        written = trio.Event()

        async def reader() -> None:
            async with stdin, inbound:
                try:
                    await read_lines(stdin, decoder, inbound)
                except trio.BrokenResourceError as exc:
                    error = TransportError(f"standard input is broken: {exc.__cause__ or exc}")
                    await hand_on(inbound, Failure(error))

        async def writer() -> None:
            async with stdout:
                try:
                    await write_lines(outbound, stdout, inbound)
                except trio.BrokenResourceError as exc:
                    outbound.close()
                    error = TransportError(f"the client has closed its end: {exc.__cause__ or exc}")
                    await hand_on(inbound, Failure(error))
                finally:
                    written.set()

        async with background_nursery() as nursery, read, write:
            nursery.start_soon(writer)
            nursery.start_soon(reader)
            try:
                yield Link(read, write)
            finally:
                write.close()
                with trio.move_on_after(CLOSE_GRACE):
                    await written.wait()


@contextlib.contextmanager
def _private_descriptors() -> Iterator[tuple[int, int]]:
    """Move the wire from descriptors 0 and 1 to private ones, and put harmless things in their place."""
    global _in_use
    if _in_use:
        raise LocalProtocolError("this process serves its standard streams already")
    _in_use = True
    sys.stdout.flush()
    fd_in, fd_out = os.dup(0), os.dup(1)  # not inherited by child processes (PEP 446)
    kept_in, kept_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(null, 0)
        os.dup2(2, 1)
        yield fd_in, fd_out
    finally:
        sys.stdout.flush()
        os.dup2(kept_in, 0)
        os.dup2(kept_out, 1)
        for fd in (kept_in, kept_out, null):
            os.close(fd)
        _in_use = False


def _open_input(fd: int) -> trio.abc.ReceiveStream:
    return trio.lowlevel.FdStream(fd) if _pollable(fd) else _ThreadStream(fd)


def _open_output(fd: int) -> trio.abc.SendStream:
    return trio.lowlevel.FdStream(fd) if _pollable(fd) else _ThreadStream(fd)


def _pollable(fd: int) -> bool:
    """Whether a descriptor can be made non-blocking without hurting anybody else.

    Files can't be polled. A terminal, or a pipe or socket that is standard error as well, shares its file description
    with others, who don't expect it to be non-blocking.
    """
    status = os.fstat(fd)
    if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
        return False
    try:
        return not os.path.samestat(status, os.fstat(2))
    except OSError:  # standard error is closed
        return True


class _ThreadStream(trio.abc.ReceiveStream, trio.abc.SendStream):
    """A blocking descriptor read and written in threads; a cancelled read leaves its thread behind, waiting."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._limiter = trio.CapacityLimiter(1)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        try:
            return await trio.to_thread.run_sync(
                os.read, self._fd, max_bytes or 65536, abandon_on_cancel=True, limiter=self._limiter
            )
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(bytes(data))
        try:
            while view:
                written = await trio.to_thread.run_sync(
                    os.write, self._fd, view, abandon_on_cancel=True, limiter=self._limiter
                )
                view = view[written:]
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        if self._fd >= 0 and self._limiter.borrowed_tokens == 0:
            os.close(self._fd)
        # A thread still reads the descriptor: closing it under the thread could hand its number to somebody else.
        self._fd = -1
        await trio.lowlevel.checkpoint()
