"""The interface of ``auth=``, as an HTTP endpoint uses it; `trio_mcp.auth` implements it and is not imported here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol

import attrs

from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.asgi import HttpRequest
from trio_mcp.principal import Principal

if TYPE_CHECKING:  # few servers have stores
    from trio_mcp.stores.contract import Stores

__all__ = ["Caller", "Guard", "Identified", "Protection"]


class Caller(Protocol):
    """The caller of one request, for whom tokens can be had. It has the caller's own token, and shows it to no one."""

    async def token_for(self, audience: str, scopes: Collection[str] | None) -> str:
        """Return a token for another service: see `Context.token_for`."""


@attrs.frozen
class Identified:
    """A request whose token was accepted.

    Attributes:
        principal: The principal to whom the token belongs.
        fields: Header fields for the response, such as a new nonce.
        caller: Gets tokens for other services on behalf of the caller; None if the server exchanges none.
    """

    principal: Principal
    fields: tuple[tuple[str, str], ...] = ()
    caller: Caller | None = None


class Guard(Protocol):
    """An object that checks the tokens of requests to one endpoint, and may remember tokens that it has checked."""

    async def identify(self, request: HttpRequest) -> Identified | Refusal:
        """Check the token of a request, without reading its body; `Protection.permit` checks the scopes."""


class Protection(Protocol):
    """An object that can be passed as ``auth=``. It may protect any number of endpoints at the same time.

    Attributes:
        resource: The URL by which clients know the server, as it is configured.
        clock: Returns the time that the expiry of principals is compared with, in seconds since the epoch.
    """

    resource: str
    clock: Callable[[], float]

    def opened(
        self, stores: Stores | None = None, secret: bytes | None = None
    ) -> contextlib.AbstractAsyncContextManager[Guard]:
        """Return a context manager that yields the guard; tasks that it starts end with the block.

        Args:
            stores: The stores of the server; None without any.
            secret: A secret of all processes of the server, at least 32 bytes; None without one.
        """

    def document(self, path: str) -> bytes | None:
        """Return the metadata that is served at a path of the origin, as JSON, or None if none is.

        Args:
            path: The path from the root of the origin, even if the application is mounted below it.
        """

    def permit(self, principal: Principal, needed: Collection[str]) -> Refusal | None:
        """Return the refusal, with a challenge, of a request that needs these scopes, or None if they are granted.

        The scopes that every request needs are added to them.
        """
