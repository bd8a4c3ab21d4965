"""Proofs of DPoP, read as a server reads them, and the nonces of servers."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from joserfc import jwk, jws, jwt

from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.dpop import Prover, choose_prover
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata, Discovered, ProtectedResource
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import Headers

URL = "https://mcp.example.com/mcp"


def read(proof: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Check the signature by the key that the proof names, and return header and claims."""
    header = jws.extract_compact(proof.encode()).headers()
    assert header["typ"] == "dpop+jwt"
    assert header["alg"] == "ES256"
    assert set(header["jwk"]) == {"kty", "crv", "x", "y"}, "the public key and nothing of the private one"
    return header, dict(jwt.decode(proof, jwk.ECKey.import_key(header["jwk"]), algorithms=["ES256"]).claims)


def nonce(value: str) -> Headers:
    return Headers([("DPoP-Nonce", value)])


def test_a_proof_is_what_the_rfc_says() -> None:
    prover = Prover(clock=lambda: 1_800_000_000.9)
    header, claims = read(prover.proof("POST", f"{URL}?a=b", "token"))
    assert jwk.ECKey.import_key(header["jwk"]).thumbprint() == prover.thumbprint
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"token").digest()).rstrip(b"=").decode()
    assert len(claims.pop("jti")) >= 16
    assert claims == {"htm": "POST", "htu": URL, "iat": 1_800_000_000, "ath": digest}
    assert "ath" not in read(prover.proof("POST", URL))[1]


def test_each_proof_is_another() -> None:
    prover = Prover()
    assert len({read(prover.proof("GET", URL))[1]["jti"] for _ in range(50)}) == 50


def test_proofs_that_are_made_ahead_are_for_the_same_request_in_the_same_second() -> None:
    now = 0.0
    prover = Prover(clock=lambda: now)
    seen = set()
    for step in range(60):
        if step == 22:
            prover.learn(URL, nonce("n1"), resource=True)
        now = step // 13
        method, url, token = [("POST", URL, "a"), ("POST", URL, "b"), ("GET", URL, "a"), ("POST", f"{URL}/x", "a")][
            step // 5 % 4
        ]
        claims = read(prover.proof(method, url, token))[1]
        seen.add(claims["jti"])
        digest = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
        assert (claims["htm"], claims["htu"], claims["ath"], claims["iat"]) == (method, url, digest, now)
        assert claims.get("nonce") == ("n1" if step >= 22 else None)
    assert len(seen) == 60


def test_a_key_survives_storing_and_shows_itself_nowhere() -> None:
    first = Prover()
    again = Prover(first.key)
    assert (again.thumbprint, again.key) == (first.thumbprint, first.key)
    assert read(again.proof("GET", URL))[0] == read(first.proof("GET", URL))[0]
    assert json.loads(first.key)["d"] not in repr(first)


@pytest.mark.parametrize("text", [
    "", "{}", "[]", "null", "7", "no JSON", '{"kty": "EC"}', '{"kty": "oct", "k": "c2VjcmV0"}',
    json.dumps(jwk.ECKey.generate_key("P-256").as_dict(private=False)),
    json.dumps(jwk.ECKey.generate_key("P-384").as_dict(private=True)),
    json.dumps(jwk.OKPKey.generate_key("Ed25519").as_dict(private=True)),
    json.dumps({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "d": "CANARY"}),
])  # fmt: skip
def test_another_text_than_such_a_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="the DPoP key must be a JWK, in JSON, of a private key for ES256") as caught:
        Prover(text)
    assert "CANARY" not in repr(caught.value)


def test_nonces_are_kept_for_each_server_and_for_tokens_apart() -> None:
    prover = Prover()
    prover.learn("https://a.example/token", nonce("as"), resource=False)
    prover.learn("https://A.example:443/mcp", nonce("rs"), resource=True)
    prover.learn("https://b.example/mcp", nonce("b"), resource=True)
    got = [
        read(prover.proof("POST", url, token))[1].get("nonce")
        for url, token in [
            ("https://a.example/token", None),
            ("https://a.example/mcp?x", "t"),
            ("https://b.example/", "t"),
            ("https://b.example/", None),
            ("http://a.example/mcp", "t"),
        ]
    ]
    assert got == ["as", "rs", "b", None, None]


def test_the_last_nonce_is_sent_and_what_is_not_a_nonce_never() -> None:
    prover = Prover()
    more = [Headers(), Headers([("DPoP-Nonce", "n3"), ("dpop-nonce", "n4")])]
    for headers in (*map(nonce, ["n1", "n2", "", 'a"b', "a b", "a\\b", "ä", "n" * 1025]), *more):
        prover.learn(URL, headers, resource=True)
    assert read(prover.proof("GET", URL, "t"))[1]["nonce"] == prover.nonce(URL, resource=True) == "n2"


def test_nonces_of_many_servers_are_forgotten() -> None:
    prover = Prover()
    for number in range(100):
        prover.learn(f"https://s{number}.example/", nonce("n"), resource=True)
    known = [
        number for number in range(100) if "nonce" in read(prover.proof("GET", f"https://s{number}.example/", "t"))[1]
    ]
    assert known == list(range(84, 100))


VISIBLE = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=50)


@given(VISIBLE, VISIBLE)
def test_a_proof_names_the_url_up_to_its_query(rest: str, token: str) -> None:
    try:
        proof = PROVER.proof("PUT", f"https://a.example/{rest}", token)
    except ValueError:
        return  # no URL
    assert read(proof)[1]["htu"] == f"https://a.example/{re.split('[?#]', rest)[0]}"


PROVER = Prover()


def found(algorithms: tuple[str, ...], resource: ProtectedResource | None = None) -> Discovered:
    return Discovered(resource, AuthorizationServerMetadata("https://id.example.com", dpop=algorithms))


KNOWN = ProtectedResource(URL, ("https://id.example.com",), dpop=("ES256",))
ASKED, UNASKED = Wanted(dpop=True), Wanted()


@pytest.mark.parametrize(("use", "discovered", "wanted", "made"), [
    ("auto", found(("RS256", "ES256")), ASKED, True),
    ("auto", found(("ES256",)), UNASKED, False),
    ("auto", found(("ES256",), KNOWN), UNASKED, True),
    ("auto", found(("ES256",), attrs.evolve(KNOWN, dpop=("RS256",))), UNASKED, False),
    ("auto", found(("ES256",), attrs.evolve(KNOWN, dpop=(), dpop_required=True)), UNASKED, True),
    ("auto", found(("RS256",), KNOWN), ASKED, False),
    ("auto", found((), KNOWN), ASKED, False),
    ("off", found(("ES256",), KNOWN), ASKED, False),
    ("require", found(("ES256",)), UNASKED, True),
])  # fmt: skip
def test_whether_a_login_is_bound_to_a_key(use: Any, discovered: Discovered, wanted: Wanted, made: bool) -> None:
    assert (choose_prover(use, discovered, wanted) is not None) is made


def test_dpop_that_is_required_and_not_offered() -> None:
    with pytest.raises(AuthorizationError, match="DPoP with ES256 is required, but the server does not offer it"):
        choose_prover("require", found(("RS256",)), ASKED)


def test_without_joserfc_dpop_is_left_out_unless_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joserfc", None)
    assert choose_prover("auto", found(("ES256",)), ASKED) is None
    with pytest.raises(ImportError, match=r"DPoP needs joserfc: pip install 'trio-mcp\[auth\]'"):
        choose_prover("require", found(("ES256",)), ASKED)
