"""What a token endpoint may answer, and what becomes of it."""

from __future__ import annotations

import json

import attrs
import pytest
from hypothesis import given, strategies as st

from tests.auth.tokens.flows import AT, GRANTED, NOW, answer, drive, error
from trio_mcp.auth.rules.dpop import Prover
from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.auth.rules.token_answers import Tokens
from trio_mcp.auth.rules.token_requests import client_credentials, refresh, renewed, to_login
from trio_mcp.errors import AuthorizationError

AN_HOUR_AGO = "Fri, 15 Jan 2027 07:00:00 GMT"


def tokens(changes: dict[str, object]) -> Tokens:
    body = {name: value for name, value in (GRANTED | changes).items() if value is not ...}
    return drive(client_credentials(AT), answer(body))[0]


@pytest.mark.parametrize(("lifetime", "left"), [
    (3600, 3600), (3600.5, 3600.5), ("3600", 3600), (1, 1), (..., None), (None, None), (0, None), (-1, None),
    ("-1", None), (True, None), ("soon", None), ("", None), ([3600], None), ({}, None), ("nan", None), ("1e400", None),
    (10**400, None), (1e300, None), ("9" * 5000, None),
])  # fmt: skip
def test_a_lifetime_is_a_number_of_seconds_or_unknown(lifetime: object, left: float | None) -> None:
    assert tokens({"expires_in": lifetime}).expires_at == (None if left is None else NOW + left)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "NaN", "Infinity"])
def test_numbers_that_json_does_not_have_are_no_lifetimes(number: str) -> None:
    body = f'{{"access_token": "a", "token_type": "bearer", "expires_in": {number}}}'
    assert drive(client_credentials(AT), answer(body.encode()))[0].expires_at is None


@pytest.mark.parametrize(("changes", "expected"), [
    ({}, {}),
    ({"token_type": "bearer"}, {}),
    ({"token_type": "BEARER"}, {}),
    ({"token_type": ...}, {}),
    ({"unknown": {"a": [1]}}, {}),
    ({"scope": "read write"}, {"scopes": {"read", "write"}}),
    ({"scope": " read  read "}, {"scopes": {"read"}}),
    ({"scope": ["read", "write"]}, {"scopes": {"read", "write"}}),
    ({"scope": ""}, {}),
    ({"scope": []}, {}),
    ({"scope": ["read", 1]}, {}),
    ({"scope": None}, {}),
    ({"scope": {"read": 1}}, {}),
    ({"refresh_token": "r"}, {"refresh_token": "r"}),
    ({"refresh_token": ""}, {}),
    ({"refresh_token": 5}, {}),
    ({"refresh_token": None}, {}),
    ({"id_token": "i"}, {"id_token": "i"}),
    ({"id_token": {}}, {}),
])  # fmt: skip
def test_what_is_odd_beside_a_token_is_left_out(changes: dict[str, object], expected: dict[str, object]) -> None:
    assert tokens(changes) == attrs.evolve(Tokens("token-1"), **expected)


@pytest.mark.parametrize("changes", [
    {"access_token": ...}, {"access_token": ""}, {"access_token": None}, {"access_token": 7},
    {"access_token": "two words"}, {"access_token": "a\r\nX-Evil: 1"}, {"access_token": "tök"}, {"access_token": ["a"]},
    {"token_type": "mac"}, {"token_type": "N_A"}, {"token_type": ["Bearer"]}, {"token_type": None}, {"token_type": ""},
    {"token_type": "DPoP"},  # no proof went with the request
])  # fmt: skip
def test_a_token_that_cant_be_used_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(AuthorizationError) as caught:
        tokens(changes)
    assert (caught.value.step, caught.value.issuer, caught.value.error) == ("token", AT.issuer, None)


def test_whether_a_token_is_bound_is_said_by_its_type() -> None:
    at = attrs.evolve(AT, prover=Prover())
    bound = answer(GRANTED | {"token_type": "dpop"})
    assert drive(client_credentials(at), bound)[0].token_type == "DPoP"
    assert drive(client_credentials(at), answer())[0].token_type == "Bearer"
    with pytest.raises(AuthorizationError, match=r"DPoP is required, .*dpop='auto'"):
        drive(client_credentials(attrs.evolve(at, require_dpop=True)), answer())


@pytest.mark.parametrize(("response", "code", "text"), [
    (error("invalid_grant"), "invalid_grant", "responded with status 400 .invalid_grant."),
    (error("invalid_client", 401), "invalid_client", "check the client's id"),
    (error("invalid_grant", 200), "invalid_grant", "responded with status 200"),
    (error("invalid_grant", error_description="Too\n\x1b[31mold."), "invalid_grant", "400: Too  .31mold .inv"),
    (error("invalid_grant", error_description=["x"]), "invalid_grant", "responded with status 400 "),
    (error("has space"), None, "no error code"),
    (error("x" * 101), None, "no error code"),
    (error("a\nb"), None, "no error code"),
    (answer({"error": 5}, 400), None, "no error code"),
    (answer({}, 400), None, "no error code"),
    (answer([], 400), None, "no error code"),
    (answer(b"<html>", 403), None, "responded with status 403"),
    (answer(b"\xff\xfe", 400), None, "responded with status 400"),
    (answer(b"[" * 60_000, 400), None, "responded with status 400"),
    (answer(b'{"error": ' + b"1" * 5000 + b"}", 400), None, "responded with status 400"),
    (error("invalid_grant", 500), None, "responded with status 500"),
    (error("invalid_client", 503), None, "responded with status 503"),
    (error("invalid_grant", 429), None, "responded with status 429"),
    (answer(b"", 302, Location="https://evil.example"), None, "a redirection"),
    (answer(b"", 307, Location="https://evil.example"), None, "a redirection"),
    (answer(b""), None, "not a JSON object"),
    (answer(b"[]"), None, "not a JSON object"),
    (answer(b'"token-1"'), None, "not a JSON object"),
    (answer(b"access_token=a&token_type=bearer"), None, "not a JSON object"),
    (answer(GRANTED, 201), None, "responded with status 201"),
    (answer(b"", 204), None, "responded with status 204"),
])  # fmt: skip
def test_an_answer_that_grants_nothing_says_why(response: Fetched, code: str | None, text: str) -> None:
    with pytest.raises(AuthorizationError, match=text) as caught:
        drive(refresh(AT, refresh_token="r"), response)
    assert (caught.value.step, caught.value.issuer, caught.value.error) == ("refresh", AT.issuer, code)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("body", [
    {"error": "invalid_grant", "error_description": "no such token: CANARY-r"},
    {"error": "CANARY-r"},
    {"error": "CANARY-s", "error_description": "CANARY-s"},
])  # fmt: skip
def test_what_the_server_repeats_of_our_secrets_is_not_shown(body: dict[str, str]) -> None:
    client = attrs.evolve(AT.client, secret="CANARY-s", method="client_secret_post")
    with pytest.raises(AuthorizationError) as caught:
        drive(refresh(attrs.evolve(AT, client=client), refresh_token="CANARY-r"), answer(body, 400))
    assert "CANARY" not in f"{caught.value!r} {caught.value}"


def test_secrets_are_not_in_any_repr() -> None:
    body = GRANTED | {"access_token": "CANARY-a", "refresh_token": "CANARY-r", "id_token": "CANARY-i"}
    at = attrs.evolve(AT, client=attrs.evolve(AT.client, secret="CANARY-s", method="client_secret_post"))
    found, steps = drive(refresh(at, refresh_token="CANARY-o"), answer(body))
    assert "CANARY" not in repr((found, steps, at, to_login(at, found, resource=None)))


def test_a_refusal_tells_of_a_clock_that_is_wrong() -> None:
    with pytest.raises(AuthorizationError, match=r"this machine's clock is \d+ s ahead of the server's; check"):
        drive(refresh(AT, refresh_token="r"), answer({"error": "invalid_client"}, 401, Date=AN_HOUR_AGO))
    for date in ("Fri, 15 Jan 2027 08:00:30 GMT", "yesterday", "", "Fri, 15 Jan 99999 08:00:00 GMT"):
        with pytest.raises(AuthorizationError) as caught:
            drive(refresh(AT, refresh_token="r"), answer({"error": "invalid_client"}, 401, Date=date))
        assert "clock" not in str(caught.value)


def test_a_secret_that_has_expired_is_named() -> None:
    client = attrs.evolve(AT.client, secret="s", method="client_secret_basic", secret_expires_at=NOW - 1)
    with pytest.raises(AuthorizationError, match="the secret of the client 'me' has expired"):
        drive(client_credentials(attrs.evolve(AT, client=client)), error("invalid_client", 401))


def test_a_login_keeps_what_a_refresh_does_not_mention() -> None:
    first = Tokens("a", expires_at=5.0, refresh_token="r", scopes=frozenset({"read"}), id_token="i")
    login = to_login(AT, first, resource="https://mcp.example.com", asked={"read", "write"})
    assert (login.token_endpoint, login.issuer, login.client) == (AT.url, AT.issuer, AT.client)
    kept = renewed(login, Tokens("b"))
    assert kept == attrs.evolve(login, access_token="b", expires_at=None)
    full = Tokens("c", "DPoP", 9.0, "r2", frozenset({"write"}), "i2")
    assert attrs.asdict(renewed(login, full)).items() >= attrs.asdict(full).items()
    assert to_login(AT, Tokens("a"), resource=None, asked={"read"}).scopes == {"read"}
    assert to_login(AT, Tokens("a"), resource=None).scopes is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner), max_leaves=4
)
NAMES = st.sampled_from(["access_token", "token_type", "expires_in", "scope", "refresh_token", "id_token", "error"])


@given(st.integers(100, 599), st.binary() | st.dictionaries(NAMES, JSON).map(lambda value: json.dumps(value).encode()))
def test_any_answer_is_tokens_or_an_error_of_authorization(status: int, body: bytes) -> None:
    try:
        found, _ = drive(client_credentials(AT), answer(body, status))
    except AuthorizationError:
        return
    assert status == 200
    assert found.access_token.isascii()
    assert found.expires_at is None or found.expires_at > NOW
