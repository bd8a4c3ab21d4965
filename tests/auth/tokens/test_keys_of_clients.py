"""Private keys of clients: which are taken, and what those that are not say."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from joserfc import jwk, jwt

from trio_mcp.auth import PrivateKeyJwt

EC = jwk.ECKey.generate_key("P-256")
KEYS: dict[str, Any] = {
    "ES256": EC,
    "ES384": jwk.ECKey.generate_key("P-384"),
    "RS256": jwk.RSAKey.generate_key(2048),
    "Ed25519": jwk.OKPKey.generate_key("Ed25519"),
}


@pytest.mark.parametrize("algorithm", KEYS)
@pytest.mark.parametrize("kind", [str, bytes])
def test_a_key_of_each_kind_signs(algorithm: str, kind: type) -> None:
    pem = KEYS[algorithm].as_pem(private=True)
    key = PrivateKeyJwt(pem if kind is bytes else pem.decode(), algorithm)
    token = jwt.decode(key.assertion("me", "https://id.example.com"), KEYS[algorithm], algorithms=[algorithm])
    assert token.claims["aud"] == "https://id.example.com"
    assert "PRIVATE" not in repr(key)
    assert key == PrivateKeyJwt(key.pem, algorithm)


@pytest.mark.parametrize(("pem", "algorithm", "problem"), [
    ("CANARY", "ES256", "not in PEM"),
    (b"", "ES256", "not in PEM"),
    ('{"kty": "oct", "k": "CANARY"}', "ES256", "not in PEM"),
    ("-----BEGIN PRIVATE KEY-----\nCANARY\n-----END PRIVATE KEY-----", "ES256", "not a private key for ES256"),
    (EC.as_pem(private=False), "ES256", "not a private key for ES256"),
    (EC.as_pem(private=True), "ES384", "not a private key for ES384"),
    (EC.as_pem(private=True), "RS256", "not a private key for RS256"),
    (EC.as_pem(private=True), "Ed25519", "not a private key for Ed25519"),
    (EC.raw_value.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"CANARY"),
    ), "ES256", "not a private key for ES256"),
    (EC.as_pem(private=True), "HS256", "can't sign with 'HS256'; use one of ES256"),
    (EC.as_pem(private=True), "none", "can't sign with 'none'"),
])  # fmt: skip
def test_what_is_no_key_for_the_algorithm_is_found_at_once(pem: Any, algorithm: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        PrivateKeyJwt(pem, algorithm)
    assert "CANARY" not in repr(caught.value)
    assert caught.value.__cause__ is None


def test_without_joserfc_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    with pytest.raises(ImportError, match=r"PrivateKeyJwt needs joserfc: pip install 'trio-mcp\[auth\]'"):
        PrivateKeyJwt(EC.as_pem(private=True))
