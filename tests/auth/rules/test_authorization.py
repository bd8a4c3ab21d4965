"""The authorization request, and the redirection that comes back: what is sent, and what is believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from hypothesis import given, strategies as st

from tests.auth.rules.playing import World
from trio_mcp.auth.rules.authorization import (
    AuthorizationCode,
    authorize,
    challenge_of,
    check_redirection,
    require_pkce,
)
from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata, Discovered, ProtectedResource
from trio_mcp.auth.rules.steps import SignIn
from trio_mcp.errors import AuthorizationError

ID = "https://id.example.com"
MCP = "https://mcp.example.com/mcp/"
HERE = "http://127.0.0.1:8765/callback"
SECRET = "hunter2"
"""What an answer that is not believed says, and no error may repeat."""


def server(**more: Any) -> AuthorizationServerMetadata:
    """Return an authorization server with PKCE."""
    return AuthorizationServerMetadata(ID, **{"authorization": f"{ID}/authorize", "pkce": ("S256",), **more})


def parameters_of(url: str) -> dict[str, str]:
    """Return the parameters in a URL, each of which is there once."""
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True)
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


def agrees(ask: SignIn) -> Mapping[str, str]:
    """Authorize, as a server does that sends no ``iss``."""
    return {"state": ask.state, "code": "the code"}


def authorized(at: AuthorizationServerMetadata | None = None, **more: Any) -> tuple[AuthorizationCode, SignIn]:
    """Let a person authorize, and return the code and what the person was asked."""
    world = World(person=agrees)
    resource = ProtectedResource(MCP, (ID,)) if more.pop("with_resource", True) else None
    client = ClientRecord("me", more.pop("origin", "given"))
    options = {"redirect": HERE, "scopes": ("b", "a"), **more}
    code = world.play(authorize(Discovered(resource, at or server()), client, **options))
    [ask] = world.asked
    return code, ask


def test_the_authorization_request() -> None:
    """PKCE, state and resource in each; the record of it is what the token request needs."""
    code, ask = authorized(thumbprint="jkt")
    assert parameters_of(ask.url) == {
        "response_type": "code",
        "client_id": "me",
        "redirect_uri": HERE,
        "state": ask.state,
        "code_challenge": challenge_of(code.verifier),
        "code_challenge_method": "S256",
        "resource": MCP,
        "scope": "a b",
        "dpop_jkt": "jkt",
    }
    assert (ask.url.partition("?")[0], ask.redirect, ask.issuer) == (f"{ID}/authorize", HERE, ID)
    assert (code.code, code.redirect) == ("the code", HERE)


def test_what_is_not_sent() -> None:
    """No scope where nothing is asked for, no resource where the server has no metadata."""
    names = parameters_of(authorized(scopes=(), with_resource=False)[1].url).keys()
    assert names.isdisjoint({"scope", "resource", "dpop_jkt", "prompt"})


@pytest.mark.parametrize(
    ("origin", "scope", "prompt", "sent"),
    [
        ("registered", "offline_access", None, "consent"),
        ("document", "offline_access", None, "consent"),
        ("given", "offline_access", None, None),
        ("given", "offline_access", "consent", "consent"),
        ("given", "a", "select_account", "select_account"),
        ("registered", "a", None, None),
    ],
)
def test_a_refresh_token_needs_consent(origin: str, scope: str, prompt: str | None, sent: str | None) -> None:
    """OpenID providers give none without it; elsewhere, people may not be allowed to consent by themselves."""
    ask = authorized(scopes=(scope,), origin=origin, prompt=prompt)[1]
    assert parameters_of(ask.url).get("prompt") == sent


def test_nothing_is_used_twice() -> None:
    """State and verifier are new each time, and of 32 bytes; neither they nor the code show in a repr."""
    first, second = authorized(), authorized()
    values = [value for code, ask in (first, second) for value in (code.verifier, ask.state)]
    assert len(set(values)) == 4
    assert {len(value) for value in values} == {43}
    assert not any(value in repr(first + second) for value in (*values, "the code"))


@pytest.mark.parametrize(("query", "kept"), [("?", {}), ("?tenant=1&x=", {"tenant": ["1"], "x": [""]})])
def test_an_endpoint_with_a_query(query: str, kept: dict[str, list[str]]) -> None:
    """It is kept."""
    url = authorized(server(authorization=f"{ID}/authorize{query}"))[1].url
    found = parse_qs(urlsplit(url).query, keep_blank_values=True)
    assert {name: found[name] for name in kept} == kept
    assert found["client_id"] == ["me"]


@pytest.mark.parametrize("name", ["client_id", "redirect_uri", "state", "scope", "resource", "code_challenge_method"])
def test_an_endpoint_that_sets_our_parameters(name: str) -> None:
    """Which of the two would count is anyone's guess."""
    with pytest.raises(AuthorizationError, match=f"already sets {name}"):
        authorized(server(authorization=f"{ID}/authorize?x=1&{name}=evil"), scopes=())


# RFC 7636, appendix B.
def test_the_challenge_of_a_verifier() -> None:
    """The example of the RFC."""
    assert challenge_of("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk") == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.parametrize(
    ("pkce", "assumed", "why"),
    [
        (("S256",), (), None),
        (("plain", "S256"), (), None),
        (None, (ID,), None),
        (None, (), r"assume_pkce=\['https://id.example.com'\]"),
        (None, (ID + "/",), "assume_pkce"),
        (("plain",), (ID,), "does not support PKCE with S256"),
        ((), (ID,), "does not support PKCE with S256"),
        (("s256",), (), "does not support PKCE with S256"),
    ],
)
def test_pkce(pkce: tuple[str, ...] | None, assumed: tuple[str, ...], why: str | None) -> None:
    """S256 is required; what is assumed is assumed for one issuer, and only where its metadata is silent."""
    at = server(pkce=pkce)
    if why is None:
        authorized(at, assume_pkce=assumed)
        return
    with pytest.raises(AuthorizationError, match=why):
        authorized(at, assume_pkce=assumed)


def test_pkce_without_metadata() -> None:
    """It is sent all the same, as 2025-03-26 demands."""
    at = server(pkce=None, published=False)
    require_pkce(at, ())
    assert "code_challenge" in parameters_of(authorized(at)[1].url)


# 2026-07-28 basic/authorization, section Authorization Response Validation, and what else `iss` may be.
@pytest.mark.parametrize(
    ("advertised", "iss", "believed"),
    [
        (True, ID, True),
        (True, None, False),
        (False, ID, True),
        (False, None, True),
        (True, "https://evil.example", False),
        (False, "https://evil.example", False),
        (True, ID + "/", False),
        (False, ID + "/", False),
        (False, "https://ID.example.com", False),
        (False, ID + ":443", False),
        (False, "https://id.example.%63om", False),
        (False, "", False),
    ],
)
@pytest.mark.parametrize(
    "outcome", [{"code": SECRET}, {"error": SECRET, "error_description": SECRET, "error_uri": SECRET}]
)
def test_whose_redirection_it_is(advertised: bool, iss: str | None, believed: bool, outcome: dict[str, str]) -> None:
    """The four rows of RFC 9207, by the characters alone, for codes and errors; what is not believed is not shown."""
    parameters = {"state": "s", **outcome} | ({} if iss is None else {"iss": iss})
    if believed and "code" in outcome:
        assert check_redirection(parameters, server(sends_iss=advertised), "s") == SECRET
        return
    with pytest.raises(AuthorizationError) as caught:
        check_redirection(parameters, server(sends_iss=advertised), "s")
    assert caught.value.step == ("authorization" if believed else "redirection")
    assert (SECRET in f"{caught.value} {caught.value.error}") is believed


@pytest.mark.parametrize("state", [None, "", "S", "s ", "ß", "ss", "\ud800"])
def test_a_redirection_of_another_flow(state: str | None) -> None:
    """Its state is looked at before anything else."""
    parameters = {"error": SECRET, "iss": "https://evil.example", "code": SECRET}
    with pytest.raises(AuthorizationError, match="its state is not the one") as caught:
        check_redirection(parameters | ({} if state is None else {"state": state}), server(), "s")
    assert SECRET not in f"{caught.value} {caught.value.error}"


@pytest.mark.parametrize(
    ("outcome", "step", "error", "why"),
    [
        ({"error": "access_denied"}, "authorization", "access_denied", "declined"),
        (
            {"error": "invalid_scope", "error_description": "no\x1b[2J\x00such"},
            "authorization",
            "invalid_scope",
            "refused the request: no",
        ),
        # Both: an error is an error.
        ({"error": "server_error", "code": SECRET}, "authorization", "server_error", "refused"),
        ({"error": ""}, "authorization", None, "refused"),
        ({}, "redirection", None, "neither a code nor an error"),
        ({"code": ""}, "redirection", None, "neither a code nor an error"),
    ],
)
def test_redirections_without_a_code(outcome: dict[str, str], step: str, error: str | None, why: str) -> None:
    """Each says what happened, fit to be shown."""
    with pytest.raises(AuthorizationError, match=why) as caught:
        check_redirection({"state": "s", **outcome}, server(), "s")
    assert (caught.value.step, caught.value.error, caught.value.issuer) == (step, error, ID)
    assert str(caught.value).isprintable()
    assert SECRET not in str(caught.value)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "state": st.just("s") | st.text(),
            "iss": st.just(ID) | st.text(),
            **dict.fromkeys(("error", "error_description", "code"), st.text()),
        },
    )
)
def test_any_redirection(parameters: dict[str, str]) -> None:
    """It has a code, or it is refused; nothing else happens."""
    good = parameters.get("state") == "s" and parameters.get("iss", ID) == ID and "error" not in parameters
    if good and parameters.get("code"):
        assert check_redirection(parameters, server(), "s") == parameters["code"]
        return
    with pytest.raises(AuthorizationError) as caught:
        check_redirection(parameters, server(), "s")
    assert str(caught.value).isprintable()
