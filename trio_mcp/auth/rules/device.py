"""The device grant (RFC 8628): a person signs in on another device, and the client asks until that is done."""

from __future__ import annotations

from collections.abc import Collection

from trio_mcp.auth.rules.steps import Flow
from trio_mcp.auth.rules.token_requests import TokenEndpoint, Tokens

__all__ = ["device"]


def device(
    at: TokenEndpoint, *, endpoint: str, scopes: Collection[str] = (), resource: str | None = None
) -> Flow[Tokens]:
    """Get a code for a person to enter elsewhere, show it, and ask for tokens until the person has decided.

    Args:
        at: The token endpoint, and who asks.
        endpoint: The device authorization endpoint.
        scopes: What the tokens are to allow.
        resource: The resource that they are for.

    Raises:
        AuthorizationError: If the server or the person refuses, or the code expires; its step is ``"device"``.
    """
    raise NotImplementedError
