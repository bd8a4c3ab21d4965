"""Waiting for conditions that no event announces."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

__all__ = ["eventually"]

T = TypeVar("T")


async def eventually(condition: Callable[[], T | Awaitable[T]]) -> T:
    """Poll a condition, of statistics or of another process, and return its value once it is true."""
    with trio.fail_after(60):  # against a hang only
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await trio.sleep(0.01)
