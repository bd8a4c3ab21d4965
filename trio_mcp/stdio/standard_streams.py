"""Moves this process's standard input and output to private descriptors, and reads and writes those as streams.

Some descriptors can be made non-blocking, so that trio reads and writes them. Others must be left as they are, because
other processes share their file description; `SharedStream` reads and writes them in threads.
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
from trio_mcp.lines import CHUNK, PipeReader, check_size

__all__ = ["SharedStream", "is_pollable", "private_streams"]

T = TypeVar("T")

# The flag is global, because a process has only one descriptor 0 and one descriptor 1.
_in_use = False


@contextlib.contextmanager
def private_streams() -> Iterator[tuple[trio.abc.ReceiveStream, trio.abc.SendStream]]:
    """Take descriptors 0 and 1 away from all other code in this process while the block runs.

    During the block, descriptor 0 is empty and 1 is standard error. If standard error is the same file as standard
    output (``2>&1``), 1 and 2 lead to ``/dev/null``, except on a terminal, where a person may be reading.

    Raises:
        LocalProtocolError: If the descriptors are already taken.
        TransportError: If standard input or output is closed.
    """
    global _in_use
    if _in_use:
        raise LocalProtocolError("this process is already serving its standard streams")
    for fd, name in enumerate(("input", "output")):
        if not _is_open(fd):
            raise TransportError(f"can't serve over standard {name}: it is closed")
    _flush()  # text that was printed before the block belongs to the old standard output
    with contextlib.ExitStack() as cleanup:  # the callbacks run in reverse order
        # The private copies are made before the replacements, which overwrite the originals.
        stdin, stdout = _take(0, cleanup), _take(1, cleanup)
        null = os.open(os.devnull, os.O_RDWR)
        cleanup.callback(os.close, null)
        # `samestat` compares device and inode: after `2>&1` both descriptors are the same file.
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
        # This callback is added last and so runs first: text printed inside the block must go to standard error, not to
        # the client.
        cleanup.callback(_flush)
        _in_use = True
        try:
            yield PipeReader(stdin) if isinstance(stdin, trio.lowlevel.FdStream) else stdin, stdout
        finally:
            _in_use = False


def _is_open(fd: int) -> bool:
    # If a stream was closed when Python started, its object is None, and its number may have been reused since.
    if (sys.__stdin__, sys.__stdout__, sys.__stderr__)[fd] is None:
        return False
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _flush() -> None:
    """Flush the text that was printed to standard output, before its destination changes."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        pass  # broken or closed: the code that printed has already got an error, or ignores it


def _take(fd: int, cleanup: contextlib.ExitStack) -> trio.lowlevel.FdStream | SharedStream:
    """Open a stream over a private copy of a descriptor, which child processes don't inherit (PEP 446)."""
    # The blocking mode is restored here instead of by `FdStream`: input and output may share one file description (a
    # socket), and the first of the two streams to close would make the other one blocking.
    cleanup.callback(os.set_blocking, fd, os.get_blocking(fd))
    if is_pollable(fd):
        os.set_blocking(fd, False)
        stream: trio.lowlevel.FdStream | SharedStream = trio.lowlevel.FdStream(os.dup(fd))
    else:
        stream = SharedStream(os.dup(fd))
    cleanup.callback(stream.close)
    return stream


def is_pollable(fd: int) -> bool:
    """Return whether a descriptor can be made non-blocking without affecting other processes.

    Files can't be polled. A terminal, or a pipe or socket that is also standard error, shares its file description with
    other processes, which don't expect it to be non-blocking.
    """
    # O_NONBLOCK belongs to the file description, which `dup` and inheritance share (fcntl(2)).
    status = os.fstat(fd)
    if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
        return False
    try:
        return not os.path.samestat(status, os.fstat(2))
    except OSError:  # standard error is closed
        return True


class SharedStream(trio.abc.ReceiveStream, trio.abc.SendStream):
    """A stream over a descriptor that stays blocking, and so is read and written in threads.

    A thread is started only when the descriptor is ready, so that a cancelled wait leaves no thread behind. If a thread
    blocks nevertheless, because another process was faster, a cancellation abandons it.
    """

    def __init__(self, fd: int) -> None:
        mode = os.fstat(fd).st_mode
        self._waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)
        self._fd = fd
        self._limiter = trio.CapacityLimiter(2)  # one thread reads and one writes; neither waits for others
        # This lock guards `_users` and `_closed`, because threads use them, too.
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        check_size(max_bytes)
        while True:  # noqa: ASYNC913 - the thread is a checkpoint
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
        # The data is copied, because an abandoned thread may still be writing when the caller has moved on.
        view = memoryview(bytes(data))
        while view:
            self._check_open()
            piece = view
            if self._waits:
                await trio.lowlevel.wait_writable(self._fd)
                # "Writable" guarantees room only for this many bytes (POSIX, `write`); more could block the thread.
                piece = view[: select.PIPE_BUF]
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
        # An abandoned thread continues to use the descriptor after `close`, so the last user closes it.
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
        except BlockingIOError:  # another process has made the descriptor non-blocking: the caller tries again
            raise
        except OSError as exc:
            raise trio.BrokenResourceError from exc

    def close(self) -> None:
        if not self._closed:
            # `notify_closing` wakes the tasks that wait for the descriptor; these tasks raise ClosedResourceError.
            trio.lowlevel.notify_closing(self._fd)
            with self._lock:
                self._closed = True
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        # If the descriptor were closed while a thread still uses it, its number could be reused for another file.
        if self._closed and not self._users:
            os.close(self._fd)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
