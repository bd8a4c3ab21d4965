"""Locks that tasks of several runs, threads and processes wait for, and can stop waiting for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

import trio

from trio_mcp._platform import try_to_lock, unlock

__all__ = ["file_locked", "taken"]

# A lock is tried again rather than waited for: a wait for it in a thread could not be cancelled. It is contended
# once per refresh, and then for about as long as an HTTP exchange.
SHORTEST: Final = 0.005
LONGEST: Final = 0.1


async def taken(take: Callable[[], bool]) -> None:
    """Wait until a lock has been taken."""
    await trio.lowlevel.checkpoint()
    pause = SHORTEST
    while not take():
        await trio.sleep(pause)
        pause = min(2 * pause, LONGEST)


@contextlib.asynccontextmanager
async def file_locked(path: str) -> AsyncIterator[None]:
    """Hold the lock on a file, which is made if need be, for a block.

    The system unlocks it when the process ends, however it ends. The file stays: removing it
    could remove one that another process has just locked.

    Raises:
        OSError: If the file can't be opened, or locked.
    """
    # The lock belongs to what is opened here, so that tasks of one process exclude each other, too.
    # No link is followed: it could have a file made, or locked, somewhere else.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        await taken(lambda: try_to_lock(descriptor))
        try:
            yield
        finally:
            # The close alone would not unlock it: a forked child may have the descriptor, too.
            unlock(descriptor)
    finally:
        os.close(descriptor)
    await trio.lowlevel.checkpoint()
