"""What a store of logins has to offer."""

from __future__ import annotations

import contextlib
from typing import Protocol

__all__ = ["TokenStore"]


class TokenStore(Protocol):
    """A store of logins: texts under keys. The texts are secret.

    One object may serve any number of clients, threads and runs of Trio.
    """

    async def load(self, key: str) -> str | None:
        """Return the text under a key; None if there is none.

        Raises:
            AuthorizationError: If the store can't be read, or holds something that it did not write.
        """

    async def save(self, key: str, text: str | None) -> None:
        """Replace the text under a key, all at once; None removes it. Once it returns, the text is safe.

        Raises:
            AuthorizationError: If the store can't be written.
        """

    def lock(self, key: str) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a block that one task at a time may be in for each key, over all processes that share the store.

        A process that dies leaves it unlocked. `load` and `save` don't take the lock.
        """
