"""What an HTTP client needs from its ``auth=``; `trio_mcp.auth` implements it and is not imported here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from trio_mcp.http.headers import Headers

__all__ = ["Attempt", "Auth", "Pause", "Signer"]

Pause: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
"""Makes a block in which no timeout of the client runs: a person is being asked."""


class Attempt(Protocol):
    """The authorization of one operation, however often its request has to be sent."""

    async def fields(self, method: str, url: str) -> Sequence[tuple[str, str]]:
        """Return the header fields that authorize a request, fresh for each time that it is sent.

        Raises:
            AuthorizationError: If there is no authorization to be had.
        """

    async def again(self, status: int, headers: Headers) -> bool:
        """Look at the head of each response, and return whether to send the request once more.

        It may take as long as a person needs. The response is closed by then, or will be.

        Raises:
            AuthorizationError: If the server refuses the request, and nothing more can be done about it.
        """


class Signer(Protocol):
    """The authorization of the requests to one server."""

    def attempt(self) -> Attempt:
        """Begin an operation."""


class Auth(Protocol):
    """What can be passed as ``auth=``. One object may serve any number of clients at the same time."""

    def opened(self, server: str, pause: Pause) -> contextlib.AbstractAsyncContextManager[Signer]:
        """Return a block in which requests to a server are authorized; its tasks end with the block.

        Args:
            server: The URL of the server.
            pause: Makes a block in which no timeout of the client runs.
        """
