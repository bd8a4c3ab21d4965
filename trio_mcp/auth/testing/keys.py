"""The authorization server's own keys, the JWTs that the server signs, and the JWTs that it receives."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, cast

from trio_mcp.auth.rules.jose import need_jose
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import Refused
from trio_mcp.http.headers import Headers

if TYPE_CHECKING:
    from joserfc import jwk

__all__ = ["ALGORITHMS", "Keys", "ReceivedProofs", "verified"]

ALGORITHMS = ("ES256", "PS256", "RS256", "Ed25519")
"""The algorithms that clients and other issuers may sign with."""

PROOF_AGE = 300
"""The maximum difference between the time in a DPoP proof and our clock, in seconds (RFC 9449, section 11.1)."""


class Keys:
    """The ES256 keys that a server signs with, the newest first. A key is made only when one is needed."""

    def __init__(self) -> None:
        self._keys: list[jwk.ECKey] = []

    def rotate(self) -> None:
        """Sign with a new key from now on; signatures by the old keys stay valid.

        Raises:
            ImportError: If joserfc is not installed.
        """
        need_jose("an authorization server that signs tokens")
        from joserfc import jwk

        kid = secrets.token_hex(8)
        self._keys.insert(0, jwk.ECKey.generate_key("P-256", {"kid": kid, "use": "sig", "alg": "ES256"}))

    def forget_old(self) -> None:
        """Publish only the newest key from now on."""
        del self._keys[1:]

    def sign(self, kind: str, claims: Mapping[str, Any]) -> str:
        """Return a JWT with these claims, signed with the newest key; ``kind`` is its ``typ``."""
        from joserfc import jwt

        key = self._made()[0]
        return jwt.encode({"alg": "ES256", "kid": key.kid, "typ": kind}, dict(claims), key)

    def published(self) -> dict[str, Any]:
        """Return the public keys, as a JWKS."""
        return {"keys": [key.as_dict(private=False) for key in self._made()]}

    def _made(self) -> list[jwk.ECKey]:
        if not self._keys:
            self.rotate()
        return self._keys


def verified(token: str, keys: Mapping[str, Any] | Keys, error: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the claims of a JWT, after a check of its signature.

    Raises:
        Refused: With the given error code, if the JWT is malformed or its signature is wrong.
    """
    from joserfc import jwk, jwt
    from joserfc.errors import JoseError

    jwks = keys.published() if isinstance(keys, Keys) else keys
    try:
        # The accepted algorithms must be given, because the header could say `none`, or have a public key used as the
        # secret of an HMAC.
        found = jwt.decode(token, jwk.KeySet.import_key_set(cast(Any, jwks)), list(ALGORITHMS))
    except (JoseError, ValueError) as problem:
        raise Refused(error, f"the JWT is not valid: {type(problem).__name__}") from None
    return dict(found.header), dict(found.claims)


class Once:
    """A memory of values that may each be used only once in a given period."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def use(self, value: object, seconds: float) -> bool:
        """Return whether this is the first use of a value, and if so, remember the value for some seconds."""
        now = self._clock()
        # Expired values are removed only when there are many values: otherwise, every new value would cause a search
        # through all of them.
        if len(self._until) > 1000:
            self._until = {each: until for each, until in self._until.items() if until > now}
        if not isinstance(value, str) or self._until.get(value, 0) > now:
            return False
        self._until[value] = now + seconds
        return True


def check_times(claims: Mapping[str, Any], now: float, error: str) -> None:
    """Check the claims ``exp``, which is required, and ``nbf``.

    Raises:
        Refused: With the given error code, if the JWT has expired, is not valid yet, or has no expiry.
    """
    until, since = claims.get("exp"), claims.get("nbf", 0)
    if not isinstance(until, int | float) or until <= now or not isinstance(since, int | float) or since > now + 30:
        raise Refused(error, "the JWT has expired, is not valid yet, or has no expiry")


def audiences(claims: Mapping[str, Any]) -> Collection[object]:
    """Return the audiences in a JWT's claims, as a list even if there is only one."""
    given = claims.get("aud")
    return given if isinstance(given, list) else [given]


class ReceivedProofs:
    """The DPoP proofs that a server receives (RFC 9449, section 4.3).

    Args:
        clock: Returns the time, in seconds since the epoch.
        nonces: Returns whether a proof must contain the server's nonce.
    """

    def __init__(self, clock: Callable[[], float], nonces: Callable[[], bool]) -> None:
        self._clock = clock
        self._nonces = nonces
        self._seen = Once(clock)
        self.nonce = secrets.token_urlsafe(16)

    def rotate(self) -> None:
        """Change the nonce, and accept no more proofs with the old one."""
        self.nonce = secrets.token_urlsafe(16)

    def thumbprint(self, request: Fetch, url: str, token: str | None = None) -> str | None:
        """Return the thumbprint of the key that signed a request's proof; None if the request has no proof.

        Args:
            request: The request.
            url: The URL of the request, without its query.
            token: The access token in the request, if any.

        Raises:
            Refused: If the proof is not valid.
        """
        from joserfc import jwk, jws
        from joserfc.errors import JoseError

        proof = Headers(request.fields.items()).get("DPoP")
        if proof is None:
            return None
        try:
            raw = jws.extract_compact(proof.encode())
            # The proof brings the key that verifies it: its signature shows only that the sender has that key.
            key = jwk.import_key(raw.headers()["jwk"])
            found = jws.deserialize_compact(proof, cast(Any, key), ["ES256"])
            claims = json.loads(found.payload)
        except (JoseError, ValueError, KeyError, TypeError):
            raise Refused(
                "invalid_dpop_proof", "the DPoP proof is not a JWT signed with the key in its header"
            ) from None
        ath = token and base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
        iat = claims.get("iat")
        wrong = {
            "typ": found.headers().get("typ") != "dpop+jwt",
            # RFC 9449, section 4.3: the key must not be a private one.
            "jwk": bool(key.is_private),
            "htm": claims.get("htm") != request.method,
            "htu": claims.get("htu") != url,
            "iat": not isinstance(iat, int | float) or abs(iat - self._clock()) > PROOF_AGE,
            "ath": claims.get("ath") != ath,
        }
        if any(wrong.values()):
            names = ", ".join(name for name, is_wrong in wrong.items() if is_wrong)
            raise Refused("invalid_dpop_proof", f"the DPoP proof has missing or wrong values: {names}")
        if self._nonces() and claims.get("nonce") != self.nonce:
            raise Refused(
                "use_dpop_nonce",
                "the DPoP proof must contain the nonce from the DPoP-Nonce header of this response",
                fields={"DPoP-Nonce": self.nonce},
            )
        # The time of a proof may be PROOF_AGE ahead, and the proof is valid for PROOF_AGE after its time, so it has to
        # be remembered for twice that long.
        if not self._seen.use(claims.get("jti"), 2 * PROOF_AGE):
            raise Refused("invalid_dpop_proof", "the DPoP proof was used before, or has no jti")
        return key.thumbprint()
