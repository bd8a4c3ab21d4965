"""Locks across runs of Trio, threads and processes; a task that waits for one can be cancelled."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Callable
from typing import Final

import trio

from trio_mcp._platform import try_to_lock, unlock

__all__ = ["file_locked", "taken"]

# A lock is polled, because a thread that waits for it could not be cancelled. Polling is cheap: processes compete for a
# lock only once per refresh, for about as long as an HTTP exchange takes. Both pauses are in seconds.
SHORTEST: Final = 0.005
LONGEST: Final = 0.1


async def taken(take: Callable[[], bool]) -> None:
    """Call ``take``, which tries to take a lock, until it succeeds; wait between the attempts."""
    await trio.lowlevel.checkpoint()
    pause = SHORTEST
    while not take():
        await trio.sleep(pause)
        pause = min(2 * pause, LONGEST)


@contextlib.asynccontextmanager
async def file_locked(path: str) -> AsyncIterator[None]:
    """Return a context manager that holds a lock on a file; the file is created if need be.

    The system releases the lock when the process ends, however it ends. The file is not removed, since another process
    may just have locked it.

    Raises:
        OSError: If the file can't be opened, or locked.
    """
    # The lock belongs to the file as it is opened here, so that tasks in one process exclude each other, too. Symbolic
    # links are not followed: a link could lead to a file somewhere else, which would then be created or locked.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        await taken(lambda: try_to_lock(descriptor))
        try:
            yield
        finally:
            # Closing alone would not release the lock: a forked child may have the descriptor, too.
            unlock(descriptor)
    finally:
        os.close(descriptor)
    await trio.lowlevel.checkpoint()
