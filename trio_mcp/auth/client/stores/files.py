"""Logins in files that only their owner can read."""

from __future__ import annotations

import contextlib
import os

__all__ = ["FileTokens"]


class FileTokens:
    """A store in a folder with one file for each login; several processes may share it.

    Args:
        folder: The folder, made if there is none; by default ``trio-mcp/logins`` in ``$XDG_DATA_HOME``, or else in
            ``~/.local/share``.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        raise NotImplementedError

    async def load(self, key: str) -> str | None:
        """Return the text under a key; None if there is none.

        Raises:
            AuthorizationError: If the file is damaged, can be read by others, or belongs to someone else.
        """
        raise NotImplementedError

    async def save(self, key: str, text: str | None) -> None:
        """Replace the text under a key, all at once and safely on disk; None removes the file.

        Raises:
            AuthorizationError: If it can't be written.
        """
        raise NotImplementedError

    def lock(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a block that one task at a time may be in for each key, over all processes that share the folder."""
        raise NotImplementedError

    async def keys(self) -> list[str]:
        """Return the keys under which there is a text, sorted."""
        raise NotImplementedError
