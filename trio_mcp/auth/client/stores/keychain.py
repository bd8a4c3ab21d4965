"""A store that keeps logins in the system's keychain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import trio

from trio_mcp.auth.client.stores.files import FileTokens
from trio_mcp.auth.rules.urls import without_query
from trio_mcp.errors import AuthorizationError

__all__ = ["KeyringTokens"]

INSTEAD = "unlock it, or use FileTokens() instead"

ResultT = TypeVar("ResultT")


class KeyringTokens:
    """A store in the system's keychain, with one item for each login; needs the extra ``keyring``.

    Args:
        service: The name under which the keychain shows the items.

    Raises:
        ImportError: If the extra is not installed.
    """

    def __init__(self, service: str = "trio-mcp") -> None:
        # keyring is not imported at the top, because it is an optional dependency.
        try:
            import keyring
        except ImportError:
            raise ImportError("KeyringTokens needs keyring: pip install 'trio-mcp[keyring]'") from None
        self._keyring = keyring
        self._service = service
        # Keychains have no locks, so lock files are used; no login is kept in a file.
        self._locks = FileTokens()

    def __repr__(self) -> str:
        return f"KeyringTokens({self._service!r})"

    async def load(self, key: str) -> str | None:
        """Return the text that is stored under a key, or None.

        Raises:
            AuthorizationError: If there is no keychain, or it is locked, or the item is damaged.
        """
        # The thread is abandoned on cancellation, because a keychain may first ask the person for a password, which may
        # take a long time.
        return await trio.to_thread.run_sync(self._explained, lambda: self._load(key), abandon_on_cancel=True)

    async def save(self, key: str, text: str | None) -> None:
        """Store a text under a key; None removes the item.

        Raises:
            AuthorizationError: If there is no keychain, or it is locked.
        """
        # Unlike in `load`, the thread is not abandoned, because it could store this text after a later call has stored
        # another one.
        await trio.to_thread.run_sync(self._explained, lambda: self._save(key, text))

    def lock(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context manager that locks a key, for one task at a time in all processes of the user."""
        return self._locks.lock(f"{self._service} {key}")

    def _load(self, key: str) -> str | None:
        try:
            found: object = self._keyring.get_password(self._service, key)
            if found is None:
                return None
            if not isinstance(found, str):
                raise ValueError
            found.encode()  # raises a ValueError for a lone surrogate
        except ValueError:
            problem = f"the keychain's item {self._service!r} for {without_query(key)} is damaged"
            raise AuthorizationError("store", problem, advice="delete this item, and sign in again") from None
        return found

    def _save(self, key: str, text: str | None) -> None:
        if text is not None:
            self._keyring.set_password(self._service, key, text)
        # The item is looked up first, because backends raise an error if there is nothing to delete.
        elif self._keyring.get_password(self._service, key) is not None:
            self._keyring.delete_password(self._service, key)

    def _explained(self, act: Callable[[], ResultT]) -> ResultT:
        try:
            return act()
        except AuthorizationError:
            raise
        except self._keyring.errors.NoKeyringError:
            raise AuthorizationError("store", "no keychain is available", advice="use FileTokens() instead") from None
        except Exception as exc:  # a backend raises errors of its own, and their text could quote the secret
            raise AuthorizationError("store", f"the keychain failed: {type(exc).__name__}", advice=INSTEAD) from None
