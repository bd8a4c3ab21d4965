"""Logins that are forgotten when the process ends."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncIterator

import trio

from trio_mcp.auth.client.stores.locks import taken

__all__ = ["MemoryTokens"]


class MemoryTokens:
    """A store in memory."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        # Of threads, since runs of Trio in several of them may share the store.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    async def load(self, key: str) -> str | None:
        """Return the text under a key; None if there is none."""
        await trio.lowlevel.checkpoint()
        return self._texts.get(key)

    async def save(self, key: str, text: str | None) -> None:
        """Replace the text under a key; None removes it."""
        await trio.lowlevel.checkpoint()
        if text is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = text

    @contextlib.asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Return a block that one task at a time may be in for each key."""
        lock = self._locks[key]
        await taken(lambda: lock.acquire(blocking=False))
        try:
            yield
        finally:
            lock.release()

    async def keys(self) -> list[str]:
        """Return the keys under which there is a text, sorted."""
        await trio.lowlevel.checkpoint()
        return sorted(self._texts)
