"""Logins that are forgotten when the process ends."""

from __future__ import annotations

import contextlib

__all__ = ["MemoryTokens"]


class MemoryTokens:
    """A store in memory."""

    async def load(self, key: str) -> str | None:
        """Return the text under a key; None if there is none."""
        raise NotImplementedError

    async def save(self, key: str, text: str | None) -> None:
        """Replace the text under a key; None removes it."""
        raise NotImplementedError

    def lock(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a block that one task at a time may be in for each key."""
        raise NotImplementedError

    async def keys(self) -> list[str]:
        """Return the keys under which there is a text, sorted."""
        raise NotImplementedError
