"""`trio_mcp.auth.testing`: the authorization server that other tests stand on."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import pytest
import trio
from joserfc import jwk, jwt

from trio_mcp import Server
from trio_mcp.auth.testing import AuthorizationServer, Fetch, ServerResponse, protected
from trio_mcp.auth.testing.faults import cut, edited, endless, lost, moved, raw, redirected, silent, status

REDIRECT = "http://127.0.0.1:0/callback"
RESOURCE = "https://files.example.com/mcp"
VERIFIER = "v" * 43
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
KEY = jwk.ECKey.generate_key("P-256")
FORM = "application/x-www-form-urlencoded"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def post(server: AuthorizationServer, endpoint: str, fields: Mapping[str, str] | None = None, /, **form: str) -> Any:
    """Send a form; return the status and the JSON."""
    given = answer_to(server, endpoint, fields, **form)
    return given.status, json.loads(given.body or b"null")


def answer_to(
    server: AuthorizationServer, endpoint: str, fields: Mapping[str, str] | None = None, /, **form: str
) -> ServerResponse:
    url = f"{server.issuer}/{endpoint}"
    return server.handle(Fetch("", "POST", url, {"Content-Type": FORM, **(fields or {})}, urlencode(form).encode()))


def register(server: AuthorizationServer, **metadata: object) -> tuple[int, dict[str, Any]]:
    given = {
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
        **metadata,
    }
    answer = server.handle(Fetch("", "POST", f"{server.issuer}/register", {}, json.dumps(given).encode()))
    return answer.status, json.loads(answer.body)


def asked(server: AuthorizationServer, client: str = "app", **parameters: str) -> dict[str, str]:
    """Sign in; return the parameters of the redirection."""
    given = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": REDIRECT.replace(":0", ":54321"),
        "state": "s",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
        "resource": RESOURCE,
        **parameters,
    }
    return server.sign_in(f"{server.issuer}/authorize?{urlencode(given)}")


def exchanged(server: AuthorizationServer, code: str, fields: Mapping[str, str] | None = None, /, **form: str) -> Any:
    given = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": "app",
        "redirect_uri": REDIRECT.replace(":0", ":54321"),
        "code_verifier": VERIFIER,
        **form,
    }
    return post(server, "token", fields, **given)


def signed_in(server: AuthorizationServer, **parameters: str) -> dict[str, Any]:
    said: dict[str, Any] = exchanged(server, asked(server, **parameters)["code"])[1]
    return said


def refreshed(server: AuthorizationServer, token: str, **form: str) -> Any:
    return post(server, "token", grant_type="refresh_token", refresh_token=token, **{"client_id": "app", **form})


def server_with(**options: Any) -> AuthorizationServer:
    """Return a server with a public client and two that have a secret."""
    server = AuthorizationServer(**{"tokens": "opaque", "clock": Clock(), **options})
    server.add_client("app", redirects=[REDIRECT])
    server.add_client("basic", "s3cr%t:", redirects=[REDIRECT])
    server.add_client("post", "secret", method="client_secret_post")
    server.add_client("keys", jwks={"keys": [KEY.as_dict(private=False)]})
    return server


def basic(client: str = "basic", secret: str = "s3cr%25t%3A") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()}


# --- metadata ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issuer", "paths"),
    [
        ("https://id.example.com", ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"]),
        (
            "https://id.example.com/a",
            [
                "/.well-known/oauth-authorization-server/a",
                "/.well-known/openid-configuration/a",
                "/a/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_metadata_is_at_each_of_its_places(issuer: str, paths: list[str]) -> None:
    server = server_with(issuer=issuer)
    for path in paths:
        given = server.handle(Fetch("", "GET", f"https://id.example.com{path}"))
        assert json.loads(given.body) == server.metadata()
        assert server.metadata()["issuer"] == issuer
    assert server.handle(Fetch("", "GET", f"https://else.example.com{paths[0]}")).status == 404
    assert server.handle(Fetch("", "POST", f"https://id.example.com{paths[0]}")).status == 405
    assert server.count("metadata") == len(paths) + 1


# --- the code flow -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tokens", ["jwt", "opaque"])
def test_a_code_becomes_tokens_for_the_resource(tokens: str) -> None:
    server = server_with(tokens=tokens)
    redirection = asked(server, scope="read")
    assert (redirection["state"], redirection["iss"]) == ("s", server.issuer)
    status, said = exchanged(server, redirection["code"], resource=RESOURCE)
    assert (status, said["token_type"], said["scope"], said["expires_in"]) == (200, "Bearer", "read", 3600)
    claims = server.claims_of(said["access_token"])
    assert claims is not None
    assert (claims["sub"], claims["aud"], claims["client_id"]) == ("alice", RESOURCE, "app")
    if tokens == "jwt":
        keys = jwk.KeySet.import_key_set(json.loads(server.handle(Fetch("", "GET", f"{server.issuer}/jwks")).body))
        found = jwt.decode(said["access_token"], keys)
        assert (found.header["typ"], found.claims) == ("at+jwt", claims)


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"code_challenge": ""}, "invalid_request"),
        ({"scope": "read admin"}, "invalid_scope"),
        ({"resource": "files"}, "invalid_target"),
        ({"resource": RESOURCE + "#x"}, "invalid_target"),
    ],
)
def test_a_bad_authorization_request_is_told_to_the_client(parameters: dict[str, str], error: str) -> None:
    server = server_with()
    said = asked(server, **parameters)
    assert (said["error"], said["iss"], said["state"]) == (error, server.issuer, "s")


def test_a_person_may_say_no() -> None:
    server = server_with()
    server.denies = True
    assert asked(server)["error"] == "access_denied"


@pytest.mark.parametrize(
    "parameters", [{"client_id": "other"}, {"redirect_uri": "https://evil.example.com/"}, {"state": "a&state=b"}]
)
def test_nothing_is_redirected_to_where_no_client_is(parameters: dict[str, str]) -> None:
    server = server_with()
    if "state" in parameters:  # twice
        assert server.handle(Fetch("", "GET", f"{server.issuer}/authorize?state=a&state=b")).status == 400
    else:
        with pytest.raises(ValueError, match="shows a page instead"):
            asked(server, **parameters)


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"code": "unknown"}, "invalid_grant"),
        ({"code_verifier": "w" * 43}, "invalid_grant"),
        ({"code_verifier": ""}, "invalid_request"),
        ({"redirect_uri": REDIRECT}, "invalid_grant"),
        ({"client_id": "post", "client_secret": "secret"}, "invalid_grant"),
        ({"resource": "https://else.example.com"}, "invalid_target"),
        ({"grant_type": "password"}, "unsupported_grant_type"),
    ],
)
def test_a_bad_token_request_is_refused(form: dict[str, str], error: str) -> None:
    server = server_with()
    code = asked(server)["code"]
    assert exchanged(server, code, **form)[1]["error"] == error


def test_a_code_is_used_once_and_its_second_use_revokes_what_it_gave() -> None:
    server = server_with()
    code = asked(server)["code"]
    said = exchanged(server, code)[1]
    assert exchanged(server, code) == (400, {"error": "invalid_grant", "error_description": "the code was used before"})
    assert server.claims_of(said["access_token"]) is None
    assert refreshed(server, said["refresh_token"])[1]["error"] == "invalid_grant"


def test_a_code_expires() -> None:
    clock = Clock()
    server = server_with(clock=clock)
    code = asked(server)["code"]
    clock.now += 61
    assert exchanged(server, code)[1]["error"] == "invalid_grant"


# --- refreshing --------------------------------------------------------------------------------------------------


def test_a_refresh_token_rotates_and_its_reuse_ends_the_family() -> None:
    server = server_with()
    first = signed_in(server)
    second = refreshed(server, first["refresh_token"], scope="read")[1]
    assert second["scope"] == "read"
    assert second["refresh_token"] != first["refresh_token"]
    third = refreshed(server, second["refresh_token"])[1]
    assert third["scope"] == "read write"  # what was consented to is not narrowed
    assert refreshed(server, first["refresh_token"])[1]["error"] == "invalid_grant"
    assert refreshed(server, third["refresh_token"])[1]["error"] == "invalid_grant"
    assert server.claims_of(third["access_token"]) is None


def test_a_grace_lets_the_last_refresh_token_be_used_again() -> None:
    clock = Clock()
    server = server_with(grace=10, clock=clock)
    token = signed_in(server)["refresh_token"]
    assert [refreshed(server, token)[0] for _ in range(2)] == [200, 200]
    clock.now += 11
    assert refreshed(server, token)[0] == 400


@pytest.mark.parametrize(
    ("form", "error"),
    [
        ({"scope": "read admin"}, "invalid_scope"),
        ({"resource": "https://else.example.com"}, "invalid_target"),
        ({"client_id": "post", "client_secret": "secret"}, "invalid_grant"),
    ],
)
def test_a_refused_refresh_leaves_the_token_as_it_was(form: dict[str, str], error: str) -> None:
    server = server_with()
    token = signed_in(server)["refresh_token"]
    assert refreshed(server, token, **form)[1]["error"] == error
    assert refreshed(server, token)[0] == 200


def test_where_offline_access_is_a_scope_only_those_who_ask_get_a_refresh_token() -> None:
    server = server_with(scopes=("read", "offline_access", "openid"))
    assert "refresh_token" not in signed_in(server)
    said = signed_in(server, scope="read offline_access openid", nonce="n")
    assert "refresh_token" in said
    claims = jwt.decode(said["id_token"], jwk.KeySet.import_key_set(server.keys.published())).claims
    assert (claims["aud"], claims["sub"], claims["nonce"]) == ("app", "alice", "n")


def test_tokens_expire_and_are_revoked() -> None:
    clock = Clock()
    server = server_with(clock=clock)
    said = signed_in(server)
    assert post(server, "revoke", token="unknown", client_id="app")[0] == 200
    assert post(server, "revoke", basic(), token=said["access_token"])[0] == 200  # of another client: no effect
    assert server.claims_of(said["access_token"]) is not None
    assert post(server, "revoke", token=said["access_token"], client_id="app")[0] == 200
    assert server.claims_of(said["access_token"]) is None
    again = refreshed(server, said["refresh_token"])[1]
    clock.now += 3600
    assert server.claims_of(again["access_token"]) is None
    again = refreshed(server, again["refresh_token"])[1]
    server.issued.expire()
    assert server.claims_of(again["access_token"]) is None
    assert post(server, "revoke", token=again["refresh_token"], client_id="app")[0] == 200
    assert refreshed(server, again["refresh_token"])[0] == 400


def test_a_token_can_be_introspected_by_those_with_a_secret() -> None:
    server = server_with()
    token = signed_in(server)["access_token"]
    status, said = post(server, "introspect", basic(), token=token)
    assert (status, said["active"], said["sub"], said["token_type"]) == (200, True, "alice", "Bearer")
    server.issued.revoke_all()
    assert post(server, "introspect", basic(), token=token) == (200, {"active": False})
    assert post(server, "introspect", client_id="app", token=token)[0] == 401


# --- clients -----------------------------------------------------------------------------------------------------


def test_a_client_registers() -> None:
    server = server_with()
    server.settings["client_secret_lifetime"] = 10
    status, said = register(server)
    assert (status, said["token_endpoint_auth_method"], "client_secret" in said) == (201, "none", False)
    assert "code" in asked(server, said["client_id"])
    _, said = register(server, token_endpoint_auth_method="client_secret_post")
    assert said["client_secret_expires_at"] == Clock.now + 10
    code = asked(server, said["client_id"])["code"]
    own = {"client_id": said["client_id"], "client_secret": said["client_secret"]}
    assert exchanged(server, code, **own)[0] == 200
    server.settings["clock"] = lambda: Clock.now + 10
    assert exchanged(server, code, **own)[1]["error"] == "invalid_client"
    server.clients.forget(said["client_id"])
    with pytest.raises(ValueError, match="does not know the client"):
        asked(server, said["client_id"])
    assert server.handle(Fetch("", "POST", f"{server.issuer}/register", {}, b"[")).status == 400
    server.settings["registration"] = False
    assert "registration_endpoint" not in server.metadata()
    assert server.handle(Fetch("", "POST", f"{server.issuer}/register")).status == 404


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        ({"redirect_uris": []}, "invalid_redirect_uri"),
        ({"redirect_uris": ["http://app.example.com/"]}, "invalid_redirect_uri"),
        ({"redirect_uris": ["https://app.example.com/#x"]}, "invalid_redirect_uri"),
        ({"application_type": "web"}, "invalid_client_metadata"),
        ({"application_type": "phone"}, "invalid_client_metadata"),
        ({"grant_types": ["password"]}, "invalid_client_metadata"),
        ({"response_types": ["token"]}, "invalid_client_metadata"),
        ({"token_endpoint_auth_method": "tls_client_auth"}, "invalid_client_metadata"),
    ],
)
def test_a_bad_registration_is_refused(metadata: dict[str, object], error: str) -> None:
    assert register(server_with(), **metadata)[1]["error"] == error


def test_without_refresh_token_among_its_grants_a_client_gets_none() -> None:
    server = server_with()
    client = register(server, grant_types=["authorization_code"])[1]["client_id"]
    said = exchanged(server, asked(server, client)["code"], client_id=client)[1]
    assert "refresh_token" not in said
    assert refreshed(server, "x", client_id=client)[1]["error"] == "unauthorized_client"


URL = "https://app.example.com/client.json"


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({}, True),
        ({"client_id": URL + "?"}, False),
        ({"client_name": ""}, False),
        ({"padding": "x" * 5000}, False),
        ({"redirect_uris": ["http://127.0.0.1/other"]}, False),
    ],
)
def test_a_client_may_be_the_url_of_its_document(changes: dict[str, object], accepted: bool) -> None:
    document = {
        "client_id": URL,
        "client_name": "App",
        "redirect_uris": [REDIRECT],
        "token_endpoint_auth_method": "none",
        **changes,
    }
    server = server_with(documents=lambda url: json.dumps(document).encode())
    assert server.metadata()["client_id_metadata_document_supported"]
    if accepted:
        assert exchanged(server, asked(server, URL)["code"], client_id=URL)[0] == 200
    else:
        with pytest.raises(ValueError, match="shows a page instead"):
            asked(server, URL)


# --- without a person --------------------------------------------------------------------------------------------

CREDENTIALS = {"grant_type": "client_credentials", "scope": "read", "resource": RESOURCE}
ASSERTED = {"client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"}


def assertion(**changes: object) -> str:
    claims = {"iss": "keys", "sub": "keys", "aud": "https://id.example.com", "exp": Clock.now + 60, "jti": "1"}
    claims |= changes
    return jwt.encode({"alg": "ES256"}, {name: value for name, value in claims.items() if value is not None}, KEY)


@pytest.mark.parametrize(
    ("fields", "form", "error"),
    [
        (basic(), {}, None),
        ({}, {"client_id": "post", "client_secret": "secret"}, None),
        ({}, {**ASSERTED, "client_assertion": assertion()}, None),
        ({}, {**ASSERTED, "client_assertion": assertion(aud=["https://id.example.com/token"])}, None),
        (basic(secret="wrong"), {}, "invalid_client"),
        (basic("post", "secret"), {}, "invalid_client"),
        (basic("app", ""), {}, "invalid_client"),
        ({"Authorization": "Basic ?"}, {}, "invalid_client"),
        (basic(), {"client_id": "post"}, "invalid_client"),
        (basic(), {"client_secret": "s3cr%t:"}, "invalid_request"),
        ({}, {"client_id": "basic"}, "invalid_client"),
        ({}, {"client_id": "app"}, "unauthorized_client"),
        ({}, {**ASSERTED, "client_assertion": assertion(aud="https://else.example.com")}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": assertion(iss="app")}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": assertion(exp=Clock.now)}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": assertion(exp=None)}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": assertion(nbf=Clock.now + 60)}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": assertion(jti=None)}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": assertion()[:-4] + "AAAA"}, "invalid_client"),
        ({}, {**ASSERTED, "client_assertion": "x"}, "invalid_client"),
        (basic(), {"scope": "admin"}, "invalid_scope"),
    ],
)
def test_a_program_signs_in_with_its_own_credentials(
    fields: dict[str, str], form: dict[str, str], error: str | None
) -> None:
    server = server_with()
    status, said = post(server, "token", fields, **{**CREDENTIALS, **form})
    assert said.get("error") == error
    if error is None:
        assert (status, "refresh_token" in said) == (200, False)
        claims = server.claims_of(said["access_token"])
        assert claims is not None
        assert (claims["aud"], claims["sub"]) == (RESOURCE, claims["client_id"])


def test_a_client_assertion_is_used_once() -> None:
    server = server_with()
    form = {**CREDENTIALS, **ASSERTED, "client_assertion": assertion()}
    assert [post(server, "token", **form)[0] for _ in range(2)] == [200, 401]


def test_an_enterprise_passes_its_person_on() -> None:
    """ID token, ID-JAG, access token."""
    idp = server_with(issuer="https://idp.example.com", scopes=("openid",))
    server = server_with(trusted={idp.issuer: idp.keys})
    id_token = signed_in(idp, scope="openid")["id_token"]
    exchange = {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": ID_JAG,
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
        "audience": server.issuer,
        "resource": RESOURCE,
        "scope": "read",
        "client_id": "app",
    }
    said = post(idp, "token", subject_token=id_token, **exchange)[1]
    assert (said["issued_token_type"], said["token_type"]) == (ID_JAG, "N_A")
    bearer = {"grant_type": JWT_BEARER, "assertion": said["access_token"], "resource": RESOURCE}
    assert post(server, "token", basic(), **bearer)[1]["error"] == "invalid_grant"  # of another client
    assert post(server, "token", **bearer, client_id="app", scope="write")[1]["error"] == "invalid_scope"
    said = post(idp, "token", subject_token=id_token, **exchange)[1]  # each is used once
    status, said = post(server, "token", **{**bearer, "assertion": said["access_token"]}, client_id="app")
    assert (status, said["scope"], "refresh_token" in said) == (200, "read", False)
    claims = server.claims_of(said["access_token"])
    assert claims is not None
    assert (claims["sub"], claims["aud"], claims["client_id"]) == ("alice", RESOURCE, "app")
    narrow = post(idp, "token", subject_token=id_token, **exchange)[1]["access_token"]
    other = {**bearer, "assertion": narrow, "resource": "https://else.example.com"}
    assert post(server, "token", **other, client_id="app")[1]["error"] == "invalid_target"
    for form, error in (
        ({"subject_token": "x"}, "invalid_grant"),
        ({"subject_token": narrow}, "invalid_grant"),
        ({"subject_token": id_token, "client_id": "post", "client_secret": "secret"}, "invalid_grant"),
        (
            {"subject_token": id_token, "requested_token_type": "urn:ietf:params:oauth:token-type:jwt"},
            "invalid_request",
        ),
    ):
        assert post(idp, "token", **{**exchange, **form})[1]["error"] == error


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, None),
        ({"iss": "https://else.example.com"}, "invalid_grant"),
        ({"aud": "https://else.example.com"}, "invalid_grant"),
        ({"exp": Clock.now - 1}, "invalid_grant"),
        ({"sub": None}, "invalid_grant"),
    ],
)
def test_a_workload_shows_the_token_of_its_platform(changes: dict[str, object], error: str | None) -> None:
    server = server_with(trusted={"https://platform.example.com": {"keys": [KEY.as_dict(private=False)]}})
    token = assertion(**{"iss": "https://platform.example.com", "sub": "pod", **changes})
    _, said = post(server, "token", grant_type=JWT_BEARER, assertion=token, resource=RESOURCE)
    assert said.get("error") == error


# --- devices -----------------------------------------------------------------------------------------------------


def test_a_device_waits_for_its_person() -> None:
    clock = Clock()
    server = server_with(clock=clock)

    def start() -> dict[str, Any]:
        said: dict[str, Any] = post(server, "device", client_id="app", scope="read", resource=RESOURCE)[1]
        return said

    def poll(device: dict[str, Any], seconds: float = 0) -> Any:
        clock.now += seconds
        return post(server, "token", grant_type=DEVICE, client_id="app", device_code=device["device_code"])[1]

    device = start()
    assert poll(device)["error"] == "authorization_pending"
    assert poll(device, 1)["error"] == "slow_down"
    assert poll(device, 9)["error"] == "slow_down"  # the interval has grown by 5 s, and then again
    assert poll(device, 15)["error"] == "authorization_pending"
    assert server.handle(Fetch("", "GET", device["verification_uri_complete"])).status == 200
    assert poll(device, 15)["scope"] == "read"
    assert poll(device, 15)["error"] == "invalid_grant"
    denied, late = start(), start()
    server.approve(denied["user_code"], deny=True)
    assert poll(denied)["error"] == "access_denied"
    assert poll(late, 600)["error"] == "expired_token"
    with pytest.raises(ValueError, match="no device with this user code is waiting"):
        server.approve("ABCD-EFGH")
    assert server.handle(Fetch("", "GET", f"{server.issuer}/verify?user_code=x")).status == 400


# --- DPoP --------------------------------------------------------------------------------------------------------


def proof(changes: Mapping[str, object] | None = None, *, key: jwk.ECKey = KEY, **header: object) -> dict[str, str]:
    claims: dict[str, object] = {"htm": "POST", "htu": "https://id.example.com/token", "iat": Clock.now}
    claims |= {"jti": jwk.ECKey.generate_key("P-256").thumbprint(), **(changes or {})}
    given = {"alg": "ES256", "typ": "dpop+jwt", "jwk": key.as_dict(private=False), **header}
    return {"DPoP": jwt.encode(given, claims, key)}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"DPoP": "x"},
        proof({"htm": "GET"}),
        proof({"htu": "https://id.example.com/other"}),
        proof({"iat": Clock.now - 301}),
        proof({"jti": None}),
        proof(typ="JWT"),
        proof(jwk=KEY.as_dict(private=True)),
        proof(jwk=jwk.ECKey.generate_key("P-256").as_dict(private=False)),
    ],
)
def test_a_bad_proof_is_refused(fields: dict[str, str]) -> None:
    server = server_with(dpop="require")
    assert exchanged(server, asked(server)["code"], fields)[1]["error"] == "invalid_dpop_proof"


def test_tokens_are_bound_to_the_key_of_the_proof() -> None:
    server = server_with(dpop="accept", dpop_nonces=True)
    form = {"grant_type": "client_credentials"}
    given = answer_to(server, "token", {**proof(), **basic()}, **form)
    assert json.loads(given.body)["error"] == "use_dpop_nonce"
    nonce = given.headers.get("DPoP-Nonce")
    code = asked(server, dpop_jkt=KEY.thumbprint())["code"]
    fields = proof({"nonce": nonce})
    status, said = exchanged(server, code, fields)
    assert (status, said["token_type"]) == (200, "DPoP")
    claims = server.claims_of(said["access_token"])
    assert claims is not None
    assert claims["cnf"] == {"jkt": KEY.thumbprint()}
    refresh = {"grant_type": "refresh_token", "client_id": "app", "refresh_token": said["refresh_token"]}
    assert post(server, "token", fields, **refresh)[1]["error"] == "invalid_dpop_proof"  # used before
    other = proof({"nonce": nonce}, key=jwk.ECKey.generate_key("P-256"))
    assert post(server, "token", other, **refresh)[1]["error"] == "invalid_grant"
    assert post(server, "token", **refresh)[1]["error"] == "invalid_grant"
    assert post(server, "token", proof({"nonce": nonce}), **refresh)[0] == 200
    server.proofs.rotate()
    assert post(server, "token", proof({"nonce": nonce}), **refresh)[1]["error"] == "use_dpop_nonce"


# --- faults, and serving -----------------------------------------------------------------------------------------


def test_faults_are_used_up_one_by_one() -> None:
    server = server_with(faults={"token": [status(503), cut, silent, endless, lost, moved("https://x.example.com")]})
    endings = []
    for _ in range(6):
        given = answer_to(server, "token", basic(), grant_type="client_credentials")
        endings.append((given.status, given.ending))
    assert endings == [
        (503, "whole"),
        (200, "cut"),
        (200, "silent"),
        (200, "endless"),
        (200, "silent"),
        (307, "whole"),
    ]
    assert post(server, "token", basic(), grant_type="client_credentials")[0] == 200
    assert server.count("token", grant_type="client_credentials") == 7


def test_a_fault_may_change_what_is_said() -> None:
    server = server_with()
    server.faults["metadata"] = edited(issuer="https://else.example.com", jwks_uri=None)
    url = f"{server.issuer}/.well-known/oauth-authorization-server"
    said = json.loads(server.handle(Fetch("", "GET", url)).body)
    assert (said["issuer"], "jwks_uri" in said) == ("https://else.example.com", False)
    server.faults["metadata"] = raw(b"<html>", "text/html")
    given = server.handle(Fetch("", "GET", url))
    assert (given.body, given.headers.media_type) == (b"<html>", "text/html")
    server.faults["authorize"] = redirected(iss=None, state="other")
    assert asked(server).keys() == {"code", "state"}


async def test_it_is_served_on_loopback() -> None:
    server = AuthorizationServer("https://id.example.com/a")
    async with server.served() as issuer, httpx.AsyncClient() as client:
        assert issuer == server.issuer
        assert urlsplit(issuer)[1:3] == (f"127.0.0.1:{urlsplit(issuer).port}", "/a")
        path = f"{issuer}/.well-known/openid-configuration"
        assert (await client.get(path)).json() == server.metadata()
        assert (await client.post(f"{issuer}/token", content=b"x" * 70_000)).status_code == 413
        server.faults["metadata"] = [cut, endless, silent]
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(path)
        async with await trio.open_tcp_stream("127.0.0.1", urlsplit(issuer).port or 0) as stream:
            await stream.send_all(f"GET {urlsplit(path).path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            size = 0
            while size < 1_000_000:
                size += len(await stream.receive_some())
        with pytest.raises(httpx.ReadTimeout):
            await client.get(path, timeout=httpx.Timeout(30, read=0.05))
        with trio.fail_after(5):
            assert (await client.get(path)).status_code == 200
        with pytest.raises(ValueError, match="shows a page instead"):
            await server.show(f"{issuer}/authorize")


class Slow(Server):
    """A server before which others have time to take its port."""

    async def serve_http(self, *args: Any, auth: Any, **options: Any) -> None:
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("127.0.0.1", urlsplit(auth.resource).port)).close()
        await super().serve_http(*args, auth=auth, **options)


async def test_the_port_of_a_protected_server_is_its_own_from_the_start() -> None:
    async with (
        protected(Slow("tests"), AuthorizationServer()) as url,
        await trio.open_tcp_stream("127.0.0.1", urlsplit(url).port or 0) as stream,
    ):
        await stream.send_all(b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert (await stream.receive_some()).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("tokens", ["jwt", "opaque"])
def test_it_makes_tokens_that_no_client_has_asked_for(tokens: Any) -> None:
    server = AuthorizationServer(tokens=tokens, clock=lambda: 1000.0)
    made = server.make_token(aud="https://host.example/mcp", sub="bob", scope=None)
    claims = server.claims_of(made)
    assert claims is not None
    assert (claims["iss"], claims["aud"], claims["sub"]) == (server.issuer, "https://host.example/mcp", "bob")
    assert "scope" not in claims
    assert server.claims_of(server.make_token(exp=999)) is None
    # Without an expiry it holds until it is revoked, or made to expire.
    lasting = server.make_token(exp=None)
    assert server.claims_of(lasting) is not None
    server.issued.expire()
    assert server.claims_of(lasting) is None
    server.issued.revoke(made)
    assert server.claims_of(made) is None


def test_a_token_that_it_makes_is_signed_with_its_key() -> None:
    server = AuthorizationServer()
    keys: Any = server.keys.published()
    found = jwt.decode(server.make_token(iss="https://other.example"), jwk.KeySet.import_key_set(keys), ["ES256"])
    assert (found.header["typ"], found.claims["iss"]) == ("at+jwt", "https://other.example")
