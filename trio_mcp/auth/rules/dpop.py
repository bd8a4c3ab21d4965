"""DPoP for clients (RFC 9449): a key, a proof for each request, and the nonces that servers provide."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.jose import has_jose, need_jose
from trio_mcp.auth.rules.metadata import Discovered
from trio_mcp.auth.rules.urls import origin
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import Headers

if TYPE_CHECKING:
    from joserfc.jwk import ECKey

__all__ = ["ALGORITHM", "DpopUse", "Prover", "choose_prover"]

ALGORITHM: Final = "ES256"
"""The signature algorithm of proofs, which practically every server that supports DPoP accepts."""

DpopUse: TypeAlias = Literal["auto", "require", "off"]
"""Whether tokens are bound to a key: ``"auto"`` if the servers support that, ``"require"`` always, ``"off"`` never."""

# A nonce has the characters of RFC 9449, section 8.1. Its length is limited, because a longer nonce would only make our
# requests longer.
_NONCE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,1024}")
# A key is normally used at one authorization server and one resource server; this leaves room for more.
_MAX_NONCES: Final = 16

# A second signature right after the first takes a fifth of the time, since the first one has to bring OpenSSL into the
# processor's caches. So when a request follows a similar one within the same second, several proofs are made at once.
_AT_ONCE: Final = 8


class Prover:
    """Makes DPoP proofs with one key, and remembers the last nonce from each server.

    Args:
        key: The private key as a JWK in JSON, as in the attribute ``key``; None creates a new key.
        clock: Returns the time, in seconds since the epoch.

    Attributes:
        key: The private key as a JWK in JSON, to be stored with the login.
        thumbprint: The thumbprint of the public key (RFC 7638), to which tokens are bound.

    Raises:
        ValueError: If ``key`` is not such a key.
        ImportError: If the extra ``auth`` is not installed.
    """

    def __init__(self, key: str | None = None, *, clock: Callable[[], float] = time.time) -> None:
        need_jose("DPoP")
        from joserfc.jwk import ECKey

        made: ECKey = ECKey.generate_key("P-256") if key is None else _read(key)
        self.key = json.dumps(made.as_dict(private=True))
        self.thumbprint = made.thumbprint()
        head = {"typ": "dpop+jwt", "alg": ALGORITHM, "jwk": made.as_dict(private=False)}
        self._head = _in_base64(json.dumps(head).encode()) + b"."
        self._sign = _signer(made)
        self._hashed = ("", "")
        self._alike: tuple[object, ...] = ()
        self._spare: list[str] = []  # proofs that differ from the last one only in their ``jti``
        self._clock = clock
        self._nonces: dict[tuple[str, bool], str] = {}

    def __repr__(self) -> str:
        return f"<Prover {self.thumbprint}>"

    def proof(self, method: str, url: str, token: str | None = None) -> str:
        """Return the value of the field ``DPoP`` for a request; if the request is sent again, it needs a new value.

        Args:
            method: The HTTP method.
            url: The URL of the request; its query is left out of the proof.
            token: The access token that is sent with the request; None at an authorization server.
        """
        alike = (method, url, token, self.nonce(url, resource=token is not None), int(self._clock()))
        if alike != self._alike:
            self._alike, self._spare = alike, [self._made(*alike)]
        elif not self._spare:
            self._spare = [self._made(*alike) for _ in range(_AT_ONCE)]
        return self._spare.pop()

    def _made(self, method: str, url: str, token: str | None, nonce: str | None, now: int) -> str:
        claims: dict[str, Any] = {
            # RFC 9449, section 4.2, asks for at least 96 random bits; these are 128.
            "jti": secrets.token_urlsafe(16),
            "htm": method,
            "htu": url.partition("#")[0].partition("?")[0],
            "iat": now,
        }
        if token is not None:
            # Many requests carry the same token, so its hash is kept.
            if self._hashed[0] != token:
                self._hashed = token, _in_base64(hashlib.sha256(token.encode()).digest()).decode()
            claims["ath"] = self._hashed[1]
        if nonce is not None:
            claims["nonce"] = nonce
        signed = self._head + _in_base64(json.dumps(claims).encode())
        return (signed + b"." + _in_base64(self._sign(signed))).decode()

    def nonce(self, url: str, *, resource: bool) -> str | None:
        """Return the nonce that the next proof for a URL will contain, or None.

        After a refusal that asks for a nonce, another try is worthwhile only if this nonce differs from the one in the
        refused proof. The two may differ because another request, refused at the same time, learned the new nonce
        first.

        Args:
            url: The URL of the request.
            resource: Whether the server is a resource server; authorization servers have separate nonces.
        """
        return self._nonces.get((origin(url), resource)) if self._nonces else None

    def learn(self, url: str, headers: Headers, *, resource: bool) -> None:
        """Remember the nonce that a response carries, if any.

        Args:
            url: The URL of the request.
            headers: The header fields of the response.
            resource: Whether the server is a resource server; authorization servers have separate nonces.
        """
        nonce = headers.get("DPoP-Nonce")
        if nonce is None or not _NONCE.fullmatch(nonce):
            return
        place = (origin(url), resource)
        # The old entry is removed first, so that the new one comes last: if there are too many, the first entry is
        # dropped.
        self._nonces.pop(place, None)
        self._nonces[place] = nonce
        if len(self._nonces) > _MAX_NONCES:
            del self._nonces[next(iter(self._nonces))]


def choose_prover(
    use: DpopUse, found: Discovered, wanted: Wanted, clock: Callable[[], float] = time.time
) -> Prover | None:
    """Return a prover with a new key for a new login; None if the login does not use DPoP.

    Unless DPoP is required, both the server and its authorization server must support it, and joserfc must be
    installed.

    Args:
        use: The program's choice.
        found: The MCP server and its authorization server, as discovered.
        wanted: The demands of the server's response.
        clock: Returns the time, in seconds since the epoch.

    Raises:
        AuthorizationError: If DPoP is required, and the authorization server does not offer it.
        ImportError: If DPoP is required, and the extra ``auth`` is not installed.
    """
    offered, resource = ALGORITHM in found.server.dpop, found.resource
    if use == "require":
        if not offered:
            problem, advice = f"DPoP with {ALGORITHM} is required, but the server does not offer it", "pass dpop='auto'"
            raise AuthorizationError("token", problem, issuer=found.server.issuer, advice=advice)
        return Prover(clock=clock)
    # A server that does not support DPoP would refuse a token that is bound to a key.
    known = wanted.dpop or (resource is not None and (resource.dpop_required or ALGORITHM in resource.dpop))
    # `has_jose` comes last, because it loads joserfc, which takes about 90 ms (measured).
    return Prover(clock=clock) if use == "auto" and offered and known and has_jose() else None


def _in_base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _signer(key: ECKey) -> Callable[[bytes], bytes]:
    """Return a function that makes the signature of a JWS (RFC 7518, section 3.4).

    Every request has a proof, and joserfc would encode the same header and choose the same algorithm each time, which
    takes as long as the signature.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
    from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA256

    private, algorithm = key.private_key, ECDSA(SHA256())
    assert private is not None  # the key was generated, or checked to be a private one

    def signature(data: bytes) -> bytes:
        # cryptography returns the two numbers of the signature in DER; a JWS has them side by side, with 32 bytes each.
        r, s = decode_dss_signature(private.sign(data, algorithm))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    return signature


def _read(text: str) -> Any:
    from joserfc.errors import JoseError
    from joserfc.jwk import ECKey

    try:
        # A public key, or a key of another curve, is read without an error, but can't sign with ES256.
        key = ECKey.import_key(json.loads(text))
        fits = key.is_private and key.curve_name == "P-256"
    except (JoseError, ValueError, TypeError, AttributeError, KeyError):
        fits = False
    if not fits:
        # The cause is left out, since it may quote the key.
        raise ValueError(f"the DPoP key must be a JWK, in JSON, of a private key for {ALGORITHM}")
    return key
