"""Signing with joserfc, an optional dependency that is loaded only when something has to be signed."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

__all__ = ["PrivateKeyJwt", "has_jose", "need_jose"]

# Symmetric algorithms and "none" are not allowed. The name Ed25519 comes from RFC 9864; before, it was EdDSA.
_KINDS: Final = {
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    "Ed25519": "OKP",
}

# The lifetime of an assertion, in seconds, is long enough for a slow request, and short enough that a leaked assertion
# is soon worthless.
_LIFETIME: Final = 60


def has_jose() -> bool:
    """Load joserfc, and return whether it is installed."""
    try:
        import joserfc  # noqa: F401
    except ImportError:
        return False
    return True


def need_jose(what: str) -> None:
    """Make sure that joserfc is installed.

    Args:
        what: The feature that needs joserfc; the error message begins with it.

    Raises:
        ImportError: If joserfc is not installed; the message names the extra.
    """
    if not has_jose():
        raise ImportError(f"{what} needs joserfc: pip install 'trio-mcp[auth]'", name="joserfc")


@attrs.frozen
class PrivateKeyJwt:
    """A client's private key (``private_key_jwt``, RFC 7523): the client signs a statement, and sends no secret.

    Attributes:
        pem: The private key in PEM, not encrypted.
        algorithm: The signature algorithm: ES256, ES384, ES512, RS256 to RS512, PS256 to PS512 or Ed25519.
        key_id: The ``kid`` by which the authorization server finds the public key; None if it needs no id.

    Raises:
        ValueError: If ``pem`` is not a private key for this algorithm.
        ImportError: If the extra ``auth`` is not installed.
    """

    pem: str | bytes = attrs.field(repr=False)
    algorithm: str = "ES256"
    key_id: str | None = None
    _key: Any = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        """Read the key, so that a key that can't sign is refused as soon as it is passed."""
        if self.algorithm not in _KINDS:
            raise ValueError(f"a client can't sign with {self.algorithm!r}; use one of {', '.join(_KINDS)}")
        need_jose("PrivateKeyJwt")
        object.__setattr__(self, "_key", _read(self.pem, self.algorithm))

    def assertion(self, client_id: str, issuer: str, clock: Callable[[], float] = time.time) -> str:
        """Return a signed statement of the client's identity, for one request.

        Args:
            client_id: The client, which is the issuer and the subject of the statement.
            issuer: The authorization server, which is the audience of the statement.
            clock: Returns the time, in seconds since the epoch.
        """
        from joserfc import jwt

        now = int(clock())
        header = {"alg": self.algorithm, "typ": "JWT"} | ({"kid": self.key_id} if self.key_id else {})
        claims = {
            "iss": client_id,
            "sub": client_id,
            # The audience is a single string, and the issuer rather than the token endpoint, so that no other server
            # can use the assertion.
            "aud": issuer,
            # Servers may accept an assertion only once (RFC 7523, section 3), so each request gets a new one.
            "jti": secrets.token_urlsafe(16),
            "iat": now,
            "exp": now + _LIFETIME,
        }
        return jwt.encode(header, claims, self._key, algorithms=[self.algorithm])


def _read(pem: str | bytes, algorithm: str) -> ECKey | RSAKey | OKPKey:
    """Return the key in a PEM text, after a trial signature, so that a key that can't sign is refused."""
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    # joserfc would take a text that is not PEM for a key of another kind.
    if b"-----BEGIN " not in (pem.encode() if isinstance(pem, str) else pem):
        raise ValueError("the private key is not in PEM: there is no line like -----BEGIN PRIVATE KEY-----")
    kinds: dict[str, type[ECKey | RSAKey | OKPKey]] = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}
    try:
        key = kinds[_KINDS[algorithm]].import_key(pem)
        # A public key, or a key of another curve, is read without an error, and fails only when it signs.
        jws.serialize_compact({"alg": algorithm}, b"", key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError) as exc:  # cryptography raises ValueError and TypeError
        # Only the type of the exception is shown, because its message may quote the key.
        raise ValueError(f"the PEM text is not a private key for {algorithm} ({type(exc).__name__})") from None
    return key
