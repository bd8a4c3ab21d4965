"""Requests to a token endpoint: what is asked, who asks, and what the answer says."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Literal

import attrs

from trio_mcp.auth.rules.dpop import Prover
from trio_mcp.auth.rules.login import ClientRecord, Login
from trio_mcp.auth.rules.private_keys import PrivateKeyJwt
from trio_mcp.auth.rules.steps import Fetched, Flow

__all__ = [
    "TokenEndpoint",
    "Tokens",
    "client_credentials",
    "exchange_code",
    "jwt_bearer",
    "read_tokens",
    "refresh",
    "renewed",
    "revoke",
    "to_login",
    "token_exchange",
]


@attrs.frozen
class TokenEndpoint:
    """A token endpoint, and the client that asks there.

    Attributes:
        issuer: The authorization server's issuer, as its own metadata has it.
        url: The URL of the endpoint.
        client: The client, with the one method by which it proves who it is; None sends no client at all.
        key: The client's key, for ``private_key_jwt``.
        prover: Makes the proofs of DPoP; None without DPoP.
        require_dpop: Whether an answer with a plain bearer token is refused.
        clock: Tells the time.
    """

    issuer: str
    url: str
    client: ClientRecord | None
    key: PrivateKeyJwt | None = None
    prover: Prover | None = None
    require_dpop: bool = False
    clock: Callable[[], float] = time.time


@attrs.frozen
class Tokens:
    """What a token endpoint granted.

    Attributes:
        access_token: The access token.
        token_type: Its scheme.
        expires_at: Until when it holds, in seconds since the epoch; None if the answer does not say.
        refresh_token: The new refresh token; None if the answer has none, and then an old one stays good.
        scopes: What was granted; None if the answer does not say: what was asked for.
        id_token: The ID token of an OpenID provider.
    """

    access_token: str = attrs.field(repr=False)
    token_type: Literal["Bearer", "DPoP"] = "Bearer"
    expires_at: float | None = None
    refresh_token: str | None = attrs.field(default=None, repr=False)
    scopes: frozenset[str] | None = None
    id_token: str | None = attrs.field(default=None, repr=False)


def read_tokens(at: TokenEndpoint, step: str, response: Fetched) -> Tokens:
    """Read the answer to a token request.

    Raises:
        AuthorizationError: If it is a refusal (``error`` has its code), or no answer of the protocol (``error`` is
            None; so is it for 429 and 5xx, which say nothing of the login).
    """
    raise NotImplementedError


def exchange_code(
    at: TokenEndpoint, *, code: str, verifier: str, redirect: str, resource: str | None = None
) -> Flow[Tokens]:
    """Exchange the code of a redirection for tokens.

    Args:
        at: Where, and who asks.
        code: The code.
        verifier: The verifier of PKCE.
        redirect: The redirect URI of the authorization request.
        resource: The resource that the tokens are for, byte for byte.

    Raises:
        AuthorizationError: If the server grants nothing.
    """
    raise NotImplementedError


def refresh(at: TokenEndpoint, *, refresh_token: str, resource: str | None = None) -> Flow[Tokens]:
    """Refresh tokens. Only the codes ``invalid_grant`` and ``invalid_client`` end a login.

    Raises:
        AuthorizationError: If the server grants nothing; its step is ``"refresh"``.
    """
    raise NotImplementedError


def client_credentials(
    at: TokenEndpoint, *, scopes: Collection[str] = (), resource: str | None = None
) -> Flow[Tokens]:
    """Ask for a token for the client itself.

    Raises:
        AuthorizationError: If the server grants nothing.
    """
    raise NotImplementedError


def jwt_bearer(
    at: TokenEndpoint, *, assertion: str, scopes: Collection[str] = (), resource: str | None = None
) -> Flow[Tokens]:
    """Exchange an assertion, signed by someone whom the server trusts, for a token (RFC 7523).

    Raises:
        AuthorizationError: If the server grants nothing.
    """
    raise NotImplementedError


def token_exchange(
    at: TokenEndpoint,
    *,
    id_token: str,
    audience: str,
    scopes: Collection[str] = (),
    resource: str | None = None,
) -> Flow[str]:
    """Exchange an ID token at the identity provider for an ID-JAG, the assertion for an authorization server.

    Args:
        at: The identity provider's token endpoint, and who asks there.
        id_token: The ID token that the provider gave the client.
        audience: The issuer of the authorization server.
        scopes: What the token is to allow.
        resource: The resource that it is for.

    Raises:
        AuthorizationError: If the provider refuses, or what it returns is no ID-JAG; its step is ``"token exchange"``.
    """
    raise NotImplementedError


def revoke(at: TokenEndpoint, *, endpoint: str, token: str, hint: str = "refresh_token") -> Flow[None]:
    """Revoke a token (RFC 7009).

    Args:
        at: Who asks.
        endpoint: The revocation endpoint.
        token: The token.
        hint: ``"refresh_token"`` or ``"access_token"``.

    Raises:
        AuthorizationError: If the server refuses; its step is ``"revocation"``.
    """
    raise NotImplementedError


def to_login(
    at: TokenEndpoint,
    tokens: Tokens,
    *,
    resource: str | None,
    asked: Collection[str] = (),
    revocation_endpoint: str | None = None,
) -> Login:
    """Return the login that tokens are the beginning of.

    Args:
        at: Where they are from; its client must not be None.
        tokens: The tokens.
        resource: The resource that they are for.
        asked: The scopes that were asked for.
        revocation_endpoint: Where to revoke them.
    """
    raise NotImplementedError


def renewed(login: Login, tokens: Tokens) -> Login:
    """Return a login after a refresh: what the answer does not mention (refresh token, scopes) stays as it was."""
    raise NotImplementedError
