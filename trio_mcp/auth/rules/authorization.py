"""The authorization request in a browser: PKCE (RFC 7636), its URL, and the redirection that comes back (RFC 9207)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServer, Discovered
from trio_mcp.auth.rules.steps import Flow

__all__ = ["Code", "authorize", "challenge_of", "check_redirection", "require_pkce"]


@attrs.frozen
class Code:
    """An authorization code, with all that the token request must repeat.

    Attributes:
        code: The code.
        verifier: The verifier of PKCE.
        redirect: The redirect URI, as it was sent.
    """

    code: str = attrs.field(repr=False)
    verifier: str = attrs.field(repr=False)
    redirect: str


def authorize(
    found: Discovered,
    client: ClientRecord,
    *,
    redirect: str,
    scopes: Collection[str],
    assume_pkce: Collection[str] = (),
    thumbprint: str | None = None,
) -> Flow[Code]:
    """Let a person authorize the client, and return the code.

    Args:
        found: The server and its authorization server.
        client: The client.
        redirect: The redirect URI.
        scopes: The scopes to ask for.
        assume_pkce: Issuers that support PKCE without saying so.
        thumbprint: The thumbprint of the DPoP key that the code is bound to (``dpop_jkt``), or None.

    Raises:
        AuthorizationError: If PKCE is not supported, the person declined, or the redirection is not the issuer's.
    """
    raise NotImplementedError
    yield


def require_pkce(at: AuthorizationServer, assume_pkce: Collection[str]) -> None:
    """Check that an authorization server supports PKCE with S256: call it before anything is registered there.

    Raises:
        AuthorizationError: If its metadata doesn't say so, and the issuer is not among ``assume_pkce``.
    """
    raise NotImplementedError


def challenge_of(verifier: str) -> str:
    """Return the code challenge of a verifier, with S256."""
    raise NotImplementedError


def check_redirection(parameters: Mapping[str, str], at: AuthorizationServer, state: str) -> str:
    """Return the authorization code of a redirection.

    The order matters: ``state`` first, then ``iss`` by the table of RFC 9207, section 2.4, and only then the rest; nothing
    of a redirection that fails those two is shown or acted upon.

    Raises:
        AuthorizationError: If it is not an authorization, or not this one.
    """
    raise NotImplementedError
