"""Waiting for what no event tells of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

__all__ = ["eventually"]

T = TypeVar("T")


async def eventually(condition: Callable[[], T | Awaitable[T]]) -> T:
    """Return what a condition gives once it is true: of statistics, or of what another process does."""
    with trio.fail_after(60):  # against a hang only
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return found
            await trio.sleep(0.01)
