"""This process's standard streams as a wire: moved to private descriptors, and harmless things put in their place.

Some descriptors can be made non-blocking, and trio reads and writes them. Others must be left as they are, because
other processes share their description: those are read and written in threads, by `SharedStream`.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import trio

from trio_mcp.errors import LocalProtocolError, TransportError
from trio_mcp.stdio.lines import CHUNK, PipeReader, check_size

__all__ = ["SharedStream", "is_pollable", "private_streams"]

T = TypeVar("T")

_in_use = False


@contextlib.contextmanager
def private_streams() -> Iterator[tuple[trio.abc.ReceiveStream, trio.abc.SendStream]]:
    """Take descriptors 0 and 1 away from everybody else in this process, for as long as the block runs.

    Meanwhile 0 is empty, and 1 is standard error. Where standard error is the wire itself (``2>&1``), 1 and 2 lead
    nowhere; not so on a terminal, where somebody may be looking.

    Raises:
        LocalProtocolError: They are taken already.
        TransportError: Standard input or output is closed.
    """
    global _in_use
    if _in_use:
        raise LocalProtocolError("this process serves its standard streams already")
    for fd, name in enumerate(("input", "output")):
        if not _is_open(fd):
            raise TransportError(f"there is no standard {name} to serve: it is closed")
    _flush()
    with contextlib.ExitStack() as cleanup:  # undone from the last line to the first
        stdin, stdout = _take(0, cleanup), _take(1, cleanup)
        null = os.open(os.devnull, os.O_RDWR)
        cleanup.callback(os.close, null)
        if not _is_open(2):
            replacements = {0: null, 1: null}
        elif os.path.samestat(os.fstat(1), os.fstat(2)) and not os.isatty(1):
            replacements = {0: null, 1: null, 2: null}
        else:
            replacements = {0: null, 1: 2}
        for fd, replacement in replacements.items():
            kept = os.dup(fd)
            cleanup.callback(os.close, kept)
            cleanup.callback(os.dup2, kept, fd)
            os.dup2(replacement, fd)
        cleanup.callback(_flush)
        _in_use = True
        try:
            yield PipeReader(stdin) if isinstance(stdin, trio.lowlevel.FdStream) else stdin, stdout
        finally:
            _in_use = False


def _is_open(fd: int) -> bool:
    # What was closed when Python started is None here, and its number may have become anything since.
    if (sys.__stdin__, sys.__stdout__, sys.__stderr__)[fd] is None:
        return False
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _flush() -> None:
    """Send what was printed where it belongs, before that place changes."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        pass  # broken or closed: whoever printed has been told, or nobody wants to know


def _take(fd: int, cleanup: contextlib.ExitStack) -> trio.lowlevel.FdStream | SharedStream:
    """A stream over a private copy of a descriptor, which child processes don't inherit (PEP 446)."""
    # Restored here and not by `FdStream`: one description may be input and output, and the first of the two streams
    # to close would make it block under the other.
    cleanup.callback(os.set_blocking, fd, os.get_blocking(fd))
    stream: trio.lowlevel.FdStream | SharedStream
    if is_pollable(fd):
        os.set_blocking(fd, False)
        stream = trio.lowlevel.FdStream(os.dup(fd))
    else:
        stream = SharedStream(os.dup(fd))
    cleanup.callback(stream.close)
    return stream


def is_pollable(fd: int) -> bool:
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


class SharedStream(trio.abc.ReceiveStream, trio.abc.SendStream):
    """A stream over a descriptor whose mode is left alone: it is read and written in threads.

    A thread only starts when there is something to do, so that a cancelled wait leaves none behind. Should one be
    stuck all the same (somebody else was faster), a cancellation abandons it.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        self._fd = fd
        self._limiter = trio.CapacityLimiter(2)  # one to read, one to write; of its own, as it must never wait
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        check_size(max_bytes)
        while True:  # noqa: ASYNC913 - the thread is one
            self._check_open()
            if self._waits:
                await trio.lowlevel.wait_readable(self._fd)
            try:
                return await self._in_thread(lambda: os.read(self._fd, max_bytes or CHUNK))
            except BlockingIOError:
                continue

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self._check_open()
        await trio.lowlevel.checkpoint()
        view = memoryview(bytes(data))
        while view:
            self._check_open()
            piece = view
            if self._waits:
                await trio.lowlevel.wait_writable(self._fd)
                piece = view[: select.PIPE_BUF]  # what "writable" promises room for (POSIX, `write`)
            try:
                view = view[await self._in_thread(lambda piece=piece: os.write(self._fd, piece)) :]  # type: ignore[misc]
            except BlockingIOError:
                continue

    async def wait_send_all_might_not_block(self) -> None:
        self._check_open()
        if self._waits:
            await trio.lowlevel.wait_writable(self._fd)
        else:
            await trio.lowlevel.checkpoint()

    def _check_open(self) -> None:
        if self._closed:
            raise trio.ClosedResourceError("this stream was closed")

    async def _in_thread(self, operation: Callable[[], T]) -> T:
        def work() -> T:
            with self._lock:
                self._check_open()
                self._users += 1
            try:
                return operation()
            finally:
                with self._lock:
                    self._users -= 1
                    self._close_if_unused()

        try:
            return await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
        except BlockingIOError:
            raise
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    def close(self) -> None:
        if not self._closed:
            trio.lowlevel.notify_closing(self._fd)
            with self._lock:
                self._closed = True
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        # Closed under a thread that still uses it, the number could become somebody else's file.
        if self._closed and not self._users:
            os.close(self._fd)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
