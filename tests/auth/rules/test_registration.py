"""How a client gets its id: what is asked for, what is taken from the answer, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.auth.rules.playing import World, answer
from trio_mcp.auth.rules.login import ClientRecord
from trio_mcp.auth.rules.metadata import AuthorizationServerMetadata
from trio_mcp.auth.rules.registration import (
    RegisteredClient,
    check_document_url,
    check_redirect,
    choose_method,
    register,
    reusable,
)
from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.errors import AuthorizationError

ID = "https://id.example.com"
AT = ID + "/register"
HERE = "http://127.0.0.1:8765/callback"
CIMD = "https://app.example.com/client.json"


def server(**more: Any) -> AuthorizationServerMetadata:
    """Return an authorization server at which clients can register."""
    return AuthorizationServerMetadata(ID, **{"registration": AT, **more})


def registered(page: Any, at: AuthorizationServerMetadata | None = None, **more: Any) -> tuple[ClientRecord, Any]:
    """Register, and return what came of it and what was asked for."""
    world = World({AT: page if isinstance(page, Fetched) else answer(page, 201)})
    options = {"redirect": HERE, "scopes": ("b", "a"), **more}
    record = world.play(register(at or server(), **options))
    return record, world.requests


def test_the_order() -> None:
    """The id that was given, else the client's document where it is accepted, else a new registration."""
    given = RegisteredClient("me", issuer=ID)
    both = server(documents=True)
    assert registered({}, both, client=given, metadata_url=CIMD) == (ClientRecord("me", "given", redirect=HERE), [])
    assert registered({}, both, metadata_url=CIMD) == (ClientRecord(CIMD, "document", redirect=HERE), [])
    record, requests = registered({"client_id": "new"}, metadata_url=CIMD)
    assert (record.id, record.origin, len(requests)) == ("new", "registered", 1)


def test_what_a_registration_asks_for() -> None:
    """A public native client with the grants it uses."""
    record, [request] = registered({"client_id": "new"})
    assert request == {
        "client_name": "trio_mcp",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "redirect_uris": [HERE],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
        "scope": "a b",
    }
    assert record == ClientRecord("new", "registered", redirect=HERE, scopes=frozenset({"a", "b"}))


@pytest.mark.parametrize(
    ("redirect", "kind"),
    [
        (HERE, "native"),
        ("http://localhost:1/callback", "native"),
        ("https://127.0.0.1:1/callback", "native"),
        ("https://app.example.com/callback", "web"),
    ],
)
def test_the_application_type(redirect: str, kind: str) -> None:
    """It follows from the redirect URI."""
    assert registered({"client_id": "x"}, redirect=redirect)[1][0]["application_type"] == kind


def test_optional_parts_of_a_registration() -> None:
    """No scope where nothing is asked for, no redirect URI without a redirection, only grants that the server has."""
    at = server(grants=("urn:device", "password"))
    [request] = registered({"client_id": "x"}, at, redirect=None, scopes=(), grants=("urn:device", "refresh_token"))[1]
    assert request == {
        "client_name": "trio_mcp",
        "grant_types": ["urn:device"],
        "response_types": [],
        "application_type": "native",
        "token_endpoint_auth_method": "none",
    }


@pytest.mark.parametrize(
    ("listed", "sent", "kept"),
    [(None, "a b", {"a", "b"}), ({"a", "b", "c"}, "a b", {"a", "b"}), ({"a"}, None, None), ((), None, None)],
)
def test_scopes_that_are_registered(listed: Any, sent: str | None, kept: Any) -> None:
    """All of them or none: some servers refuse what they don't list, though they may grant it."""
    record, [request] = registered({"client_id": "x"}, server(scopes=None if listed is None else frozenset(listed)))
    assert (request.get("scope"), record.scopes) == (sent, kept)


@pytest.mark.parametrize(
    ("methods", "said", "secret", "asked", "expected"),
    [
        (None, None, None, "none", "none"),
        (("none", "client_secret_basic"), None, None, "none", "none"),
        (("client_secret_post", "client_secret_basic"), None, "s", "client_secret_post", "client_secret_post"),
        (("client_secret_post",), None, "s", "client_secret_post", "client_secret_post"),
        (("private_key_jwt",), None, None, "none", "none"),
        # The server decides otherwise, and says so or not.
        (None, "client_secret_post", "s", "none", "client_secret_post"),
        (None, None, "s", "none", "client_secret_basic"),
        (("client_secret_basic",), None, None, "client_secret_basic", "none"),
        (("client_secret_basic",), "none", "s", "client_secret_basic", "none"),
    ],
)
def test_how_a_registered_client_proves_who_it_is(
    methods: tuple[str, ...] | None, said: str | None, secret: str | None, asked: str, expected: str
) -> None:
    """By what was asked for, unless the answer has it otherwise."""
    page = {"client_id": "x", "token_endpoint_auth_method": said, "client_secret": secret}
    record, [request] = registered({key: value for key, value in page.items() if value}, server(methods=methods))
    assert (request["token_endpoint_auth_method"], record.method, record.secret) == (asked, expected, secret)


@pytest.mark.parametrize(
    ("expires", "expected"),
    [
        (0, None),
        (None, None),
        (2e9, 2e9),
        (2_000_000_000, 2e9),
        (-1, None),
        ("soon", None),
        (10**400, None),
        (True, None),
    ],
)
def test_when_a_secret_expires(expires: Any, expected: float | None) -> None:
    """0 is never; what can't be a date is, too."""
    page = {"client_id": "x", "client_secret": "s", "client_secret_expires_at": expires}
    assert registered(page)[0].secret_expires_at == expected


REFUSED: dict[str, tuple[Any, str]] = {
    "without an id": ({}, "no valid client_id"),
    "a number as id": ({"client_id": 7}, "no valid client_id"),
    "an empty id": ({"client_id": ""}, "no valid client_id"),
    "an id of two lines": ({"client_id": "a\nb"}, "no valid client_id"),
    "an endless id": ({"client_id": "a" * 3000}, "no valid client_id"),
    "a number as secret": ({"client_id": "a", "client_secret": 7}, "client_secret is not valid"),
    "a secret of two lines": ({"client_id": "a", "client_secret": "a\r\nb"}, "client_secret is not valid"),
    "another redirect URI": (
        {"client_id": "a", "redirect_uris": ["https://evil.example/"]},
        "the registered redirect URI",
    ),
    "keys that it has not": ({"client_id": "a", "token_endpoint_auth_method": "private_key_jwt"}, "not asked for"),
    "an unknown method": ({"client_id": "a", "token_endpoint_auth_method": "tls_client_auth"}, "not asked for"),
    "a method that is a list": ({"client_id": "a", "token_endpoint_auth_method": ["none"]}, "not asked for"),
    "no secret to send": ({"client_id": "a", "token_endpoint_auth_method": "client_secret_post"}, "no client_secret"),
    "a list": ([], "is not a JSON object"),
    "a page": (answer("<html>", 200, "text/html"), "is not a JSON object"),
    "moved": (answer("", 307), "status 307"),
    "closed": (
        answer({"error": "access_denied", "error_description": "by hand only"}, 403),
        "by hand only.*access_denied",
    ),
    "not there": (answer("", 404, "text/html"), "status 404.*RegisteredClient"),
    "broken": (answer("", 500, "text/html"), "status 500.*try again later"),
    "a redirect URI it does not allow": (
        answer({"error": "invalid_redirect_uri", "error_description": "no\x1b[2J\nloopback"}, 400),
        "no.*loopback.*does not allow the redirect URI http://127.0.0.1:8765/callback",
    ),
    "an odd error": (answer({"error": ["x"], "error_description": 7}, 400), "the registration with status 400"),
}


@pytest.mark.parametrize(("page", "why"), REFUSED.values(), ids=REFUSED)
def test_registrations_that_come_to_nothing(page: Any, why: str) -> None:
    """Each with a reason, and with what to do about it."""
    with pytest.raises(AuthorizationError, match=why) as caught:
        registered(page)
    assert (caught.value.step, caught.value.issuer) == ("registration", ID)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("at", "options", "why"),
    [
        (server(registration=None), {}, "names no registration_endpoint; register.*RegisteredClient"),
        (server(registration=None), {"metadata_url": CIMD}, "accepts no metadata documents"),
        (
            server(),
            {"client": RegisteredClient("me", issuer="https://old.example")},
            "registered with https://old.example",
        ),
        (server(methods=("private_key_jwt",)), {"client": RegisteredClient("me", secret="s")}, "supports no authentic"),
    ],
)
def test_when_no_way_is_left(at: AuthorizationServerMetadata, options: dict[str, Any], why: str) -> None:
    """Nothing is sent, and above all nothing of another authorization server."""
    world = World()
    with pytest.raises(AuthorizationError, match=why):
        world.play(register(at, redirect=HERE, **options))
    assert world.fetched == []


def test_a_given_clients_issuer_may_differ_by_a_slash() -> None:
    """It is written by hand."""
    assert registered({}, client=RegisteredClient("me", issuer=ID + "/"))[0].id == "me"


@pytest.mark.parametrize(
    ("methods", "secret", "key", "expected"),
    [
        (None, False, False, "none"),
        (None, True, False, "client_secret_basic"),
        (None, False, True, "private_key_jwt"),
        (("client_secret_post",), True, False, "client_secret_post"),
        (("client_secret_post", "client_secret_basic"), True, False, "client_secret_basic"),
        (("client_secret_basic",), False, False, "none"),
        (("none",), True, False, "none"),
        (("private_key_jwt",), True, False, None),
        (("private_key_jwt", "client_secret_basic"), True, True, "private_key_jwt"),
        (("client_secret_basic",), False, True, None),
    ],
)
def test_methods(methods: tuple[str, ...] | None, secret: bool, key: bool, expected: str | None) -> None:
    """One method, of those that the server supports and the client can."""
    assert choose_method(methods, secret=secret, key=key) == expected


def test_a_method_without_its_secret() -> None:
    """It is a mistake of the program, and found at once."""
    with pytest.raises(ValueError, match="has no secret for client_secret_basic"):
        RegisteredClient("me", method="client_secret_basic")
    assert "hunter2" not in repr(RegisteredClient("me", secret="hunter2"))


@pytest.mark.parametrize(
    ("changes", "scopes", "expected"),
    [
        ({}, ("a",), True),
        ({}, (), True),
        ({}, ("a", "b", "c"), False),
        ({"scopes": None}, ("c",), True),
        ({"redirect": "http://127.0.0.1:1/callback"}, ("a",), False),
        ({"secret_expires_at": 99.0}, ("a",), False),
        ({"secret_expires_at": 101.0}, ("a",), True),
        ({"origin": "given"}, ("a",), False),
        ({"origin": "document"}, ("a",), False),
    ],
)
def test_when_a_registration_is_used_again(changes: dict[str, Any], scopes: tuple[str, ...], expected: bool) -> None:
    """Where it was registered for the same redirect URI and all scopes, and its secret holds."""
    record: dict[str, Any] = {"origin": "registered", "redirect": HERE, "scopes": frozenset({"a", "b"})}
    assert reusable(ClientRecord("x", **(record | changes)), HERE, scopes, 100.0) is expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (CIMD, None),
        ("https://app.example.com/a?b=c", None),
        ("http://app.example.com/client.json", "not https"),
        ("https://app.example.com", "no path"),
        ("https://app.example.com/", "no path"),
        ("https://app.example.com/a/../b", "a path with"),
        ("https://app.example.com/%2e%2E/b", "a path with"),
        ("https://app.example.com/a#b", "a fragment"),
        ("https://a:b@app.example.com/a", "a user name"),
        ("client.json", "not an https or http URL"),
    ],
)
def test_urls_of_a_clients_document(url: str, why: str | None) -> None:
    """What can be a client's id."""
    if why is None:
        check_document_url(url)
    else:
        with pytest.raises(ValueError, match=why):
            check_document_url(url)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (HERE, None),
        ("http://127.0.0.1:0/callback", None),
        ("http://localhost:0", None),
        ("https://app.example.com/callback", None),
        ("http://app.example.com/callback", "neither on loopback nor https"),
        ("ws://127.0.0.1/callback", "neither on loopback nor https"),
        ("com.example.app:/callback", "not an https or http URL"),
        ("http://127.0.0.1/callback#x", "a fragment"),
    ],
)
def test_redirect_uris(url: str, why: str | None) -> None:
    """On this machine, or over TLS."""
    if why is None:
        check_redirect(url)
    else:
        with pytest.raises(ValueError, match=why):
            check_redirect(url)
