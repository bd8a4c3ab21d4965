"""Descriptors that can't be made non-blocking: files, terminals, and what other processes use as well."""

from __future__ import annotations

import os
import select
import stat
import threading
from collections.abc import Callable
from typing import TypeVar

import trio

__all__ = ["SharedStream", "is_pollable"]

T = TypeVar("T")


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
        while True:
            self._check_open()
            if self._waits:
                await trio.lowlevel.wait_readable(self._fd)
            try:
                return await self._in_thread(lambda: os.read(self._fd, max_bytes or 65536))
            except BlockingIOError:
                continue

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
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
        with self._lock:
            if not self._closed:
                self._closed = True
                self._close_if_unused()

    def _close_if_unused(self) -> None:
        # Closed under a thread that still uses it, the number could become somebody else's file.
        if self._closed and not self._users:
            os.close(self._fd)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()
