"""HTTP exchanges with servers that a peer named: under a URL policy, to checked addresses, bounded in size and time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from trio_mcp.auth.rules.urls import UrlPolicy
from trio_mcp.auth.rules.steps import Fetch, Fetched

__all__ = ["Fetcher", "FetchFunction"]

FetchFunction: TypeAlias = Callable[[Fetch], Awaitable[Fetched]]
"""Makes an exchange; what a driver of flows needs."""


class Fetcher:
    """Makes the exchanges of flows.

    A host name is resolved here, its addresses are checked, and the connection goes to an address that was checked. Only
    JSON is accepted in a response with a 2xx status (any body in response to a revocation).

    Args:
        trusted: The URL that the user configured: of the MCP server, for a client; of the issuer, for a resource server.
            Addresses of its kind (loopback, private) are allowed, others only if they are public.
        urls: What URLs are allowed.
    """

    def __init__(self, trusted: str, urls: UrlPolicy | None = None) -> None:
        raise NotImplementedError

    def flow(self) -> FetchFunction:
        """Return a function that makes the exchanges of one flow: up to 12, in up to 60 seconds in all.

        The time between them, when a person is asked, does not count. The function raises `AuthorizationError`, whose
        ``step`` is that of the `Fetch`, if the exchange is refused or fails.
        """
        raise NotImplementedError
