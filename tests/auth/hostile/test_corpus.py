"""Hostile servers: each is refused at its step, nothing leaves for where it must not, and no secret is shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import httpx
import pytest
from trio.testing import MockClock

from tests.auth.hostile.scene import EVIL, METADATA, PUBLIC, SERVER, Body, Plan, Scene, document, play
from trio_mcp.auth import RegisteredClient
from trio_mcp.auth.testing.faults import cut, edited, endless, lost, moved, raw, redirected, status

ID, EVIL_ID = "https://id.example.com", "https://evil.example.com"
KNOWN = f"{ID}/.well-known/oauth-authorization-server"
GIB = 2**30
PAIR = base64.b64encode(b"app:s3cret-canary").decode()


def challenged(*texts: str) -> Plan:
    """The server challenges in another way."""
    return lambda scene: setattr(scene, "challenge", list(texts))


def metadata_at(url: str) -> Plan:
    """Its challenge says that its metadata is elsewhere."""
    return challenged(f'Bearer resource_metadata="{url}"')


def told(**members: Any) -> Plan:
    """Its metadata says something else."""
    return lambda scene: scene.told.update(members)


def fault(endpoint: str, *faults: Any) -> Plan:
    """An endpoint of the authorization server goes wrong, once or (with one fault) always."""
    return lambda scene: scene.id.faults.update({endpoint: list(faults) if len(faults) > 1 else faults[0]})


def published(**members: Any) -> Plan:
    """The metadata of the authorization server says something else."""
    return fault("metadata", edited(**members))


def granted(**members: Any) -> Plan:
    """So does its answer to a request for tokens."""
    return fault("token", edited(**members))


def answered(url: str, make: Callable[[], httpx.Response]) -> Plan:
    """A URL is answered in another way."""
    return lambda scene: scene.own.update({url: make})


def resolved(host: str, *addresses: str) -> Plan:
    """A name leads to another address each time."""
    return lambda scene: scene.names.update({host: [[each] for each in addresses]})


def pasted(change: Callable[[str], str]) -> Plan:
    """What the person pastes is not what the authorization server sent."""
    return lambda scene: setattr(scene, "paste", change)


def with_options(**options: Any) -> Plan:
    """The client is another one."""
    return lambda scene: scene.options.update(options)


def refusing(make: Callable[[httpx.Request], httpx.Response | None], *, expire: bool = False) -> Plan:
    """The server refuses good tokens."""
    return lambda scene: setattr(scene, "refuses", make)


def all_of(*plans: Plan) -> Plan:
    return lambda scene: [each(scene) for each in plans]


def expired(*plans: Plan) -> Plan:
    """The tokens have expired, so that they are refreshed."""
    return all_of(Scene.later, *plans)


def echo(head: str = "") -> Any:
    """Refuse with a description that repeats what was sent: a field of the head, or all."""

    def fault(request: Any, handle: Any) -> Any:
        form = [values[0] for values in parse_qs(request.body.decode()).values()]
        said = [request.fields[head]] if head else [*form, *request.fields.values()]
        body = {"error": "invalid_grant", "error_description": " ".join(said)}
        return raw(json.dumps(body).encode(), code=400)(request, handle)

    return fault


def echo_as_code(request: Any, handle: Any) -> Any:
    form = parse_qs(request.body.decode())
    said = (form.get("refresh_token") or form["code"])[0]
    return raw(json.dumps({"error": said}).encode(), code=400)(request, handle)


def more_scopes(scene: Scene) -> None:
    """Another scope is missing each time."""
    scene.id.settings["scopes"] = ("read", "write", *(f"s{number}" for number in range(100)))
    missing = (f'Bearer error="insufficient_scope", scope="s{number}"' for number in range(100))
    scene.refuses = lambda request: httpx.Response(403, headers={"WWW-Authenticate": next(missing)})


def always(code: int, challenge: str) -> Plan:
    return refusing(lambda request: httpx.Response(code, headers={"WWW-Authenticate": challenge}))


def repeated(code: int, field: str, text: str) -> Plan:
    """The server repeats the token in a field of a refusal."""
    return refusing(
        lambda request: httpx.Response(code, headers={field: text % request.headers["Authorization"].split()[1]})
    )


def redirect_to(url: str, code: int = 302) -> Callable[[], httpx.Response]:
    return lambda: httpx.Response(code, headers={"Location": url})


def with_state(url: str) -> str:
    return url.replace("state=", "state=x")


R, A, G, Z, D, T, F = (
    "resource metadata",
    "authorization server metadata",
    "registration",
    "authorization",
    "redirection",
    "token",
    "refresh",
)  # the steps
EVERYWHERE = [
    ("file:///etc/passwd", "not an https or http URL"),
    ("ftp://id.example.com/x", "not an https or http URL"),
    ("javascript:alert(1)", "not an https or http URL"),
    ("data:application/json,{}", "not an https or http URL"),
    ("http://id.example.com/x", "not https"),
    ("https://user:secret@id.example.com/x", "user name"),
    ("https://id.example.com/x#y", "fragment"),
    ("https://127.0.0.1/x", "this machine"),
    ("https://[::1]:8443/x", "this machine"),
    ("http://localhost:9/x", "this machine"),
    ("https://[::ffff:127.0.0.1]/x", "this machine"),
    ("https://169.254.169.254/latest/meta-data", "an address that is never allowed"),
    ("https://0.0.0.0/x", "an address that is never allowed"),
]
# By their form alone, before anything is resolved.
SHAPES = [
    *(("metadata_at", R, url, metadata_at(url), text) for url, text in EVERYWHERE),
    *(("issuer", A, url, told(authorization_servers=[url]), text) for url, text in EVERYWHERE),
    *(
        (endpoint, A, url, published(**{endpoint: url}), text)
        for endpoint in ("authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint")
        for url, text in EVERYWHERE
    ),
]


@attrs.frozen
class Case:
    """A plot, and how it ends.

    Attributes:
        plot: What the hostile side does.
        step: The step that refuses it, or the error if that is of no step; None: the calls go on.
        text: A part of the error.
        evil: Whether the attacker's server may be reached: the server itself names it.
        asked: How often a person is asked.
    """

    plot: Plan
    step: str | None
    text: str = ""
    evil: bool = False
    asked: int | None = None


INSIDE = "https://inside.example.com"
PRIVATE = resolved("inside.example.com", "10.0.0.7")
BIG = Body(b"x" * 65536, GIB)
DEEP = b'{"a":' * 10000 + b"1" + b"}" * 10000

SIGNING_IN: dict[str, Case] = {
    # --- the server and its metadata
    "metadata on a private address": Case(all_of(PRIVATE, metadata_at(f"{INSIDE}/x")), R, "private network"),
    "metadata on a name that rebinds": Case(
        all_of(
            resolved("inside.example.com", PUBLIC, "127.0.0.1"),
            metadata_at(f"{INSIDE}/x"),
            answered(f"{INSIDE}/x", lambda: document(code=302, Location=f"{INSIDE}/y")),
        ),
        R,
        "this machine",
        evil=True,
    ),
    "metadata at a decimal address": Case(
        all_of(resolved("2130706433", "127.0.0.1"), metadata_at("https://2130706433/x")), R, "this machine"
    ),
    "metadata on a name without an address": Case(metadata_at("https://nowhere.example.com/x"), R, "can't be resolved"),
    "metadata redirected to loopback": Case(answered(METADATA, redirect_to("https://127.0.0.1/x")), R, "this machine"),
    "metadata redirected to http": Case(answered(METADATA, redirect_to("http://mcp.example.com/x")), R, "not followed"),
    "metadata redirected to a file": Case(answered(METADATA, redirect_to("file:///etc/passwd")), R, "not followed"),
    "metadata redirected to a URL with a password": Case(
        answered(METADATA, redirect_to("https://user:secret@id.example.com/x")), R, "user name"
    ),
    "metadata redirected to a private name": Case(
        all_of(PRIVATE, answered(METADATA, redirect_to(f"{INSIDE}/x", 308))), R, "private network"
    ),
    "metadata redirected in a circle": Case(answered(METADATA, redirect_to(METADATA)), R, "more than 3 times"),
    "metadata of 1 GiB": Case(answered(METADATA, lambda: document(BIG)), R, "more than 65536 bytes"),
    "metadata without end, slowly": Case(
        answered(METADATA, lambda: document(Body(b" ", pause=1))), R, "no complete response arrived within 10 seconds"
    ),
    "metadata that unpacks to 1 GiB": Case(
        answered(METADATA, lambda: httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=Body(b"x"))),
        R,
        "which the request did not accept",
    ),
    "metadata that nests without end": Case(
        answered(METADATA, lambda: document(DEEP)), R, "did not respond with a JSON"
    ),
    "metadata that is a list": Case(answered(METADATA, lambda: document([1])), R, "did not respond with a JSON"),
    "metadata with two lengths": Case(
        answered(METADATA, lambda: document({}, Transfer_Encoding="chunked", Content_Length="2")), R, "both"
    ),
    "metadata that fails": Case(answered(METADATA, lambda: document({}, 503)), R, "status 503"),
    "metadata that is held back": Case(answered(METADATA, lambda: document({}, 429)), R, "status 429"),
    "the resource of another host": Case(told(resource="https://bank.example.com/mcp"), R, "but the server is"),
    "the resource of another port": Case(told(resource="https://mcp.example.com:444/mcp"), R, "but the server is"),
    "the resource of a neighbour": Case(told(resource="https://mcp.example.com/mc"), R, "but the server is"),
    "a resource with dots": Case(told(resource="https://mcp.example.com/mcp/../mcp"), R, "but the server is"),
    "a resource with a user": Case(told(resource="https://a@mcp.example.com/mcp"), R, "but the server is"),
    "a resource of http": Case(told(resource="http://mcp.example.com/mcp"), R, "but the server is"),
    "a resource that is a list": Case(told(resource=[SERVER]), R, "but the server is"),
    "no resource": Case(told(resource=None), R, "but the server is"),
    "a tenant who speaks for the whole host": Case(
        all_of(
            metadata_at("https://mcp.example.com/tenant/metadata"),
            answered(
                "https://mcp.example.com/tenant/metadata",
                lambda: document({"resource": "https://mcp.example.com/", "authorization_servers": [EVIL_ID]}),
            ),
        ),
        R,
        "but the server is",
    ),
    "no authorization server": Case(told(authorization_servers=[]), R, "names no authorization server"),
    "authorization servers that are numbers": Case(told(authorization_servers=[1, None]), R, "names no"),
    "four thousand authorization servers": Case(
        told(authorization_servers=[f"{ID}/{number}" for number in range(4000)]), R, "more than 65536 bytes"
    ),
    "a hundred authorization servers": Case(
        told(authorization_servers=[f"{ID}/{number}" for number in range(100)]), A, "no metadata document"
    ),
    # --- the authorization server and its metadata
    "mix-up: the attacker's server says that it is another": Case(
        all_of(
            told(authorization_servers=[EVIL_ID]),
            lambda scene: scene.evil.faults.update({"metadata": edited(issuer=ID)}),
        ),
        A,
        "is the metadata of",
        evil=True,
    ),
    "mix-up: it says that it is the attacker's": Case(published(issuer=EVIL_ID), A, "is the metadata of"),
    "an issuer in capitals": Case(published(issuer="https://ID.example.com"), A, "is the metadata of"),
    "an issuer with its port": Case(published(issuer=f"{ID}:443"), A, "is the metadata of"),
    "an issuer with two slashes": Case(published(issuer=f"{ID}//"), A, "is the metadata of"),
    "an issuer with an escape": Case(published(issuer="https://id%2Eexample.com"), A, "is the metadata of"),
    "an issuer that is a list": Case(published(issuer=[ID]), A, "an unnamed server"),
    "no issuer": Case(published(issuer=None), A, "an unnamed server"),
    "an issuer with a query": Case(told(authorization_servers=[f"{ID}?a=b"]), A, "query"),
    "an issuer on a private address": Case(all_of(PRIVATE, told(authorization_servers=[INSIDE])), A, "private network"),
    "an issuer on link-local": Case(
        all_of(resolved("inside.example.com", "169.254.169.254"), told(authorization_servers=[INSIDE])),
        A,
        "never allowed",
    ),
    "an issuer in NAT64": Case(
        all_of(resolved("inside.example.com", "64:ff9b::a00:1"), told(authorization_servers=[INSIDE])), A, "private"
    ),
    "metadata of the issuer redirected to loopback": Case(fault("metadata", moved("https://127.1/x")), A, ""),
    "metadata of the issuer without end": Case(fault("metadata", endless), A, "more than 65536 bytes"),
    "metadata of the issuer never ends": Case(answered(KNOWN, lambda: document(BIG)), A, "more than 65536 bytes"),
    "no PKCE": Case(published(code_challenge_methods_supported=None), Z, "doesn't say that it supports PKCE"),
    "plain PKCE alone": Case(published(code_challenge_methods_supported=["plain"]), Z, "PKCE with S256"),
    "an endpoint that sets the redirect URI": Case(
        published(authorization_endpoint=f"{ID}/authorize?redirect_uri=https://evil.example.com"), Z, "already sets"
    ),
    "an endpoint that sets the state": Case(
        published(authorization_endpoint=f"{ID}/authorize?%73tate=1"), Z, "already sets state"
    ),
    "no token endpoint": Case(published(token_endpoint=None), T, "names no token_endpoint"),
    "an endpoint that is a list": Case(published(token_endpoint=[f"{ID}/token"]), T, "names no token_endpoint"),
    # --- registration
    "registration on a private address": Case(
        all_of(PRIVATE, published(registration_endpoint=f"{INSIDE}/register")), G, "private network"
    ),
    "registration redirected": Case(fault("register", moved(f"{EVIL_ID}/register")), G, "status 307"),
    "registration without end": Case(fault("register", endless), G, "more than 65536 bytes"),
    "registration of another redirect URI": Case(
        fault("register", edited(redirect_uris=["https://evil.example.com/"])), G, "the registered redirect URI"
    ),
    "registration of an id with a line break": Case(fault("register", edited(client_id="a\r\nb")), G, "client_id"),
    "registration of a secret that is a list": Case(fault("register", edited(client_secret=[1])), G, "client_secret"),
    "registration of another method": Case(
        fault("register", edited(token_endpoint_auth_method="private_key_jwt")), G, "was not asked for"
    ),
    "registration answered with a page": Case(fault("register", raw(b"<html>", "text/html")), G, "not a JSON object"),
    "registration refused with control characters": Case(
        fault("register", raw(b'{"error": "a\\u001b[2Jb", "error_description": "c\\u001b]0;d\\u0007"}', code=400)),
        G,
        "status 400",
    ),
    # --- the redirection
    "state of another": Case(pasted(with_state), D, "not the URL of the page on which the sign-in ended"),
    "no state": Case(pasted(lambda url: url.replace("state=", "stat=")), D, "not the URL"),
    "state twice": Case(pasted(lambda url: url + "&state=x"), D, "not the URL"),
    "code twice": Case(pasted(lambda url: url + "&code=x"), D, "not the URL"),
    "mix-up: iss of the attacker": Case(
        fault("authorize", redirected(iss=EVIL_ID)), D, "a different authorization server"
    ),
    "mix-up: iss with a slash": Case(
        fault("authorize", redirected(iss=f"{ID}/")), D, "a different authorization server"
    ),
    "mix-up: no iss": Case(fault("authorize", redirected(iss=None)), D, "doesn't say which"),
    "mix-up: an error of the attacker": Case(
        fault("authorize", redirected(iss=EVIL_ID, code=None, error="access_denied")),
        D,
        "a different authorization server",
    ),
    "an error with control characters": Case(
        fault("authorize", redirected(code=None, error="server_error", error_description="a\x1b[2Jb\nc")), Z, "a [2Jb c"
    ),
    "neither code nor error": Case(fault("authorize", redirected(code=None)), D, "neither a code nor an error"),
    "what is pasted is not a URL": Case(pasted(lambda url: "javascript:alert(1)"), D, "not the URL"),
    # --- tokens
    "tokens redirected": Case(fault("token", moved(f"{EVIL_ID}/token")), T, "which is not followed with credentials"),
    "tokens redirected with 302": Case(fault("token", moved(f"{EVIL_ID}/token", 302)), T, "not followed"),
    "tokens on a private address": Case(
        all_of(PRIVATE, published(token_endpoint=f"{INSIDE}/token")), T, "private network"
    ),
    "tokens on a name that rebinds": Case(resolved("id.example.com", PUBLIC, PUBLIC, "127.0.0.1"), T, "this machine"),
    "tokens without end": Case(fault("token", endless), T, "more than 65536 bytes"),
    "tokens of 1 GiB": Case(answered(f"{ID}/token", lambda: document(BIG)), T, "more than 65536 bytes"),
    "tokens, slowly": Case(answered(f"{ID}/token", lambda: document(Body(b" ", pause=1))), T, "within 10 seconds"),
    "tokens with a line break": Case(granted(access_token="a\r\nX-Evil: 1"), T, "no usable access_token"),
    "tokens that are objects": Case(granted(access_token={}), T, "no usable access_token"),
    "no token": Case(granted(access_token=None), T, "no usable access_token"),
    "tokens of another type": Case(granted(token_type="mac"), T, "a type that was not asked for"),
    "tokens bound to no key of the client": Case(granted(token_type="DPoP"), T, "a type that was not asked for"),
    "tokens of no type": Case(granted(token_type=["Bearer"]), T, "a type that was not asked for"),
    "tokens that expired before": Case(granted(expires_in=-1), None, asked=1),
    "tokens that expire in no number": Case(fault("token", edited(expires_in="NaN")), None, asked=1),
    "tokens that expire as a truth": Case(granted(expires_in=True), None, asked=1),
    "tokens that expire beyond all numbers": Case(granted(expires_in=10**400), None, asked=1),
    "tokens that expire as a list": Case(granted(expires_in=[3600]), None, asked=1),
    "tokens that expire at 1e400": Case(
        fault(
            "token",
            lambda request, handle: attrs.evolve(
                found := handle(request), body=found.body.replace(b'"expires_in": 3600', b'"expires_in": 1e400')
            ),
        ),
        None,
        asked=1,
    ),
    "a refresh token that is half a character": Case(granted(refresh_token="\ud800", expires_in=0.1), None, asked=1),
    "an error that repeats all that was sent": Case(fault("token", echo()), T, "invalid_grant"),
    "an error that is the code": Case(fault("token", echo_as_code), T, "no error code"),
    "an error that repeats the secret": Case(
        all_of(
            lambda scene: scene.id.add_client("app", "s3cret-canary", redirects=["http://127.0.0.1:0/callback"]),
            lambda scene: scene.secrets.update({"s3cret-canary": {f"{ID}/token"}, PAIR: {f"{ID}/token"}}),
            with_options(client=RegisteredClient("app", secret="s3cret-canary")),
            fault("token", echo("authorization")),
        ),
        T,
        "invalid_grant",
    ),
    "a given client at another server": Case(
        all_of(
            lambda scene: scene.secrets.update({"s3cret-canary": set()}),
            with_options(client=RegisteredClient("app", secret="s3cret-canary", issuer="https://corp.example.com")),
        ),
        G,
        "is registered with",
    ),
    "a nonce of DPoP without end": Case(
        all_of(
            lambda scene: scene.id.settings.update(dpop="accept"),
            with_options(dpop="require"),
            fault(
                "token",
                *(
                    status(
                        400, b'{"error": "use_dpop_nonce"}', Content_Type="application/json", DPoP_Nonce=f"n{number}"
                    )
                    for number in range(9)
                ),
            ),
        ),
        T,
        "use_dpop_nonce",
    ),
    "DPoP that is taken back": Case(
        all_of(
            lambda scene: scene.id.settings.update(dpop="accept"),
            with_options(dpop="require"),
            granted(token_type="Bearer"),
        ),
        T,
        "bound to no key",
    ),
    # --- challenges
    "a decoy in a quoted string": Case(
        challenged(f'Basic realm="Bearer resource_metadata=\\"{EVIL_ID}/x\\"", Bearer resource_metadata="{METADATA}"'),
        None,
        asked=1,
    ),
    "a decoy in another scheme": Case(
        challenged(f'Basic resource_metadata="{EVIL_ID}/x"', f'Bearer resource_metadata="{METADATA}"'), None, asked=1
    ),
    "a decoy after a broken challenge": Case(
        challenged(f'Bearer resource_metadata="{METADATA}", "x, Basic resource_metadata="{EVIL_ID}/x"'), None, asked=1
    ),
    "a decoy given twice": Case(
        challenged(f'Bearer resource_metadata="{METADATA}", resource_metadata="{EVIL_ID}/x"'), None, asked=1
    ),
    "a challenge of a megabyte": Case(challenged("Bearer " + "a" * 2**20), None, asked=1),
    "a challenge of scopes without end": Case(
        challenged(f'Bearer resource_metadata="{METADATA}", scope="{" ".join(map(str, range(10**5)))}"'), None, asked=1
    ),
}
TOO_MUCH = 'Bearer error="insufficient_scope", scope="read write"'

SIGNED_IN: dict[str, Case] = {
    "refresh redirected": Case(expired(fault("token", moved(f"{EVIL_ID}/token"))), F, "not followed", asked=1),
    "refresh on a name that rebinds": Case(expired(resolved("id.example.com", "10.0.0.7")), F, "private", asked=1),
    "refresh without end": Case(expired(fault("token", endless)), F, "more than 65536 bytes", asked=1),
    "refresh, slowly": Case(
        expired(answered(f"{ID}/token", lambda: document(Body(b" ", pause=1)))), F, "10 seconds", asked=1
    ),
    "refreshed tokens with a line break": Case(expired(granted(access_token="a\nb")), F, "no usable", asked=1),
    "refreshed tokens of another type": Case(expired(granted(token_type="mac")), F, "a type that was not", asked=1),
    "refreshed tokens that expired before": Case(expired(granted(expires_in=-1)), None, asked=1),
    "refreshed tokens that expire at once": Case(expired(granted(expires_in=1e-9)), None, asked=1),
    "refreshed tokens that never hold": Case(expired(granted(access_token="forged")), Z, "refused the token"),
    "a refresh whose error repeats all that was sent": Case(
        expired(fault("token", echo(), raw(b"{}"))), T, "no usable access_token", asked=2
    ),
    "a refresh whose error is the token": Case(expired(fault("token", echo_as_code)), F, "no error code", asked=1),
    "a refresh that never answers": Case(expired(fault("token", lost)), F, "", asked=1),
    "a refresh whose answers are cut": Case(expired(fault("token", cut)), F, "cut", asked=1),
    "a server that moves to the attacker's": Case(
        expired(fault("token", status(503)), told(authorization_servers=[EVIL_ID])), None, evil=True, asked=2
    ),
    "a server that moves to another's resource": Case(
        expired(
            fault("token", raw(b'{"error": "invalid_grant"}', code=400)), told(resource="https://bank.example.com/")
        ),
        R,
        "but the server is",
        asked=1,
    ),
    "scopes without end": Case(more_scopes, Z, "insufficient", asked=3),
    "scopes that were granted": Case(always(403, TOO_MUCH), Z, "insufficient"),
    "scopes that are half a character": Case(
        expired(granted(scope="\ud800 read"), always(403, TOO_MUCH)), Z, "insufficient"
    ),
    "no scope at all": Case(always(403, 'Bearer error="insufficient_scope"'), Z, "insufficient", asked=1),
    "a token that is never good": Case(always(401, 'Bearer error="invalid_token"'), Z, "refused the token", asked=2),
    "a nonce that is never good": Case(
        refusing(
            lambda request: httpx.Response(
                401, headers={"WWW-Authenticate": 'DPoP error="use_dpop_nonce"', "DPoP-Nonce": str(id(request))}
            )
        ),
        Z,
        "refused the token",
    ),
    "an error that is the access token": Case(repeated(401, "WWW-Authenticate", 'Bearer error="%s"'), Z, "refused"),
    "a scope that is the access token": Case(
        repeated(403, "WWW-Authenticate", 'Bearer error="insufficient_scope", scope="%s"'), "HttpError", "status 403"
    ),
    "a body that repeats the token": Case(
        refusing(lambda request: httpx.Response(500, text=f"no: {request.headers['Authorization']}")), "HttpError"
    ),
    "a redirection that repeats the token": Case(
        refusing(lambda request: redirect_to(f"{EVIL_ID}/?{request.headers['Authorization'].split()[1]}", 307)()),
        "HttpError",
    ),
    "a redirection to another origin": Case(
        refusing(lambda request: redirect_to(f"{EVIL_ID}/mcp", 307)()), "HttpError"
    ),
}


async def met(case: Case, after: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Scene:
    """Let a client meet a plot, and check how it ends."""
    scene = Scene()
    error = await play(scene, case.plot, monkeypatch, caplog, after=after)
    step = None if error is None else getattr(error, "step", type(error).__name__)
    assert (step, case.text in str(error or "")) == (case.step, True), error
    allowed = {"mcp.example.com", "id.example.com"} | (
        {"evil.example.com", "inside.example.com"} if case.evil else set()
    )
    assert {host for host, _ in scene.reached} <= allowed
    assert {address for _, address in scene.reached} <= {PUBLIC, EVIL}
    assert {urlsplit(url).netloc for url in scene.asked} <= allowed
    assert case.asked is None or len(scene.asked) == case.asked
    return scene


@pytest.mark.parametrize("name", SIGNING_IN)
async def test_a_client_that_signs_in(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    await met(SIGNING_IN[name], False, monkeypatch, caplog)


@pytest.mark.parametrize("name", SIGNED_IN)
async def test_a_client_that_has_signed_in(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    await met(SIGNED_IN[name], True, monkeypatch, caplog)


@pytest.mark.parametrize("place", sorted({place for place, *_ in SHAPES}))
async def test_urls_that_no_request_goes_to(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    for _, step, url, plot, text in (each for each in SHAPES if each[0] == place):
        scene = await met(Case(plot, step, text, asked=0), False, monkeypatch, caplog)
        assert not any(sent.endswith(url) for sent in scene.sent)
