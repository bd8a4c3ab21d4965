"""The protocol of a store of logins, and a store that forgets them when the process ends."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Protocol

import trio

from trio_mcp.auth.client.stores.locks import taken

__all__ = ["MemoryTokens", "TokenStore"]


class TokenStore(Protocol):
    """A store of logins: each is a secret string, stored under a key.

    One object may serve any number of clients, threads and runs of Trio.
    """

    # The methods are abstract although this is a protocol, so that a subclass that lacks one can't be instantiated.
    @abc.abstractmethod
    async def load(self, key: str) -> str | None:
        """Return the text that is stored under a key, or None.

        Raises:
            AuthorizationError: If the store can't be read, or contains something that the store did not write.
        """

    @abc.abstractmethod
    async def save(self, key: str, text: str | None) -> None:
        """Store a text under a key, atomically; None removes it. When this returns, the change is safely stored.

        Raises:
            AuthorizationError: If the store can't be written.
        """

    @abc.abstractmethod
    def lock(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context manager that locks a key, for one task at a time in all processes that share the store.

        The lock is released if the process that holds it dies. `load` and `save` don't take the lock.
        """


class MemoryTokens:
    """A store that keeps logins in memory, until the process ends."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        # The locks are thread locks, since runs of Trio in several threads may share the store.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    async def load(self, key: str) -> str | None:
        """Return the text that is stored under a key, or None."""
        await trio.lowlevel.checkpoint()
        return self._texts.get(key)

    async def save(self, key: str, text: str | None) -> None:
        """Store a text under a key; None removes it."""
        await trio.lowlevel.checkpoint()
        if text is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = text

    @contextlib.asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        """Return a context manager that locks a key, for one task at a time."""
        lock = self._locks[key]
        await taken(lambda: lock.acquire(blocking=False))
        try:
            yield
        finally:
            lock.release()
        await trio.lowlevel.checkpoint()

    async def keys(self) -> list[str]:
        """Return the keys of all stored texts, sorted."""
        await trio.lowlevel.checkpoint()
        return sorted(self._texts)
