"""A nursery for the background tasks of an async context manager."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import trio

__all__ = ["background_nursery"]


@contextlib.asynccontextmanager
async def background_nursery() -> AsyncIterator[trio.Nursery]:
    """A nursery that ends with its block: leaving it cancels what still runs.

    The nursery is an implementation detail of whoever opens it, so what was raised in the block leaves it as the very
    object that it was, never wrapped in a group. If a background task fails, its exception leaves the block.
    """
    failure: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            try:
                yield nursery
            finally:
                nursery.cancel_scope.cancel("the block that these background tasks belong to has ended")
    except BaseExceptionGroup as group:
        members = [exc for exc in group.exceptions if not isinstance(exc, trio.Cancelled)]
        failure = members[0] if len(members) == 1 else group
    if failure is not None:
        raise failure
