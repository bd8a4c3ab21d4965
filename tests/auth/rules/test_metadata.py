"""Metadata: where it is looked for, what of it is used, and what is refused."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.auth.rules.playing import HTML, World, answer
from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.metadata import (
    AuthorizationServerMetadata,
    Discovered,
    discover,
    find_server,
    resource_urls,
    server_urls,
)
from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.auth.rules.urls import UrlPolicy
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import Headers

MCP = "https://mcp.example.com/mcp"
ID = "https://id.example.com"
AT_PATH = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
AT_ROOT = "https://mcp.example.com/.well-known/oauth-protected-resource"
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"
OLD = "https://mcp.example.com" + OAUTH


def prm(resource: str = MCP, *servers: str, **more: Any) -> dict[str, Any]:
    """Return resource metadata."""
    return {"resource": resource, "authorization_servers": [*servers] or [ID], **more}


def asm(issuer: str = ID, /, **more: Any) -> dict[str, Any]:
    """Return metadata of an authorization server."""
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "code_challenge_methods_supported": ["S256"],
    } | more


def found(world: World, wanted: Wanted | None = None, server: str = MCP, prefer: tuple[str, ...] = ()) -> Discovered:
    """Discover in this world."""
    return world.play(discover(server, wanted or Wanted(bearer=True), UrlPolicy(), prefer))


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (MCP, [AT_PATH, AT_ROOT]),
        ("https://mcp.example.com", [AT_ROOT]),
        ("https://mcp.example.com/", [AT_ROOT]),
        (MCP + "/", [AT_PATH + "/", AT_PATH, AT_ROOT]),
        (MCP + "?tenant=1", [AT_PATH + "?tenant=1", AT_PATH, AT_ROOT]),
        ("wss://MCP.example.com:443/mcp", [AT_PATH, AT_ROOT]),
        ("http://[::1]:80/a/b", [f"http://[::1]/.well-known/oauth-protected-resource{path}" for path in ("/a/b", "")]),
    ],
)
def test_where_resource_metadata_may_be(server: str, expected: list[str]) -> None:
    """At the path of the server, then at its root."""
    assert resource_urls(server) == expected


@pytest.mark.parametrize(
    ("issuer", "expected"),
    [
        (ID, [ID + OAUTH, ID + OPENID]),
        (ID + "/", [ID + OAUTH, ID + OPENID]),
        (ID + "/t1", [f"{ID}{OAUTH}/t1", f"{ID}{OPENID}/t1", f"{ID}/t1{OPENID}"]),
        (ID + "/t1/", [f"{ID}{OAUTH}/t1", f"{ID}{OPENID}/t1", f"{ID}/t1{OPENID}"]),
        (ID + ":8443/a/b", [f"{ID}:8443{OAUTH}/a/b", f"{ID}:8443{OPENID}/a/b", f"{ID}:8443/a/b{OPENID}"]),
    ],
)
def test_where_an_issuers_metadata_may_be(issuer: str, expected: list[str]) -> None:
    """RFC 8414 before OpenID Connect, inserted before appended."""
    assert server_urls(issuer) == expected


CUSTOM = "https://mcp.example.com/custom"
WAYS = {
    "by the header": (Wanted(CUSTOM), {CUSTOM: prm(), ID + OAUTH: asm()}, [CUSTOM, ID + OAUTH]),
    "the header is wrong": (Wanted(CUSTOM), {AT_PATH: prm(), ID + OAUTH: asm()}, [CUSTOM, AT_PATH, ID + OAUTH]),
    "at the path": (Wanted(), {AT_PATH: prm(), ID + OAUTH: asm()}, [AT_PATH, ID + OAUTH]),
    "at the root": (
        Wanted(),
        {AT_ROOT: prm("https://mcp.example.com"), ID + OAUTH: asm()},
        [AT_PATH, AT_ROOT, ID + OAUTH],
    ),
    "any 4xx": (
        Wanted(),
        {
            AT_PATH: answer("", 401),
            AT_ROOT: prm("https://mcp.example.com/"),
            ID + OAUTH: answer("", 405),
            ID + OPENID: asm(),
        },
        [AT_PATH, AT_ROOT, ID + OAUTH, ID + OPENID],
    ),
    "a page for every URL": (
        Wanted(),
        {AT_PATH: prm(), ID + OAUTH: answer("<html>", 200, HTML), ID + OPENID: asm()},
        [AT_PATH, ID + OAUTH, ID + OPENID],
    ),
    "appended": (
        Wanted(),
        {AT_PATH: prm(MCP, ID + "/t1"), f"{ID}/t1{OPENID}": asm(ID + "/t1")},
        [AT_PATH, f"{ID}{OAUTH}/t1", f"{ID}{OPENID}/t1", f"{ID}/t1{OPENID}"],
    ),
    "a document of another issuer before it": (
        Wanted(),
        {AT_PATH: prm(MCP, ID + "/t1"), f"{ID}{OAUTH}/t1": asm(ID), f"{ID}{OPENID}/t1": asm(ID + "/t1")},
        [AT_PATH, f"{ID}{OAUTH}/t1", f"{ID}{OPENID}/t1"],
    ),
    "as 2025-03-26": (Wanted(), {OLD: asm("https://mcp.example.com")}, [AT_PATH, AT_ROOT, OLD]),
    "as 2025-03-26, with another scheme beside Bearer": (
        Wanted(bearer=True, others=("basic",)),
        {},
        [AT_PATH, AT_ROOT, OLD],
    ),
    "as 2025-03-26, without metadata": (Wanted(), {}, [AT_PATH, AT_ROOT, OLD]),
}


@pytest.mark.parametrize(("wanted", "pages", "fetched"), WAYS.values(), ids=WAYS)
def test_ways_to_the_metadata(wanted: Wanted, pages: dict[str, Any], fetched: list[str]) -> None:
    """What is fetched, and nothing more."""
    world = World(pages)
    assert found(world, wanted).server.token is not None
    assert world.fetched == fetched


@pytest.mark.parametrize(
    ("advertised", "published", "kept"),
    [(ID, ID + "/", ID + "/"), (ID + "/", ID, ID), (ID, ID, ID)],
)
def test_a_slash_at_the_end_of_an_issuer(advertised: str, published: str, kept: str) -> None:
    """Large providers differ by one; the document's own spelling counts from then on."""
    world = World({AT_PATH: prm(MCP, advertised), ID + OAUTH: asm(ID, issuer=published)})
    assert found(world).server.issuer == kept


def test_a_document_elsewhere_may_not_name_a_parent() -> None:
    """On a host with many tenants, one could get tokens for all of them; the well-known places are the host's own."""
    pages: dict[str, Any] = {ID + OAUTH: asm()}
    for url in (CUSTOM, AT_ROOT + "/../../custom", AT_ROOT + "-of-tenant/x"):
        pages[url] = prm("https://mcp.example.com")
        with pytest.raises(AuthorizationError, match=r"is the metadata of 'https://mcp\.example\.com'"):
            found(World(pages), Wanted(url))
    pages[AT_ROOT] = pages[CUSTOM]
    assert found(World(pages), Wanted(AT_ROOT)).audience == "https://mcp.example.com"


@pytest.mark.parametrize("resource", [MCP, MCP + "/", "https://mcp.example.com", "HTTPS://mcp.example.com:443/mcp"])
def test_the_resource_is_kept_byte_for_byte(resource: str) -> None:
    """It is what all later requests send."""
    assert found(World({AT_PATH: prm(resource), ID + OAUTH: asm()})).audience == resource


def test_without_resource_metadata_there_is_no_resource() -> None:
    """2025-03-26 has no such parameter; the endpoints are on the server's own origin."""
    here = "https://mcp.example.com"
    world = World()
    assert found(world) == Discovered(
        None,
        AuthorizationServerMetadata(
            here,
            published=False,
            authorization=f"{here}/authorize",
            token=f"{here}/token",
            registration=f"{here}/register",
        ),
    )
    assert world.fields["MCP-Protocol-Version"] == "2025-03-26"


ENDPOINTS: Any = ("authorization", "token", "registration", "revocation", "device", "introspection", "jwks")


def test_what_is_read() -> None:
    """Every field that something depends on."""
    endpoints = {
        "authorization_endpoint": f"{ID}/a?x=1",
        "token_endpoint": "https://token.example.com/t",
        "registration_endpoint": f"{ID}/r",
        "revocation_endpoint": f"{ID}/v",
        "device_authorization_endpoint": f"{ID}/d",
        "introspection_endpoint": f"{ID}/i",
        "jwks_uri": f"{ID}/j",
    }
    document = asm(
        **endpoints,
        scopes_supported=["a", "offline_access"],
        grant_types_supported=["authorization_code"],
        token_endpoint_auth_methods_supported=["none"],
        client_id_metadata_document_supported=True,
        authorization_response_iss_parameter_supported=True,
        dpop_signing_alg_values_supported=["ES256"],
        authorization_grant_profiles_supported=["urn:ietf:params:oauth:grant-profile:id-jag"],
    )
    resource = prm(
        scopes_supported=["a", "b c", 7, ""],
        dpop_signing_alg_values_supported=["ES256"],
        dpop_bound_access_tokens_required=True,
    )
    here = found(World({AT_PATH: resource, ID + OAUTH: document}))
    assert here.server == AuthorizationServerMetadata(
        ID,
        **dict(zip(ENDPOINTS, endpoints.values(), strict=True)),
        scopes=frozenset({"a", "offline_access"}),
        grants=("authorization_code",),
        methods=("none",),
        pkce=("S256",),
        documents=True,
        sends_iss=True,
        dpop=("ES256",),
        profiles=("urn:ietf:params:oauth:grant-profile:id-jag",),
    )
    assert here.resource is not None
    assert attrs.astuple(here.resource)[2:] == (
        {"a", "b", "c"},
        ("ES256",),
        True,
    )


@pytest.mark.parametrize("odd", [None, "S256", 7, {}, [7], True])
def test_fields_of_the_wrong_type_count_as_left_out(odd: Any) -> None:
    """Or as empty lists; nothing is refused, and nothing assumed, for what is optional."""
    lists = dict.fromkeys(("scopes_supported", "grant_types_supported", "code_challenge_methods_supported"), odd)
    document = asm(**lists, authorization_response_iss_parameter_supported="true", registration_endpoint=7)
    at = found(World({AT_PATH: prm(), ID + OAUTH: document})).server
    assert not at.scopes
    assert not at.pkce
    assert not at.sends_iss
    assert at.registration is None
    with pytest.raises(AuthorizationError, match="names no registration_endpoint"):
        at.need("registration", "registration")


@pytest.mark.parametrize(
    ("prefer", "expected"),
    [((), ID), (("https://two.example/",), "https://two.example"), (("https://evil.example",), ID)],
)
def test_several_authorization_servers(prefer: tuple[str, ...], expected: str) -> None:
    """The preferred one, if the resource lists it, else the first."""
    pages = {AT_PATH: prm(MCP, ID, "https://two.example")}
    for issuer in (ID, "https://two.example", "https://evil.example"):
        pages[issuer + OAUTH] = asm(issuer)
    assert found(World(pages), prefer=prefer).server.issuer == expected


def test_an_authorization_server_without_usable_metadata_is_passed_over() -> None:
    """At most three are tried, and if none is usable the error is that of the first."""
    world = World({AT_PATH: prm(MCP, "file:///etc", ID), ID + OAUTH: asm()})
    assert found(world).server.issuer == ID
    world = World({AT_PATH: prm(MCP, *(f"https://{n}.example" for n in range(50)))})
    with pytest.raises(AuthorizationError, match=r"https://0\.example failed: there is no metadata document"):
        found(world)
    assert len(world.fetched) == 1 + 3 * 2


def served(status: int = 200, body: bytes = b"{}", kind: str = "application/json") -> Fetched:
    """Return a response of bytes."""
    return Fetched(status, Headers([("Content-Type", kind)]), body)


EVIL = "https://evil.example"
HOSTILE: dict[str, tuple[str, Any, str]] = {
    "another resource": (AT_PATH, prm("https://other.example/mcp"), "is the metadata of 'https://other"),
    "a resource below": (AT_PATH, prm(MCP + "/x"), "is the metadata of"),
    "a sibling that begins alike": (AT_PATH, prm("https://mcp.example.com/mc"), "is the metadata of"),
    "plain http": (AT_PATH, prm("http://mcp.example.com/mcp"), "is the metadata of"),
    "without a resource": (AT_PATH, {"authorization_servers": [ID]}, "an unnamed server"),
    "a number as resource": (AT_PATH, {**prm(), "resource": 7}, "an unnamed server"),
    "control characters": (AT_PATH, prm("https://a\x1b[2J\n.example"), r"\\x1b"),
    "without servers": (AT_PATH, {"resource": MCP}, "names no authorization server"),
    "servers that are no list": (
        AT_PATH,
        {"resource": MCP, "authorization_servers": ID},
        "names no authorization server",
    ),
    "servers that are no strings": (
        AT_PATH,
        {"resource": MCP, "authorization_servers": [7]},
        "names no authorization server",
    ),
    "an issuer on this machine": (AT_PATH, prm(MCP, "https://localhost:8443"), "leads to this machine"),
    "an issuer in plain http": (AT_PATH, prm(MCP, "http://id.example.com"), "is not https"),
    "an issuer of a cloud": (AT_PATH, prm(MCP, "https://169.254.169.254"), "an address that is never allowed"),
    "an issuer of a WebSocket": (AT_PATH, prm(MCP, "wss://id.example.com"), "is not an https or http URL"),
    "an issuer with a query": (AT_PATH, prm(MCP, ID + "?x=1"), "has a query"),
    "an issuer with a fragment": (AT_PATH, prm(MCP, ID + "#x"), "a fragment"),
    "an issuer with a name": (AT_PATH, prm(MCP, "https://a:b@id.example.com"), "a user name"),
    "the metadata of another": (ID + OAUTH, asm("https://honest.example"), "is the metadata of 'https://honest"),
    "an issuer in capitals": (ID + OAUTH, asm("https://ID.example.com"), "is the metadata of"),
    "an issuer with its port": (ID + OAUTH, asm(ID + ":443"), "is the metadata of"),
    "an issuer with two slashes": (ID + OAUTH, asm(ID + "//"), "is the metadata of"),
    "without an issuer": (ID + OAUTH, {"token_endpoint": f"{ID}/token"}, "an unnamed server"),
    "a list as issuer": (ID + OAUTH, asm(issuer=[ID]), "an unnamed server"),
    "a template as issuer": (ID + OAUTH, asm(ID + "/{tenantid}"), "is the metadata of"),
    "a file as endpoint": (ID + OAUTH, asm(token_endpoint="file:///etc/passwd"), "token_endpoint is refused"),
    "a script as endpoint": (
        ID + OAUTH,
        asm(authorization_endpoint="javascript:alert(1)"),
        "authorization_endpoint is",
    ),
    "plain http as endpoint": (
        ID + OAUTH,
        asm(token_endpoint="http://id.example.com/token"),
        "token_endpoint is refused",
    ),
    "an endpoint on this machine": (
        ID + OAUTH,
        asm(registration_endpoint="https://127.0.0.1/"),
        "registration_endpoint is",
    ),
    "an endpoint with a name": (ID + OAUTH, asm(revocation_endpoint="https://a@b.example/"), "revocation_endpoint is"),
    "an endpoint of a cloud": (ID + OAUTH, asm(jwks_uri="https://169.254.169.254/"), "jwks_uri is refused"),
    "an endpoint with a fragment": (ID + OAUTH, asm(device_authorization_endpoint=ID + "/d#x"), "endpoint is refused"),
    "an endpoint without a host": (ID + OAUTH, asm(authorization_endpoint="/authorize"), "authorization_endpoint is"),
    "not JSON": (ID + OAUTH, served(body=b"issuer: x"), "did not respond with a JSON object"),
    "a list": (AT_PATH, served(body=b"[]"), "did not respond with a JSON object"),
    "text": (AT_PATH, served(body=b'{"resource": "x"}', kind="text/plain"), "did not respond with a JSON object"),
    "nothing": (AT_PATH, served(body=b""), "did not respond with a JSON object"),
    "not UTF-8": (AT_PATH, served(body=b'{"resource": "\xff"}'), "did not respond with a JSON object"),
    "too deep": (AT_PATH, served(body=b"[" * 60_000), "did not respond with a JSON object"),
    "a number of a thousand digits": (AT_PATH, served(body=b'{"a":' + b"9" * 5000 + b"}"), "a JSON object"),
    "broken": (AT_PATH, served(500), "status 500"),
    "away": (ID + OAUTH, served(503), "status 503"),
    "overloaded": (AT_PATH, served(429), "status 429"),
    "moved, and not followed": (ID + OAUTH, served(302), "status 302"),
}


@pytest.mark.parametrize(("url", "page", "why"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_metadata(url: str, page: Any, why: str) -> None:
    """Each is refused at its step, and nothing else is asked for because of it."""
    world = World({AT_PATH: prm(), ID + OAUTH: asm(), url: page})
    with pytest.raises(AuthorizationError, match=why) as caught:
        found(world)
    assert caught.value.step in ("resource metadata", "authorization server metadata")
    assert str(caught.value).isprintable()
    assert {each.partition("/.well")[0] for each in world.fetched} <= {"https://mcp.example.com", ID}


@pytest.mark.parametrize(
    "metadata",
    [
        "file:///etc/passwd",
        "http://mcp.example.com/prm",
        "https://localhost/prm",
        "https://a@mcp.example.com/",
        "x",
        "''",
    ],
)
def test_a_challenge_that_names_a_bad_url(metadata: str) -> None:
    """It is refused, not passed over: nothing is fetched."""
    world = World({AT_PATH: prm(), ID + OAUTH: asm()})
    with pytest.raises(AuthorizationError):
        found(world, Wanted(metadata))
    assert world.fetched == []


@pytest.mark.parametrize(
    ("pages", "wanted", "server", "why"),
    [
        ({OLD: asm(ID)}, Wanted(), MCP, "is the metadata of 'https://id"),
        ({OLD: served(503)}, Wanted(), MCP, "status 503"),
        ({AT_ROOT: served(502)}, Wanted(), MCP, "status 502"),
        ({}, Wanted(others=("basic", "negotiate")), MCP, "asks for authentication by basic or negotiate"),
        ({}, Wanted(), "http://mcp.example.com/mcp", "is not https"),
        ({}, Wanted(), "mcp.example.com", "the URL of the MCP server is not an https or http URL"),
    ],
)
def test_when_there_is_no_way_back_to_2025_03_26(pages: Any, wanted: Wanted, server: str, why: str) -> None:
    """Only where metadata is surely missing, and on the server's own origin."""
    with pytest.raises(AuthorizationError, match=why):
        found(World(pages), wanted, server)


def test_an_issuer_alone() -> None:
    """As a resource server looks for keys."""
    world = World({ID + OPENID: {"issuer": ID, "jwks_uri": ID + "/keys"}})
    assert world.play(find_server(ID, UrlPolicy(), ID)).need("jwks", "keys") == ID + "/keys"
