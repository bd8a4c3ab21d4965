"""The settings of the authorization server for tests, and the records that this server keeps."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypedDict

import attrs

from trio_mcp._settings import Default
from trio_mcp.auth.testing.keys import Keys

__all__ = [
    "AccessToken",
    "AuthoritySettings",
    "Device",
    "Family",
    "IssuedCode",
    "KnownClient",
    "RefreshToken",
    "Trusted",
]

Trusted: TypeAlias = Mapping[str, Any] | Keys
"""The keys of another issuer: a JWKS, or the keys of another server in this process."""


class AuthoritySettings(TypedDict, total=False):
    """How an `AuthorizationServer` behaves.

    Attributes:
        issuer: The issuer, which may have a path; ``"https://id.example.com"`` by default.
            `AuthorizationServer.served` changes it to the URL that it serves at.
        user: The subject of the tokens.
        scopes: The scopes that may be requested. If ``offline_access`` is among them, only clients that request it get
            a refresh token; if ``openid`` is, only clients that request it get an ID token.
        lifetime: For how many seconds an access token is valid.
        grace: For how many seconds a refresh token may be used again after it was exchanged. A later use revokes all
            tokens that came from the same consent.
        tokens: The form of access tokens: ``"jwt"``, ``"plain-jwt"``, whose type does not say that they are access
            tokens, or ``"opaque"``.
        claims: Changes the claims of each access token: a function that gets them, and returns others.
        resource: Whether tokens are for what requests name in ``resource``: it is ``"honored"``, ``"ignored"`` or
            ``"refused"``.
        discovery: Where metadata is published: at the well-known URL of ``"oauth"`` (RFC 8414), at that of
            ``"openid"``, at ``"both"`` or at ``"none"``.
        dpop: Whether the server binds tokens to keys (RFC 9449).
        dpop_nonces: Whether DPoP proofs must contain a nonce from the server.
        registration: Whether clients may register (RFC 7591).
        documents: Returns the client metadata document at a URL; None to refuse clients whose id is such a URL.
        trusted: The keys of other issuers, by issuer: a JWKS, or the `keys` of another server. The server accepts their
            ID-JAGs and the tokens of their workloads.
        exchanges: The services for which access tokens can be had in exchange for others (RFC 8693, or on behalf of
            their subject, as with Entra), with the scopes of each; none by default.
        clock: Returns the time, in seconds since the epoch.
        client_secret_lifetime: For how many seconds the secret of a client that registers is valid; None for no limit.
    """

    issuer: Annotated[str, Default("https://id.example.com")]
    user: Annotated[str, Default("alice")]
    scopes: Annotated[Iterable[str], Default(("read", "write"), convert=tuple)]
    lifetime: Annotated[float, Default(3600)]
    grace: Annotated[float, Default(0)]
    tokens: Annotated[Literal["jwt", "plain-jwt", "opaque"], Default("jwt")]
    claims: Annotated[Callable[[dict[str, Any]], dict[str, Any]] | None, Default()]
    resource: Annotated[Literal["honored", "ignored", "refused"], Default("honored")]
    discovery: Annotated[Literal["both", "oauth", "openid", "none"], Default("both")]
    dpop: Annotated[Literal["off", "accept", "require"], Default("off")]
    dpop_nonces: Annotated[bool, Default(False)]
    registration: Annotated[bool, Default(True)]
    documents: Annotated[Callable[[str], bytes] | None, Default()]
    trusted: Annotated[dict[str, Trusted], Default({})]
    exchanges: Annotated[Mapping[str, Iterable[str]], Default({}, convert=dict)]
    clock: Annotated[Callable[[], float], Default(time.time)]
    client_secret_lifetime: Annotated[float | None, Default()]


@attrs.frozen(kw_only=True)
class KnownClient:
    """A client that was registered beforehand, has registered itself, or is described by its own metadata document."""

    id: str
    secret: str | None = attrs.field(default=None, repr=False)
    method: str = "none"
    redirects: tuple[str, ...] = ()
    grants: frozenset[str]
    jwks: Mapping[str, Any] | None = None
    secret_expires_at: float | None = None


@attrs.define(eq=False)
class Family:
    """All tokens that come from one consent."""

    subject: str
    client: str
    scopes: frozenset[str]
    resources: tuple[str, ...] = ()
    jkt: str | None = None  # thumbprint of the key that the family's refresh tokens are bound to
    revoked: bool = False
    nonce: str | None = None


@attrs.define(eq=False)
class IssuedCode:
    """An authorization code that was issued, with what the client has to match when it exchanges the code."""

    family: Family
    redirect: str | None
    challenge: str
    expires_at: float
    used: bool = False


@attrs.define(eq=False)
class RefreshToken:
    """A refresh token; `replaced_at` is when it was exchanged for its successor."""

    family: Family
    replaced_at: float | None = None


@attrs.define(eq=False)
class AccessToken:
    """An access token, and its claims."""

    family: Family
    claims: dict[str, Any]
    revoked: bool = False


@attrs.define(eq=False)
class Device:
    """A device that waits for a person to approve it (RFC 8628)."""

    client: str
    user_code: str
    family: Family
    expires_at: float
    interval: float = 5
    polled_at: float | None = None
    state: Literal["pending", "approved", "denied", "used"] = "pending"
