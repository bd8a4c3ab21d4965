"""The redirection of a browser, awaited on a port of the loopback interface (RFC 8252, section 7.3)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

__all__ = ["Redirections", "listening"]


class Redirections:
    """Redirections of a browser, as they arrive.

    Attributes:
        uri: The redirect URI, with the port that was bound.
    """

    uri: str

    async def one(self, state: str) -> Mapping[str, str]:
        """Wait for the redirection with this ``state``, and return its parameters.

        Others are answered with 400, and it goes on waiting.

        Raises:
            AuthorizationError: After 100 wrong ones.
        """
        raise NotImplementedError


def listening(redirect: str) -> contextlib.AbstractAsyncContextManager[Redirections]:
    """Return a block that listens for redirections.

    Args:
        redirect: The redirect URI, with ``127.0.0.1``, ``[::1]`` or ``localhost`` as its host; port 0 takes a free one.

    Raises:
        AuthorizationError: If the port is taken.
        ValueError: If the URI is not one of ``http`` on loopback.
    """
    raise NotImplementedError
