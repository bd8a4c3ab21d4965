"""How the authorization server behaves, and what it remembers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trio_mcp.auth.testing.keys import Keys

__all__ = ["AccessToken", "Device", "Family", "IssuedCode", "KnownClient", "RefreshToken", "Settings", "Trusted"]

Trusted: TypeAlias = Mapping[str, Any] | Keys
"""The keys of another issuer: a JWKS, or the keys of another server in this process."""


@attrs.define
class Settings:
    """What the parts of one server share; see `trio_mcp.auth.testing.AuthorizationServer`."""

    issuer: str
    user: str
    scopes: tuple[str, ...]
    lifetime: float
    grace: float
    tokens: Literal["jwt", "opaque"]
    dpop: Literal["off", "accept", "require"]
    dpop_nonces: bool
    registration: bool
    documents: Callable[[str], bytes] | None
    clock: Callable[[], float]
    trusted: dict[str, Trusted] = attrs.field(factory=dict)
    client_secret_lifetime: float | None = None


@attrs.frozen(kw_only=True)
class KnownClient:
    """A client, pre-registered, registered dynamically, or described by its own document."""

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
    jkt: str | None = None  # thumbprint of the key that its refresh tokens are bound to
    revoked: bool = False
    nonce: str | None = None


@attrs.define(eq=False)
class IssuedCode:
    """An authorization code."""

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
    """An access token, and what it says."""

    family: Family
    claims: dict[str, Any]
    revoked: bool = False


@attrs.define(eq=False)
class Device:
    """A device that waits for its person (RFC 8628)."""

    client: str
    user_code: str
    family: Family
    expires_at: float
    interval: float = 5
    polled_at: float | None = None
    state: Literal["pending", "approved", "denied", "used"] = "pending"
