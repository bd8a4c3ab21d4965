"""What a protected server is made with, good and bad, and the metadata that it publishes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.auth.resource.scene import ISSUER, KEY, RESOURCE, Issuer, bearer, protected, public, token
from trio_mcp.auth import Claims, IntrospectionVerifier, JwtVerifier, ResourceServer
from trio_mcp.http.serve import check_resource
from trio_mcp.http.server.options import HttpOptions
from trio_mcp.http.server.protection import Identified


def made(resource: Any = RESOURCE, **options: Any) -> ResourceServer:
    return ResourceServer(resource, **{"issuers": [ISSUER], **options})


BAD: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no URL": (lambda: made("files.example.com/mcp"), ValueError, "resource: url must begin with https:// or http://"),
    "a URL that is None": (lambda: made(None), TypeError, "resource must be a URL, got NoneType"),
    "plain http": (lambda: made("http://files.example.com/mcp"), ValueError, "resource must begin with https://"),
    "a fragment": (lambda: made(RESOURCE + "#x"), ValueError, "resource must be a URL without a user name, query"),
    "a query": (lambda: made(RESOURCE + "?x"), ValueError, "resource must be a URL without a user name, query"),
    "a user": (lambda: made("https://u:p@files.example.com"), ValueError, "resource must be a URL without a user name"),
    "no issuer": (lambda: made(issuers=[]), ValueError, "issuers must not be empty: name the authorization server"),
    "an issuer that is not a list": (lambda: made(issuers=ISSUER), TypeError, "issuers must be a list of strings"),
    "an issuer over plain http": (lambda: made(issuers=["http://id.example"]), ValueError, "issuers must begin with"),
    "an issuer with a query": (lambda: made(issuers=[f"{ISSUER}?t=1"]), ValueError, "issuers must be a URL without"),
    "a list of scopes in a string": (lambda: made(scopes="a b"), TypeError, "scopes must be a list of strings"),
    "a scope with a space": (lambda: made(scopes=["a b"]), ValueError, "scopes contains 'a b', which is not a valid"),
    "an empty scope": (lambda: made(scopes=[""]), ValueError, "scopes must be a non-empty string"),
    "offline_access": (lambda: made(scopes=["offline_access"]), ValueError, "scopes must not include 'offline_access'"),
    "an unknown dpop": (lambda: made(dpop="yes"), ValueError, "dpop must be one of off, accept, require"),
    "a short secret of nonces": (lambda: made(nonces=b"x"), ValueError, "nonces must be a secret of at least 32 bytes"),
    "a text for nonces": (lambda: made(nonces="x"), TypeError, "nonces must be True, False or bytes, got str"),
    "an async includes": (lambda: made(includes=_later), TypeError, "includes must be a sync function"),
    "a class for a verifier": (lambda: made(verifier=JwtVerifier), TypeError, "write JwtVerifier(…)"),
    "a text for a verifier": (lambda: made(verifier="jwt"), TypeError, "verifier must be callable, got str"),
    "remember below zero": (lambda: made(remember=-1), ValueError, "remember must be at least 0 seconds"),
    "a page without a URL": (lambda: made(documentation="docs"), ValueError, "documentation: url must begin with"),
    "HS256": (lambda: JwtVerifier(algorithms=["HS256"]), ValueError, "algorithms must not include 'HS256'"),
    "none": (lambda: JwtVerifier(algorithms=["ES256", "none"]), ValueError, "algorithms must not include 'none'"),
    "an unknown algorithm": (lambda: JwtVerifier(algorithms=["ES1"]), ValueError, "algorithms must be a list of"),
    "an algorithm in a string": (lambda: JwtVerifier(algorithms="ES256"), TypeError, "algorithms must be a list of"),
    "no algorithm": (lambda: JwtVerifier(algorithms=[]), ValueError, "algorithms must not be empty"),
    "keys in a list": (lambda: JwtVerifier(keys=[KEY]), TypeError, "keys must be a JWKS"),  # type: ignore[arg-type]
    "keys without keys": (lambda: JwtVerifier(keys={}), ValueError, "not a JWKS: expected"),
    "keys that are private": (
        lambda: JwtVerifier(keys={"keys": [KEY.as_dict(private=True)]}), ValueError, "keys contains no public key"
    ),
    "keys over plain http": (lambda: JwtVerifier(keys="http://id.example/jwks"), ValueError, "keys must begin with"),
    "no client_id": (lambda: IntrospectionVerifier("", "s"), ValueError, "client_id must be a non-empty string"),
    "no secret": (lambda: IntrospectionVerifier("a", ""), ValueError, "secret must be a non-empty string"),
    "an endpoint over plain http": (
        lambda: IntrospectionVerifier("a", "s", endpoint="http://id.example/i"), ValueError, "endpoint must begin with"
    ),
    "claims without a subject": (lambda: Claims(ISSUER, "", RESOURCE, 1), ValueError, "the subject of Claims must be"),
    "claims without an end": (lambda: Claims(ISSUER, "a", RESOURCE, None), TypeError, "the expires_at of Claims"),  # type: ignore[arg-type]
}  # fmt: skip


async def _later(granted: str, needed: str) -> bool:
    return True


@pytest.mark.parametrize(("make", "kind", "text"), BAD.values(), ids=BAD)
def test_bad_settings(make: Callable[[], object], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "verifier", [JwtVerifier(keys=public(KEY)), IntrospectionVerifier("a", "s")], ids=["keys", "introspection"]
)
async def test_verifiers_for_one_issuer(verifier: Any) -> None:
    with pytest.raises(ValueError, match="is for one issuer"):
        async with protected(verifier=verifier, issuers=[ISSUER, "https://second.example"]):
            pass


def test_without_joserfc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trio_mcp.auth.rules.jose.has_jose", lambda: False)

    async def verify(given: str) -> Claims:
        raise NotImplementedError

    for make in (JwtVerifier, made, lambda: made(verifier=verify)):
        with pytest.raises(ImportError, match=r"needs joserfc: .*trio-mcp\[auth\]"):
            make()
    assert made(verifier=verify, dpop="off").resource == RESOURCE


def test_loopback_may_be_plain_http() -> None:
    assert made("http://127.0.0.1:8000/mcp", issuers=["http://localhost:9000"]).metadata == (
        "http://127.0.0.1:8000/.well-known/oauth-protected-resource/mcp"
    )


def test_secrets_are_not_shown() -> None:
    assert repr(made(nonces=b"s3cret" * 10)) == f"ResourceServer({RESOURCE!r}, issuers=[{ISSUER!r}])"
    assert "s3cret" not in repr(IntrospectionVerifier("a", "s3cret"))
    assert "s3cret" not in repr(Claims(ISSUER, "a", RESOURCE, 1, values={"note": "s3cret"}))


async def test_audiences_that_are_not_urls() -> None:
    async with protected(audiences=["api://files"]) as (_, guard):
        for audience in ("api://files", RESOURCE):
            assert isinstance(await guard.identify(bearer(token(aud=audience))), Identified)
    async with protected(audiences=["Files"]) as (_, guard):  # such names are compared as they are
        for audience, admitted in (("Files", True), ("files", False), ("FILES", False)):
            assert isinstance(await guard.identify(bearer(token(aud=audience))), Identified) is admitted


@pytest.mark.parametrize(
    ("resource", "served"),
    [
        ("http://localhost:8000/mcp", True),
        ("http://127.0.0.1:8000", True),
        ("https://files.example.com/mcp", True),
        ("https://localhost/mcp", True),  # what is served is plain http, so a proxy speaks TLS for it
        ("http://localhost/mcp", False),
        ("http://localhost:8000/api", False),
    ],
)
def test_what_is_served_is_what_tokens_are_for(resource: str, served: bool) -> None:
    wrong = pytest.raises(ValueError, match=r"whose URL is http://127\.0\.0\.1:8000/mcp")
    with contextlib.nullcontext() if served else wrong:
        check_resource(resource, "127.0.0.1", 8000, HttpOptions())


async def test_one_server_for_several_runs() -> None:
    server = made(fetch=Issuer().fetch, clock=lambda: 1_800_000_000.0)
    for _ in range(2):
        async with server.opened() as first, server.opened() as second:
            for guard in (first, second):
                assert isinstance(await guard.identify(bearer(token())), Identified)


# --- metadata ---------------------------------------------------------------------------------------------------------

WELL_KNOWN = "/.well-known/oauth-protected-resource"


def read(server: ResourceServer, path: str) -> Any:
    found = server.document(path)
    return None if found is None else json.loads(found)


def test_metadata() -> None:
    server = made(scopes=["b", "a"], name="Files", documentation="https://files.example.com/docs?v=1")
    assert read(server, WELL_KNOWN) == read(server, f"{WELL_KNOWN}/mcp") == read(server, f"{WELL_KNOWN}/mcp/")
    assert read(server, WELL_KNOWN) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "scopes_supported": ["a", "b"],
        "bearer_methods_supported": ["header"],
        "dpop_signing_alg_values_supported": ["ES256", "ES384", "EdDSA", "Ed25519", "RS256", "PS256"],
        "resource_name": "Files",
        "resource_documentation": "https://files.example.com/docs?v=1",
    }
    for path in ("/", "/mcp", f"{WELL_KNOWN}/other", "/mcp" + WELL_KNOWN, WELL_KNOWN + "x"):
        assert read(server, path) is None


def test_metadata_of_other_settings() -> None:
    least = read(made(dpop="off"), WELL_KNOWN)
    assert least.keys() == {"resource", "authorization_servers", "bearer_methods_supported"}
    assert read(made(dpop="require"), WELL_KNOWN)["dpop_bound_access_tokens_required"] is True
    for resource in ("https://files.example.com", "https://files.example.com/"):
        server = made(resource)
        assert server.metadata == "https://files.example.com" + WELL_KNOWN
        assert read(server, WELL_KNOWN)["resource"] == resource


async def served(app: Any, path: str, method: str = "GET", root: str = "") -> tuple[int, dict[bytes, bytes], bytes]:
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    await app({"type": "http", "method": method, "path": path, "root_path": root}, None, send)
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


async def test_metadata_app() -> None:
    server = made()
    app = server.metadata_app()
    status, fields, body = await served(app, f"{WELL_KNOWN}/mcp")
    assert (status, body) == (200, server.document(WELL_KNOWN))
    assert fields[b"content-type"] == b"application/json"
    assert fields[b"access-control-allow-origin"] == b"*"
    assert fields[b"content-length"] == str(len(body)).encode()
    # Below a path, whether or not the path is stripped.
    for path, root in ((WELL_KNOWN, "/.well-known"), ("/oauth-protected-resource/mcp", "/.well-known")):
        assert (await served(app, path, root=root))[0] == 200
    assert (await served(app, WELL_KNOWN, "HEAD"))[::2] == (200, b"")
    assert (await served(app, WELL_KNOWN, "POST"))[0] == 405
    assert (await served(app, "/mcp"))[0] == 404
    with pytest.raises(RuntimeError, match="serves HTTP, not websocket"):
        await app({"type": "websocket"}, None, None)
    events = iter(["lifespan.startup", "lifespan.shutdown"])
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return {"type": next(events)}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event["type"])

    await app({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
