"""`JwtVerifier`: access tokens that are JWTs, checked with the keys of their issuer."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Collection, Mapping
from functools import partial
from typing import Any, Final

import attrs

from trio_mcp._checks import check_choices
from trio_mcp._nursery import background_nursery
from trio_mcp.auth.rules.jose import need_jose
from trio_mcp.auth.server.claims import Claims, Demands, InvalidToken, Verify, claims_of, slashless
from trio_mcp.auth.server.document import checked_url
from trio_mcp.auth.server.jws import ALGORITHMS, Jws, is_signed_by, read_jws
from trio_mcp.auth.server.keys import IssuerKeys, KeySet

__all__ = ["JwtVerifier"]

# The types are those of RFC 9068, section 2.1, and those that issuers used before that RFC. A token of another type may
# have the same signer but another purpose: it may be a proof, an assertion for a token endpoint, or a logout token.
_TYPES: Final = frozenset({"at+jwt", "application/at+jwt", "jwt", "application/jwt"})
_ACCESS_TOKEN: Final = frozenset({"at+jwt", "application/at+jwt"})
# These claims are for ID tokens (OpenID Connect Core, sections 2 and 3.3.2.11) and logout tokens (Back-Channel Logout,
# section 2.4).
_NOT_IN_ACCESS_TOKENS: Final = ("nonce", "at_hash", "c_hash", "s_hash", "events")
# Large providers name the kind of a token in these claims: `typ` is Keycloak's, `token_use` Cognito's.
_OTHER_KINDS: Final = {"typ": ("ID", "Refresh", "Offline", "Logout"), "token_use": ("id",)}


class JwtVerifier:
    """A verifier of access tokens that are JWTs (RFC 9068).

    The keys are those of the token's issuer, found through its metadata. Needs the extra ``auth``.

    Args:
        algorithms: The signature algorithms that are accepted; only algorithms with public keys are supported.
        keys: The keys of the issuer, if its metadata does not name them: a JWKS, or the URL of one.

    Raises:
        ImportError: Without the extra ``auth``.
        TypeError: If an argument is of the wrong type.
        ValueError: If an algorithm is not supported, or the keys can't be used.
    """

    def __init__(
        self,
        *,
        algorithms: Collection[str] = ("ES256", "ES384", "ES512", "RS256", "PS256", "EdDSA", "Ed25519"),
        keys: Mapping[str, Any] | str | None = None,
    ) -> None:
        need_jose("JwtVerifier")
        _check_algorithms(algorithms)
        self._algorithms = frozenset(algorithms)
        self._keys: KeySet | None = None
        self._url: str | None = None
        if isinstance(keys, str):
            self._url = checked_url("keys", keys, query=True)
        elif keys is not None:
            if not isinstance(keys, Mapping):
                raise TypeError(f"keys must be a JWKS (a dict) or the URL of one, got {type(keys).__name__}")
            self._keys = KeySet(dict(keys))
            if not self._keys:
                raise ValueError("keys contains no public key that can check signatures")

    @contextlib.asynccontextmanager
    async def opened(self, setting: Demands) -> AsyncIterator[Verify]:
        """Open the verifier for the duration of a block, and yield the function that checks tokens.

        Args:
            setting: The settings of the resource server.

        Raises:
            ValueError: If keys are given for more than one issuer: each could sign tokens in the name of the others.
        """
        if len(setting.issuers) > 1 and (self._keys or self._url):
            raise ValueError("JwtVerifier(keys=…) is for one issuer; leave out keys if the server has several issuers")
        async with background_nursery() as nursery:
            issuers = {
                slashless(issuer): IssuerKeys(issuer, self._url, partial(setting.fetch, issuer), setting.clock, nursery)
                for issuer in setting.issuers
            }
            yield _Check(setting, self._algorithms, self._keys, issuers).verify


@attrs.frozen
class _Check:
    """The checks of tokens during one run of the server."""

    _setting: Demands
    _algorithms: frozenset[str]
    _given: KeySet | None
    _issuers: Mapping[str, IssuerKeys]

    async def verify(self, token: str) -> Claims:
        jws = read_jws(token)
        algorithm = self._check_header(jws)
        claims = claims_of(jws.claims)
        # The claims are checked before anything is fetched or computed for the token.
        self._setting.check(claims)
        kid = jws.header.get("kid")
        if kid is not None and not isinstance(kid, str):
            raise InvalidToken("its 'kid' is not a string")
        issuer = self._issuers[slashless(claims.issuer)]
        if self._given is not None:
            keys = self._given.find(kid, algorithm)
        else:
            # The search for keys may wait for the issuer, so everything that needs no keys has been checked before.
            fits = partial(is_signed_by, jws, algorithm=algorithm)
            keys = await issuer.find(kid, algorithm, claims.issued_at, fits)
        # The issuer is compared after the search for keys, because the search reads the metadata, which has the
        # issuer's own spelling.
        if claims.issuer != issuer.issuer:
            raise InvalidToken(f"its issuer differs from {issuer.issuer!r} by the slash at the end")
        # Several keys of one set may have the same `kid` (RFC 7517, section 4.5), so each is tried.
        if not any(is_signed_by(jws, key, algorithm) for key in keys):
            raise InvalidToken("its signature is wrong")
        return claims

    def _check_header(self, jws: Jws) -> str:
        # `typ` may be missing (RFC 7519, section 5.1); the token then counts as a plain JWT.
        algorithm, kind = jws.header.get("alg"), jws.header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise InvalidToken("its algorithm is not accepted")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise InvalidToken("it is not an access token: its 'typ' is neither at+jwt nor JWT")
        # A token of type `at+jwt` is always an access token, but a plain JWT may be an ID token that is signed with the
        # same keys.
        if kind.lower() not in _ACCESS_TOKEN:
            for name in _NOT_IN_ACCESS_TOKENS:
                if name in jws.claims:
                    raise InvalidToken(f"it is not an access token: it has the claim {name!r}")
            for name, others in _OTHER_KINDS.items():
                if any(jws.claims.get(name) == other for other in others):
                    raise InvalidToken(f"it is not an access token: its claim {name!r} says so")
        return algorithm


def _check_algorithms(algorithms: Collection[str]) -> None:
    wrong = [name for name in algorithms if (isinstance(name, str) and name.startswith("HS")) or name == "none"]
    if wrong and not isinstance(algorithms, str):
        raise ValueError(
            f"algorithms must not include {wrong[0]!r}: a JWKS is public, so only signatures with a "
            "private key prove who issued a token (ES256, RS256, EdDSA, …)"
        )
    check_choices("algorithms", algorithms, ALGORITHMS)
    if not algorithms:
        raise ValueError("algorithms must not be empty")
