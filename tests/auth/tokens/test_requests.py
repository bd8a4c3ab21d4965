"""What is sent to a token endpoint: the form, and the one way in which the client proves who it is."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote_plus

import attrs
import pytest
from hypothesis import given, strategies as st
from joserfc import jwk, jwt

from tests.auth.tokens.flows import AT, GRANTED, ISSUER, NOW, answer, drive, error, form
from trio_mcp.auth import PrivateKeyJwt
from trio_mcp.auth.rules.dpop import Prover
from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow
from trio_mcp.auth.rules.token_requests import (
    TokenEndpoint,
    client_credentials,
    exchange_code,
    jwt_bearer,
    refresh,
    revoke,
    token_exchange,
)
from trio_mcp.errors import AuthorizationError

RESOURCE = "https://mcp.example.com/A%20b/"
JAG = "urn:ietf:params:oauth:token-type:id-jag"
KEY = jwk.ECKey.generate_key("P-256")
PEM = KEY.as_pem(private=True)
SECRET = ClientRecord("a:b c", "given", "s%/ é", "client_secret_basic")

FLOWS: dict[str, tuple[Callable[[TokenEndpoint], Flow[Any]], dict[str, str]]] = {
    "code": (
        lambda at: exchange_code(at, code="c", verifier="v", redirect="http://127.0.0.1:1/cb", resource=RESOURCE),
        {
            "grant_type": "authorization_code",
            "code": "c",
            "code_verifier": "v",
            "redirect_uri": "http://127.0.0.1:1/cb",
            "resource": RESOURCE,
        },
    ),
    "refresh": (
        lambda at: refresh(at, refresh_token="r&=", resource=RESOURCE),
        {"grant_type": "refresh_token", "refresh_token": "r&=", "resource": RESOURCE},
    ),
    "credentials": (
        lambda at: client_credentials(at, scopes={"write", "read"}, resource=RESOURCE),
        {"grant_type": "client_credentials", "scope": "read write", "resource": RESOURCE},
    ),
    "jwt": (
        lambda at: jwt_bearer(at, assertion="j", scopes=["read"], resource=RESOURCE),
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            "assertion": "j",
            "scope": "read",
            "resource": RESOURCE,
        },
    ),
    "exchange": (
        lambda at: token_exchange(at, id_token="i", audience="https://as.example.com", resource=RESOURCE),
        {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": JAG,
            "subject_token": "i",
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": "https://as.example.com",
            "resource": RESOURCE,
        },
    ),
}


@pytest.mark.parametrize(("flow", "expected"), FLOWS.values(), ids=FLOWS)
def test_the_form_of_each_grant(flow: Callable[[TokenEndpoint], Flow[Any]], expected: Mapping[str, str]) -> None:
    _, [step] = drive(flow(AT), answer(GRANTED | {"issued_token_type": JAG}))
    assert isinstance(step, Fetch)
    assert (step.method, step.url) == ("POST", AT.url)
    assert step.fields == {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    assert form(step) == {**expected, "client_id": "me"}


@pytest.mark.parametrize("flow", [client_credentials, lambda at: refresh(at, refresh_token="r")])
def test_without_scopes_and_a_resource_neither_is_sent(flow: Callable[[TokenEndpoint], Flow[Any]]) -> None:
    _, [step] = drive(flow(attrs.evolve(AT, client=None)), answer())
    assert not form(step).keys() & {"scope", "resource", "client_id"}


@pytest.mark.parametrize(("client", "fields", "parameters"), [
    (None, {}, {}),
    (ClientRecord("me", "registered"), {}, {"client_id": "me"}),
    (attrs.evolve(SECRET, method="none"), {}, {"client_id": "a:b c"}),
    (attrs.evolve(SECRET, method="client_secret_post"), {}, {"client_id": "a:b c", "client_secret": "s%/ é"}),
    # Worked out by hand from RFC 6749, section 2.3.1.
    (SECRET, {"Authorization": "Basic YSUzQWIrYzpzJTI1JTJGKyVDMyVBOQ=="}, {}),
])  # fmt: skip
def test_a_client_proves_who_it_is_in_one_way(
    client: ClientRecord | None, fields: Mapping[str, str], parameters: Mapping[str, str]
) -> None:
    _, [step] = drive(client_credentials(attrs.evolve(AT, client=client)), answer())
    assert isinstance(step, Fetch)
    assert {name: step.fields[name] for name in step.fields if name not in ("Content-Type", "Accept")} == fields
    assert form(step) == {"grant_type": "client_credentials", **parameters}


@given(st.text(), st.text())
def test_any_id_and_secret_arrive(id: str, secret: str) -> None:
    client = ClientRecord(id, "given", secret, "client_secret_basic")
    try:
        id.encode(), secret.encode()
    except UnicodeEncodeError:
        return
    _, [step] = drive(client_credentials(attrs.evolve(AT, client=client)), answer())
    assert isinstance(step, Fetch)
    pair = base64.b64decode(step.fields["Authorization"].removeprefix("Basic ")).decode("ascii")
    assert [unquote_plus(part) for part in pair.split(":")] == [id, secret]


def test_a_key_signs_for_the_issuer_and_each_time_anew() -> None:
    client = ClientRecord("me", "given", method="private_key_jwt")
    at = attrs.evolve(AT, client=client, key=PrivateKeyJwt(PEM, key_id="k1"))
    seen = set()
    for _ in range(2):
        _, [step] = drive(refresh(at, refresh_token="r"), answer())
        sent = form(step)
        assert sent["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        assert sent["client_id"] == "me"
        token = jwt.decode(sent["client_assertion"], KEY, algorithms=["ES256"])
        assert token.header == {"alg": "ES256", "typ": "JWT", "kid": "k1"}
        seen.add(token.claims.pop("jti"))
        assert token.claims == {"iss": "me", "sub": "me", "aud": ISSUER, "iat": NOW, "exp": NOW + 60}
    assert len(seen) == 2


@pytest.mark.parametrize(("method", "problem"), [
    ("private_key_jwt", "the client 'me' has no private key"),
    ("client_secret_post", "the client 'me' has no secret"),
    ("client_secret_basic", "the client 'me' has no secret"),
])  # fmt: skip
def test_a_client_without_what_it_needs_sends_nothing(method: Any, problem: str) -> None:
    with pytest.raises(AuthorizationError, match=problem):
        next(client_credentials(attrs.evolve(AT, client=ClientRecord("me", "given", method=method))))


# --- DPoP ------------------------------------------------------------------------------------------------------------


def use_nonce(nonce: str, status: int = 400) -> Fetched:
    return answer({"error": "use_dpop_nonce"}, status, DPoP_Nonce=nonce)


def claims(step: object, prover: Prover) -> dict[str, Any]:
    assert isinstance(step, Fetch)
    key = jwk.ECKey.import_key(json.loads(prover.key))
    return dict(jwt.decode(step.fields["DPoP"], key, algorithms=["ES256"]).claims)


@pytest.mark.parametrize("status", [400, 401])
def test_a_nonce_that_is_asked_for_is_sent_with_a_new_proof_and_from_then_on(status: int) -> None:
    prover = Prover()
    at = attrs.evolve(AT, prover=prover)
    _, first = drive(client_credentials(at), use_nonce("n1", status), answer(GRANTED, DPoP_Nonce="n2"))
    _, second = drive(client_credentials(at), answer())
    proofs = [claims(step, prover) for step in (*first, *second)]
    assert [proof.get("nonce") for proof in proofs] == [None, "n1", "n2"]
    assert len({proof["jti"] for proof in proofs}) == 3
    assert all((proof["htm"], proof["htu"], "ath" in proof) == ("POST", AT.url, False) for proof in proofs)


@pytest.mark.parametrize("answers", [
    [use_nonce("n1"), use_nonce("n2")],
    [use_nonce("n1"), use_nonce("n1")],
    [answer({"error": "use_dpop_nonce"}, 400)],
    [use_nonce('no "nonce"')],
    [use_nonce("n" * 2000)],
    [use_nonce("n1", 500)],
])  # fmt: skip
def test_a_server_that_always_wants_another_nonce_gets_no_third_request(answers: list[Fetched]) -> None:
    with pytest.raises(AuthorizationError):
        drive(client_credentials(attrs.evolve(AT, prover=Prover())), *answers)


def test_a_nonce_that_another_request_has_learned_first_is_used() -> None:
    prover = Prover()
    flow = client_credentials(attrs.evolve(AT, prover=prover))
    next(flow)
    drive(client_credentials(attrs.evolve(AT, prover=prover)), use_nonce("n1"), answer())
    assert claims(flow.send(use_nonce("n1")), prover)["nonce"] == "n1"


def test_a_nonce_means_nothing_without_a_key() -> None:
    with pytest.raises(AuthorizationError, match="use_dpop_nonce"):
        drive(client_credentials(AT), use_nonce("n1"))


# --- other answers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [..., "urn:ietf:params:oauth:token-type:access_token", None, "", 7, [JAG]])
def test_what_is_no_id_jag_is_not_presented_as_one(kind: object) -> None:
    body = {name: value for name, value in {**GRANTED, "issued_token_type": kind}.items() if value is not ...}
    with pytest.raises(AuthorizationError, match=r"^token exchange at .* no ID-JAG, but"):
        drive(token_exchange(AT, id_token="i", audience="a"), answer(body))


def test_an_id_jag_comes_back_as_it_is() -> None:
    body = {"access_token": "jag", "issued_token_type": JAG, "token_type": "N_A"}
    assert drive(token_exchange(AT, id_token="i", audience="a"), answer(body))[0] == "jag"
    with pytest.raises(AuthorizationError, match="no ID-JAG"):
        drive(token_exchange(AT, id_token="i", audience="a"), answer(body | {"access_token": ""}))


def test_revocation() -> None:
    _, [step] = drive(revoke(AT, endpoint=f"{ISSUER}/revoke", token="r"), answer(b"<html>"))
    assert isinstance(step, Fetch)
    assert (step.url, form(step)) == (
        f"{ISSUER}/revoke",
        {"token": "r", "token_type_hint": "refresh_token", "client_id": "me"},
    )
    for refused in (error("unsupported_token_type"), error("server_error", 503)):
        with pytest.raises(AuthorizationError, match=r"^revocation"):
            drive(revoke(AT, endpoint=f"{ISSUER}/revoke", token="r"), refused)
