"""Issues, exchanges and revokes the tokens of the authorization server for tests."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from typing import Any

from trio_mcp.auth.testing.keys import Keys
from trio_mcp.auth.testing.records import AccessToken, AuthoritySettings, Family, KnownClient, RefreshToken

__all__ = ["IssuedTokens"]

_KINDS = {"jwt": "at+jwt", "plain-jwt": "JWT", "opaque": None}
"""The type in the header of a token, for each form of tokens; None for no JWT."""


class IssuedTokens:
    """The tokens that one authorization server has issued."""

    def __init__(self, settings: AuthoritySettings, keys: Keys) -> None:
        self._settings = settings
        self._keys = keys
        self._access: dict[str, AccessToken] = {}
        self._refresh: dict[str, RefreshToken] = {}

    def issue(
        self, family: Family, scopes: frozenset[str], resources: tuple[str, ...], jkt: str | None, refresh: bool
    ) -> dict[str, Any]:
        """Issue new tokens, and return the members of the response that contains them."""
        settings = self._settings
        now = int(settings["clock"]())
        audience = list(resources or family.resources) or [settings["issuer"]]
        claims: dict[str, Any] = {
            "iss": settings["issuer"],
            "sub": family.subject,
            "aud": audience[0] if len(audience) == 1 else audience,
            "client_id": family.client,
            "scope": " ".join(sorted(scopes)),
            "iat": now,
            "exp": now + settings["lifetime"],
            "jti": secrets.token_urlsafe(16),
        }
        if jkt is not None:
            claims["cnf"] = {"jkt": jkt}
        plain = {name: claims[name] for name in ("iss", "sub", "iat", "exp", "scope")}
        claims = claims if settings["claims"] is None else settings["claims"](claims)
        kind = _KINDS[settings["tokens"]]
        token = secrets.token_urlsafe(32) if kind is None else self._keys.sign(kind, claims)
        self._access[token] = AccessToken(family, claims)
        said: dict[str, Any] = {"access_token": token, "token_type": "DPoP" if jkt else "Bearer"}
        said |= {"expires_in": settings["lifetime"], "scope": plain.pop("scope")}
        if refresh:
            new = said["refresh_token"] = secrets.token_urlsafe(32)
            self._refresh[new] = RefreshToken(family)
        if "openid" in scopes:
            said["id_token"] = self._keys.sign(
                "JWT",
                plain
                # An ID token is for the client, whatever resource the access token is for.
                | {"aud": family.client}
                | ({"nonce": family.nonce} if family.nonce else {}),
            )
        return said

    def make(self, changes: Mapping[str, Any]) -> str:
        """Return a new access token with these claims in place of the usual ones; None removes a claim."""
        settings = self._settings
        now = int(settings["clock"]())
        usual = {
            "iss": settings["issuer"],
            "sub": settings["user"],
            "aud": settings["issuer"],
            "client_id": "made",
            "scope": " ".join(settings["scopes"]),
            "iat": now,
            "exp": now + settings["lifetime"],
            "jti": secrets.token_urlsafe(16),
        }
        claims = {name: value for name, value in {**usual, **changes}.items() if value is not None}
        kind = _KINDS[settings["tokens"]]
        token = secrets.token_urlsafe(32) if kind is None else self._keys.sign(kind, claims)
        family = Family(str(claims.get("sub")), "made", frozenset(str(claims.get("scope", "")).split()))
        self._access[token] = AccessToken(family, claims)
        return token

    def exchange(self, token: str, client: KnownClient) -> Family | None:
        """Use up a refresh token; a use after the grace period revokes its whole family, as the token may be stolen.

        Returns:
            The family of the token; None if the token is not valid.
        """
        found = self._refresh.get(token)
        if found is None or found.family.revoked or found.family.client != client.id:
            return None
        now = self._settings["clock"]()
        if found.replaced_at is None:
            found.replaced_at = now
        # A grace period of 0 must allow no second use, even if the clock stands still, as it may in tests.
        elif now > found.replaced_at + self._settings["grace"] or not self._settings["grace"]:
            found.family.revoked = True
            return None
        return found.family

    def claims_of(self, token: str) -> dict[str, Any] | None:
        """Return the claims of an access token; None if it is unknown, expired or revoked."""
        found = self._access.get(token)
        if found is None or found.revoked or found.family.revoked:
            return None
        # A token that a test has made may lack an expiry.
        return dict(found.claims) if found.claims.get("exp", math.inf) > self._settings["clock"]() else None

    def owner(self, token: str) -> Family | None:
        """Return the family of an access or refresh token; None if the token is unknown."""
        found: AccessToken | RefreshToken | None = self._access.get(token) or self._refresh.get(token)
        return None if found is None else found.family

    def revoke(self, token: str) -> None:
        """Revoke a token; with a refresh token, revoke all tokens from the same consent (RFC 7009, section 2.1)."""
        if (access := self._access.get(token)) is not None:
            access.revoked = True
        elif (refresh := self._refresh.get(token)) is not None:
            refresh.family.revoked = True

    def expire(self) -> None:
        """Make this server treat all access tokens as expired; JWTs keep the expiry that was signed."""
        for each in self._access.values():
            each.claims["exp"] = min(each.claims.get("exp", math.inf), self._settings["clock"]())

    def revoke_all(self) -> None:
        """Revoke all tokens."""
        records: tuple[AccessToken | RefreshToken, ...] = (*self._access.values(), *self._refresh.values())
        for each in records:
            each.family.revoked = True
