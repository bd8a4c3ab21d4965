"""Tokens at a resource server: those that are good, and at least sixty that are not, each for one reason."""

from __future__ import annotations

import base64
import hmac
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from tests.auth.resource.scene import (
    ED,
    ISSUER,
    KEY,
    NOW,
    OTHER,
    RESOURCE,
    RSA,
    Issuer,
    bearer,
    bound,
    challenges,
    claims,
    encoded,
    part,
    protected,
    token,
)
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.protection import Identified

HEAD = part({"alg": "ES256", "kid": "k1", "typ": "at+jwt"})
BODY = part(claims())
SIGNATURE = token().rpartition(".")[2]
PEM = KEY.as_pem(private=False)


def made(header: object = None, payload: object = None, signature: str = SIGNATURE) -> str:
    """Join the parts of a token, the good ones where none is given; no signature fits."""
    return ".".join([HEAD if header is None else part(header), BODY if payload is None else part(payload), signature])


def unsigned(alg: Any) -> str:
    return f"{part({'alg': alg, 'typ': 'at+jwt'})}.{BODY}."


def with_secret(secret: bytes, alg: str = "HS256", digest: str = "sha256") -> str:
    signed = f"{part({'alg': alg, 'kid': 'k1', 'typ': 'at+jwt'})}.{BODY}"
    return f"{signed}.{encoded(hmac.digest(secret, signed.encode(), digest))}"


def bent() -> str:
    """Change one bit of a signature."""
    head, _, last = token().rpartition(".")
    raw = base64.urlsafe_b64decode(last + "==")
    return f"{head}.{encoded(raw[:-1] + bytes([raw[-1] ^ 1]))}"


GOOD: dict[str, Callable[[], str]] = {
    "as the standard has it": token,
    "typ of the media type": lambda: token({"typ": "application/at+jwt"}),
    "typ JWT": lambda: token({"typ": "JWT"}),
    "typ in capitals": lambda: token({"typ": "AT+JWT"}),
    "no typ": lambda: token({"typ": ...}),
    "no kid, and one key of its kind": lambda: token({"kid": ...}),
    "RS256": lambda: token({"alg": "RS256", "kid": "r1"}, key=RSA),
    "PS256": lambda: token({"alg": "PS256", "kid": "r1"}, key=RSA),
    "EdDSA": lambda: token({"alg": "EdDSA", "kid": "e1"}, key=ED),
    "Ed25519": lambda: token({"alg": "Ed25519", "kid": "e1"}, key=ED),
    "one of several audiences": lambda: token(aud=["https://other.example", RESOURCE]),
    "host of the audience in capitals": lambda: token(aud="HTTPS://Files.Example.com/mcp"),
    "scopes as a list": lambda: token(scope=..., scp=["files:read"]),
    "expired within the leeway": lambda: token(exp=int(NOW) - 29),
    "from the next half minute on": lambda: token(nbf=int(NOW) + 29),
    "time with a fraction": lambda: token(exp=NOW + 0.5),
    "an unknown member of the header": lambda: token({"x-vendor": 1}),
}

BAD: dict[str, Callable[[], str]] = {
    # the form
    "one letter": lambda: "x",
    "two parts": lambda: f"{HEAD}.{BODY}",
    "four parts": lambda: f"{token()}.{SIGNATURE}",
    "five parts, encrypted": lambda: ".".join([part({"alg": "dir", "enc": "A128GCM"}), "", "AAAA", "AAAA", "AAAA"]),
    "an empty header": lambda: f".{BODY}.{SIGNATURE}",
    "an empty signature": lambda: f"{HEAD}.{BODY}.",
    "a header that is not Base64": lambda: f"A.{BODY}.{SIGNATURE}",
    "a header that is not JSON": lambda: made(b"nothing"),
    "a header that is not UTF-8": lambda: made(b"\xff\xfe"),
    "a header that is a list": lambda: made([]),
    "a header that is deeply nested": lambda: made(b"[" * 9000),
    "claims that are a list": lambda: made(payload=[claims()]),
    "claims that are deeply nested": lambda: made(payload=b'{"a":' * 1500),
    "claims with NaN": lambda: made(payload=b'{"exp": NaN}'),
    # algorithms
    "alg none": lambda: unsigned("none"),
    "alg none with a signature": lambda: unsigned("none") + SIGNATURE,
    "alg None": lambda: unsigned("None") + SIGNATURE,
    "alg nOnE": lambda: unsigned("nOnE") + SIGNATURE,
    "alg missing": lambda: made({"typ": "at+jwt"}),
    "alg null": lambda: unsigned(None) + SIGNATURE,
    "alg a list": lambda: unsigned(["ES256"]) + SIGNATURE,
    "alg in small letters": lambda: unsigned("es256") + SIGNATURE,
    "alg unknown": lambda: unsigned("ES999") + SIGNATURE,
    "HS256 under the public key in PEM": lambda: with_secret(PEM),
    "HS256 under the public key as JWK": lambda: with_secret(json.dumps(KEY.as_dict(private=False)).encode()),
    "HS512 under the public key": lambda: with_secret(PEM, "HS512", "sha512"),
    "HS256 under nothing": lambda: with_secret(b"\0"),
    "ES256 with the RSA key's name": lambda: token({"kid": "r1"}),
    "RS256 with the EC key's name": lambda: token({"alg": "RS256", "kid": "k1"}, key=RSA),
    "ES384 with a key of another curve": lambda: token({"alg": "ES384"}),
    # the header
    "crit": lambda: token({"crit": ["exp"]}),
    "crit of an unknown member": lambda: token({"crit": ["x"], "x": 1}),
    "crit that is empty": lambda: token({"crit": []}),
    "b64 false": lambda: token({"b64": False, "crit": ["b64"]}),
    "b64 true": lambda: token({"b64": True}),
    "typ of a proof": lambda: token({"typ": "dpop+jwt"}),
    "typ of an ID-JAG": lambda: token({"typ": "oauth-id-jag+jwt"}),
    "typ of a logout token": lambda: token({"typ": "logout+jwt"}),
    "typ of a client's assertion": lambda: token({"typ": "client-authentication+jwt"}),
    "typ of an introspection response": lambda: token({"typ": "token-introspection+jwt"}),
    "typ a number": lambda: token({"typ": 1}),
    "kid unknown": lambda: token({"kid": "k2"}),
    "kid a path": lambda: token({"kid": "../../dev/null"}),
    "kid SQL": lambda: token({"kid": "k1' or '1'='1"}),
    "kid a number": lambda: token({"kid": 1}),
    "kid a list": lambda: token({"kid": ["k1"]}),
    "jwk of its own": lambda: token({"kid": "k9", "jwk": OTHER.as_dict(private=False)}, key=OTHER),
    "jku of its own": lambda: token({"kid": "k9", "jku": "https://evil.example/jwks"}, key=OTHER),
    "x5u of its own": lambda: token({"kid": "k9", "x5u": "https://evil.example/x5u"}, key=OTHER),
    # the signature
    "another key of the same name": lambda: token(key=OTHER),
    "one bit of the signature": bent,
    "a signature cut short": lambda: token()[:-8],
    "a signature of zeros": lambda: made(signature=encoded(bytes(64))),
    "a signature in DER": lambda: made(signature=encoded(b"0" * 70)),
    "claims of another token": lambda: made(payload=claims(sub="root")),
    # who and for whom
    "iss missing": lambda: token(iss=...),
    "iss of another issuer": lambda: token(iss="https://evil.example"),
    "iss with a longer host": lambda: token(iss=f"{ISSUER}.evil.example"),
    "iss with a path": lambda: token(iss=f"{ISSUER}/tenant"),
    "iss with a slash": lambda: token(iss=f"{ISSUER}/"),
    "iss in capitals": lambda: token(iss=ISSUER.upper()),
    "iss a list": lambda: token(iss=[ISSUER]),
    "sub missing": lambda: token(sub=...),
    "sub empty": lambda: token(sub=""),
    "sub a number": lambda: token(sub=7),
    "aud missing": lambda: token(aud=...),
    "aud of another server": lambda: token(aud="https://other.example/mcp"),
    "aud of the origin": lambda: token(aud="https://files.example.com"),
    "aud of a path below": lambda: token(aud=f"{RESOURCE}/more"),
    "aud with a query": lambda: token(aud=f"{RESOURCE}?x"),
    "aud of http": lambda: token(aud=RESOURCE.replace("https", "http")),
    "aud of the client, an ID token": lambda: token({"typ": "JWT"}, aud="app", nonce="n"),
    "aud an empty list": lambda: token(aud=[]),
    "aud a list of a list": lambda: token(aud=[[RESOURCE]]),
    "aud an object": lambda: token(aud={RESOURCE: 1}),
    # what it is
    "an ID token by its nonce": lambda: token({"typ": "JWT"}, nonce="n"),
    "an ID token by its at_hash": lambda: token({"typ": "JWT"}, at_hash="x"),
    "a logout token": lambda: token({"typ": "JWT"}, events={}),
    "an ID token of Keycloak": lambda: token({"typ": "JWT"}, typ="ID"),
    "a refresh token of Keycloak": lambda: token({"typ": "JWT"}, typ="Refresh"),
    "an ID token of Cognito": lambda: token({"typ": ...}, token_use="id"),
    # time
    "exp missing": lambda: token(exp=...),
    "exp past": lambda: token(exp=int(NOW) - 31),
    "exp zero": lambda: token(exp=0),
    "exp below zero": lambda: token(exp=-1),
    "exp a text": lambda: token(exp=str(int(NOW) + 60)),
    "exp true": lambda: token(exp=True),
    "exp infinite": lambda: made(payload=json.dumps(claims()).replace("1800003600", "1e400").encode()),
    "exp beyond all numbers": lambda: token(exp=10**400),
    "nbf beyond all numbers": lambda: token(nbf=-(10**400)),
    "exp null": lambda: token(exp=None),
    "exp a list": lambda: token(exp=[int(NOW) + 60]),
    "nbf later": lambda: token(nbf=int(NOW) + 31),
    "nbf a text": lambda: token(nbf="now"),
    "iat later": lambda: token(iat=int(NOW) + 3600),
    # what else it says
    "scope a number": lambda: token(scope=1),
    "scope a list of numbers": lambda: token(scope=[1]),
    "client_id a list": lambda: token(client_id=["app"]),
    "cnf of a certificate": lambda: token(cnf={"x5t#S256": "x"}),
    "cnf a text": lambda: token(cnf="x"),
    "cnf empty": lambda: token(cnf={}),
    "bound to a key, as a bearer": bound,
}


@pytest.mark.parametrize("make", GOOD.values(), ids=GOOD)
async def test_good_token(make: Callable[[], str]) -> None:
    async with protected() as (server, guard):
        outcome = await guard.identify(bearer(make()))
        assert isinstance(outcome, Identified)
        principal = outcome.principal
        assert principal.identity == (ISSUER, "alice", "app")
        assert principal.scopes == {"files:read"}
        assert principal.expires_at is not None
        assert server.permit(principal, ()) is None


@pytest.mark.parametrize("make", BAD.values(), ids=BAD)
async def test_bad_token(make: Callable[[], str], caplog: pytest.LogCaptureFixture) -> None:
    issuer, given = Issuer(), make()
    caplog.set_level(logging.INFO, "trio_mcp")
    async with protected(issuer) as (_, guard):
        outcome = await guard.identify(bearer(given))
        assert isinstance(outcome, Refusal)
        assert (outcome.status, {each.parameters["error"] for each in challenges(outcome)}) == (401, {"invalid_token"})
        # Nothing of it is shown, to the client or in the log.
        told = [outcome.body.decode(), str(outcome.headers), caplog.text]
        assert not any(piece in text for text in told for piece in given.split(".") if len(piece) > 8)
        assert not any("evil.example" in url for url in issuer.fetched)
