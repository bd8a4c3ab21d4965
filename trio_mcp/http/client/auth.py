"""The ``auth=`` of a client, as HTTP and WebSocket see it; `trio_mcp.auth` implements it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from trio_mcp.stopwatch import current_stopwatch

if TYPE_CHECKING:  # clients of other transports need not load it
    from trio_mcp.http.headers import Headers

__all__ = ["Attempt", "Auth", "Pause", "Signer", "check_auth", "extensions_of", "opened"]

Pause: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
"""Returns a block in which no timeout of the client runs, because a person is being asked."""


class Attempt(Protocol):
    """The authorization of one operation, however often its request has to be sent."""

    async def fields(self, method: str, url: str) -> Sequence[tuple[str, str]]:
        """Return the header fields that authorize a request, fresh for each time that it is sent.

        Raises:
            AuthorizationError: If no authorization can be obtained.
        """

    async def again(self, status: int, headers: Headers) -> bool:
        """Examine the head of a response, and return whether to send the request once more.

        This is called for every response, and may take as long as a person needs. By then, the connection of a refused
        request has been released.

        Raises:
            AuthorizationError: If the server refuses the request, and nothing more can be done about it.
        """


class Signer(Protocol):
    """The authorization of the requests to one server."""

    def attempt(self) -> Attempt:
        """Begin an operation."""


@runtime_checkable
class Auth(Protocol):
    """The ``auth=`` of a client. One object may serve any number of clients at the same time.

    It may have an attribute ``extensions``, a mapping: the extensions of the protocol that a client with this ``auth=``
    declares, each with its settings.
    """

    def opened(self, server: str, pause: Pause) -> contextlib.AbstractAsyncContextManager[Signer]:
        """Return a block in which requests to a server are authorized; its tasks end with the block.

        Args:
            server: The URL of the server.
            pause: Returns a block in which no timeout of the client runs.
        """


def check_auth(value: object) -> None:
    """Check that something can be passed as ``auth=``.

    Raises:
        TypeError: If it can't, for example because it is a class.
    """
    if value is None or (isinstance(value, Auth) and not isinstance(value, type)):
        return
    given = f"the class {value.__name__} itself" if isinstance(value, type) else type(value).__name__
    raise TypeError(f"auth must be an OAuth, a BearerToken or another object of trio_mcp.auth, got {given}")


@contextlib.asynccontextmanager
async def opened(auth: Auth | None, server: str) -> AsyncIterator[Signer | None]:
    """Open an ``auth=``, if there is one; a person that it asks may take any time."""
    if auth is None:
        yield None
    else:
        stopwatch = current_stopwatch()
        stopwatch.stoppable = True
        async with auth.opened(server, stopwatch.pause) as signer:
            yield signer


def extensions_of(auth: Auth | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the extensions of the protocol that a client declares because of its ``auth=``."""
    found: Mapping[str, Mapping[str, Any]] = getattr(auth, "extensions", {})
    return found
