"""Signed tokens (JWS in compact form, RFC 7515): strict parsing, once for each token, and signature checks.

Only algorithms with public keys are supported: "none" is refused, and so is HMAC, for which an attacker could use a
public key as the secret. joserfc does the cryptography.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
from pydantic_core import from_json

from trio_mcp.auth.server.claims import InvalidToken

if TYPE_CHECKING:
    from joserfc.jwk import Key

__all__ = ["ALGORITHMS", "Jws", "import_key", "is_signed_by", "read_jws", "suits"]

# RFC 7518, section 3.1, RFC 8037 and RFC 9864 say which kind of key an algorithm needs. Many tokens still name EdDSA,
# but joserfc warns about that name, so it is given the name Ed25519, which means the same algorithm.
ALGORITHMS: Final[Mapping[str, tuple[str, str | None, str]]] = {
    **{f"{kind}{bits}": ("RSA", None, f"{kind}{bits}") for kind in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": ("EC", f"P-{curve}", f"ES{bits}") for bits, curve in ((256, 256), (384, 384), (512, 521))},
    "EdDSA": ("OKP", "Ed25519", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519", "Ed25519"),
}
"""For each algorithm: the type of the key, its curve if it has one, and joserfc's name for the algorithm."""

# Padding, spaces and line breaks are not allowed (RFC 7515, section 2). Nor is an empty third part, which would mean
# that there is no signature.
_COMPACT = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")
_STANDARD = bytes.maketrans(b"-_", b"+/")
_RSA_BITS: Final = (2048, 8192)
"""The minimum and the maximum size of an RSA key, in bits. The maximum is arbitrary: each bit makes checks slower."""
# Nearly all keys have the exponent 65537, which has 17 bits. The exponent is limited, because the maker of a key
# chooses it, and each bit makes checks slower.
_RSA_EXPONENT_BITS: Final = 32


@attrs.frozen
class Jws:
    """A signed token, split into its parts; its signature has yet to be checked.

    Attributes:
        header: The JOSE header.
        claims: The payload.
        signed: The bytes that the signature covers.
        signature: The signature.
    """

    header: dict[str, Any]
    claims: dict[str, Any]
    signed: bytes
    signature: bytes


def read_jws(token: str) -> Jws:
    """Split a token into its parts, without checking its signature.

    Raises:
        InvalidToken: If it is not a JWS in compact form with a JSON object as its payload, or its header demands to be
            read by other rules.
    """
    if not _COMPACT.fullmatch(token):
        raise InvalidToken("it is not a signed JWT (three parts in Base64url)")
    # The signature covers the characters of the first two parts as they came, not the JSON that they encode.
    signed, _, signature = token.rpartition(".")
    first, _, payload = signed.partition(".")
    header = _object(first)
    # This module knows no critical parameter, so a token with any must be refused (RFC 7515, section 4.1.11). `b64`
    # would change the signed text (RFC 7797).
    for name in ("crit", "b64"):
        if name in header:
            raise InvalidToken(f"its header has {name!r}, which is not supported")
    return Jws(header, _object(payload), signed.encode(), _decoded(signature))


def _decoded(part: str) -> bytes:
    try:
        # `a2b_base64` skips characters that are not Base64, which does no harm: `_COMPACT` has refused them in tokens,
        # and joserfc reads keys again.
        return binascii.a2b_base64(part.encode("ascii").translate(_STANDARD) + b"=" * (-len(part) % 4))
    except ValueError:
        raise InvalidToken("a part of it is not Base64url") from None


def _object(part: str) -> dict[str, Any]:
    try:
        # Strings from a peer must not fill pydantic's string cache.
        value = from_json(_decoded(part), cache_strings=False)
    except ValueError:
        raise InvalidToken("a part of it is not JSON") from None
    if not isinstance(value, dict):
        raise InvalidToken("a part of it is not a JSON object")
    return value


def suits(key: Key, algorithm: str) -> bool:
    """Return whether a key can have made a signature with an algorithm of `ALGORITHMS`."""
    kind, curve, _ = ALGORITHMS[algorithm]
    # If a key names its algorithm, the header of a token can't choose another one (RFC 7517, section 4.4).
    meant = key.alg
    return (
        key.key_type == kind
        and (curve is None or key.get("crv") == curve)
        and (meant is None or (meant in ALGORITHMS and ALGORITHMS[meant] == ALGORITHMS[algorithm]))
    )


def is_signed_by(token: Jws, key: Key, algorithm: str) -> bool:
    """Return whether a token was signed with a key; the key must suit the algorithm."""
    from joserfc.jws import JWSRegistry

    # The algorithm is called directly, because joserfc's own function for tokens would parse the token again.
    return JWSRegistry.algorithms[ALGORITHMS[algorithm][2]].verify(token.signed, token.signature, key)


def import_key(jwk: Any) -> Key:
    """Make a key from a public JWK.

    Raises:
        ValueError: If the JWK is not a public key with which this module can check signatures.
    """
    from joserfc.jwk import JWKRegistry

    if not isinstance(jwk, dict) or jwk.get("kty") not in ("EC", "RSA", "OKP"):
        raise ValueError("its type is not EC, RSA or OKP")
    # A private key that was published proves nothing: everyone can sign with it.
    if not jwk.keys().isdisjoint({"d", "k", "p", "q", "dp", "dq", "qi", "oth"}):
        raise ValueError("it is a private key")
    operations = jwk.get("key_ops", ["verify"])
    if jwk.get("use", "sig") != "sig" or not isinstance(operations, list) or "verify" not in operations:
        raise ValueError("it is not meant for signatures")
    if jwk["kty"] == "RSA":
        _check_rsa(jwk)
    try:
        key = JWKRegistry.import_key(jwk)
        key.public_key  # noqa: B018 - the key is parsed only now
    # joserfc and the libraries that it uses report a bad key with exceptions of different types.
    except Exception as exc:
        raise ValueError(f"it can't be read ({type(exc).__name__})") from None
    return key


def _check_rsa(jwk: dict[str, Any]) -> None:
    # This check comes before joserfc reads the key, because joserfc would warn about a weak key, and a peer must not be
    # able to cause warnings.
    try:
        modulus, exponent = (int.from_bytes(_decoded(jwk[name])).bit_length() for name in ("n", "e"))
    except (KeyError, AttributeError, ValueError, InvalidToken):
        raise ValueError("it can't be read") from None
    least, most = _RSA_BITS
    if not least <= modulus <= most or exponent > _RSA_EXPONENT_BITS:
        raise ValueError(f"it is an RSA key with fewer than {least} or more than {most} bits, or with a large exponent")
