"""Logins in the keychain of the system."""

from __future__ import annotations

import contextlib

__all__ = ["KeyringTokens"]


class KeyringTokens:
    """A store in the system's keychain, with one item for each login; needs the extra ``keyring``.

    Args:
        service: The name under which the keychain shows the items.

    Raises:
        ImportError: If the extra is not installed.
    """

    def __init__(self, service: str = "trio-mcp") -> None:
        raise NotImplementedError

    async def load(self, key: str) -> str | None:
        """Return the text under a key; None if there is none.

        Raises:
            AuthorizationError: If there is no keychain, or it is locked.
        """
        raise NotImplementedError

    async def save(self, key: str, text: str | None) -> None:
        """Replace the text under a key; None removes the item.

        Raises:
            AuthorizationError: If there is no keychain, or it is locked.
        """
        raise NotImplementedError

    def lock(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a block that one task at a time may be in for each key, over all processes of the user."""
        raise NotImplementedError
