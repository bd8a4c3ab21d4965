"""The interface of a client's ``auth=`` for the HTTP and WebSocket transports; `trio_mcp.auth` implements it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from trio_mcp.stopwatch import current_stopwatch

if TYPE_CHECKING:  # clients over other transports need not load `trio_mcp.http.headers`
    from trio_mcp.http.headers import Headers

__all__ = ["Attempt", "Auth", "Pause", "Signer", "check_auth", "extensions_of", "guard_of", "opened"]

Pause: TypeAlias = Callable[[], contextlib.AbstractContextManager[None]]
"""A function that returns a context manager: inside its block, the client's timeouts stand still, because a person is
being asked to sign in."""


class Attempt(Protocol):
    """The authorization of one operation, however often its request has to be sent."""

    async def fields(self, method: str, url: str) -> Sequence[tuple[str, str]]:
        """Return the header fields that authorize a request, made afresh each time the request is sent.

        Raises:
            AuthorizationError: If no authorization can be obtained.
        """

    async def again(self, status: int, headers: Headers) -> bool:
        """Examine the head of a response, and return whether to send the request once more.

        This is called for every response, and may take as long as a person needs. The connection of a refused request
        is released before the call.

        Raises:
            AuthorizationError: If the server refuses the request, and nothing more can be done about it.
        """


class Signer(Protocol):
    """An object that authorizes the requests to one server."""

    def attempt(self) -> Attempt:
        """Begin an operation, and return its authorization."""


@runtime_checkable
class Auth(Protocol):
    """The ``auth=`` of a client. One object may serve any number of clients at the same time.

    The object may have an attribute ``extensions``, which maps each protocol extension that a client with this
    ``auth=`` declares to its settings. If it signs for the one request that a server's function serves when it opens
    the client, it has a method ``guard``: called for each client, it returns a middleware that refuses the calls of
    other requests.
    """

    def opened(self, server: str, pause: Pause) -> contextlib.AbstractAsyncContextManager[Signer]:
        """Return a context manager whose signer authorizes requests to a server; the signer's tasks end with the block.

        Args:
            server: The URL of the server.
            pause: Returns a context manager; inside its block, the client's timeouts stand still.
        """


def check_auth(value: object) -> None:
    """Check that a value can be passed as ``auth=``.

    Raises:
        TypeError: If the value can't be used, for example because it is a class.
    """
    if value is None or (isinstance(value, Auth) and not isinstance(value, type)):
        return
    given = f"the class {value.__name__} itself" if isinstance(value, type) else type(value).__name__
    raise TypeError(f"auth must be an OAuth, a BearerToken or another object of trio_mcp.auth, got {given}")


@contextlib.asynccontextmanager
async def opened(auth: Auth | None, server: str) -> AsyncIterator[Signer | None]:
    """Open a client's ``auth=``, if it has one; the client's timeouts stand still while a person is asked."""
    if auth is None:
        yield None
    else:
        stopwatch = current_stopwatch()
        stopwatch.stoppable = True
        async with auth.opened(server, stopwatch.pause) as signer:
            yield signer


def extensions_of(auth: Auth | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the protocol extensions that a client declares because of its ``auth=``."""
    found: Mapping[str, Mapping[str, Any]] = getattr(auth, "extensions", {})
    return found


def guard_of(auth: Auth) -> Callable[[], Any] | None:
    """Return the method that makes the guard of a client, if the ``auth=`` signs for one request only."""
    guard: Callable[[], Any] | None = getattr(auth, "guard", None)
    return guard
