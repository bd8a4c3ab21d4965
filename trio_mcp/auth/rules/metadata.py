"""Finds and reads metadata of resources (RFC 9728) and authorization servers (RFC 8414, OpenID Connect Discovery)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.scopes import read_scopes
from trio_mcp.auth.rules.steps import Fetch, Fetched, Flow
from trio_mcp.auth.rules.texts import json_object, strings
from trio_mcp.auth.rules.urls import UrlPolicy, covers, same_issuer, take_apart, without_query
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.headers import JSON, PROTOCOL_VERSION, shown

__all__ = [
    "AuthorizationServerMetadata",
    "Discovered",
    "ProtectedResource",
    "discover",
    "find_resource",
    "find_server",
    "resource_urls",
    "server_urls",
]

RESOURCE: Final = "resource metadata"
SERVER: Final = "authorization server metadata"

MAX_SERVERS = 3
"""The maximum number of authorization servers that are tried for one resource (arbitrary)."""


@attrs.frozen
class ProtectedResource:
    """The metadata that an MCP server publishes about itself as a protected resource (RFC 9728).

    Attributes:
        resource: The server's identifier, byte for byte, which token requests send as the parameter ``resource``.
        servers: The issuers of the server's authorization servers, as the metadata spells them.
        scopes: The scopes that the metadata lists; None if it has no list.
        dpop: The algorithms that the server accepts for DPoP; empty if the metadata lists none.
        dpop_required: Whether the server accepts only tokens that are bound by DPoP.
    """

    resource: str
    servers: tuple[str, ...]
    scopes: frozenset[str] | None = None
    dpop: tuple[str, ...] = ()
    dpop_required: bool = False


@attrs.frozen
class AuthorizationServerMetadata:
    """The metadata of an authorization server (RFC 8414).

    Attributes:
        issuer: The server's issuer, as the document spells it: all later comparisons are with this string.
        published: Whether there is a metadata document; otherwise the endpoints are the defaults of 2025-03-26.
        authorization: The authorization endpoint, or None. All endpoints have passed the URL policy.
        token: The token endpoint, or None.
        registration: The registration endpoint, or None.
        revocation: The revocation endpoint, or None.
        device: The device authorization endpoint (RFC 8628), or None.
        introspection: The introspection endpoint, or None.
        jwks: The URL of the server's keys (``jwks_uri``), or None.
        scopes: The scopes that the metadata lists; None if it has no list.
        grants: The grant types that the metadata lists; None if it has no list.
        methods: How clients can prove who they are at the token endpoint; None if the metadata doesn't say.
        pkce: The PKCE methods that the server supports; None if the metadata doesn't say.
        documents: Whether the server accepts the URL of a client's metadata document as the client's id.
        sends_iss: Whether the server puts ``iss`` into redirections (RFC 9207).
        dpop: The algorithms that the server accepts for DPoP; empty if the metadata lists none.
        profiles: The grant profiles that the metadata lists (``authorization_grant_profiles_supported``).
    """

    issuer: str
    published: bool = True
    authorization: str | None = None
    token: str | None = None
    registration: str | None = None
    revocation: str | None = None
    device: str | None = None
    introspection: str | None = None
    jwks: str | None = None
    scopes: frozenset[str] | None = None
    grants: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    pkce: tuple[str, ...] | None = None
    documents: bool = False
    sends_iss: bool = False
    dpop: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    def need(self, endpoint: str, step: str) -> str:
        """Return the URL of an endpoint, by the name of its attribute.

        Raises:
            AuthorizationError: If the metadata does not name the endpoint.
        """
        url: str | None = getattr(self, endpoint)
        if url is None:
            raise AuthorizationError(step, f"the metadata names no {_ENDPOINTS[endpoint]}", issuer=self.issuer)
        return url


_ENDPOINTS: Final = {
    "authorization": "authorization_endpoint",
    "token": "token_endpoint",
    "registration": "registration_endpoint",
    "revocation": "revocation_endpoint",
    "device": "device_authorization_endpoint",
    "introspection": "introspection_endpoint",
    "jwks": "jwks_uri",
}
"""The field of the metadata document from which each attribute is read."""


@attrs.frozen
class Discovered:
    """The result of discovery: where a client gets tokens for a server.

    Attributes:
        resource: The metadata of the server; None if it has none, which only 2025-03-26 allows.
        server: The metadata of the authorization server.
        named: Whether token requests name the server.
    """

    resource: ProtectedResource | None
    server: AuthorizationServerMetadata
    named: bool = True

    @property
    def audience(self) -> str | None:
        """The value of the parameter ``resource`` in every token request; None if the parameter is not sent."""
        return self.resource.resource if self.resource is not None and self.named else None


def discover(server: str, wanted: Wanted, policy: UrlPolicy, prefer: Sequence[str] = ()) -> Flow[Discovered]:
    """Find out where to get tokens for an MCP server.

    The resource metadata is looked for at the URL in the challenge, then at the well-known URL for the server's path,
    and then at the one for its root. Of the authorization servers that it names, preferred ones are tried first; the
    first with usable metadata is taken. A server without resource metadata is assumed to be its own authorization
    server, as in 2025-03-26.

    Args:
        server: The URL of the MCP server.
        wanted: The demands that the server's challenge makes.
        policy: Which URLs are allowed.
        prefer: Issuers to prefer, the most preferred first; for example, the one where a client is registered.

    Raises:
        AuthorizationError: If no metadata is found, or it can't be used.
    """
    resource = yield from find_resource(server, wanted, policy)
    if resource is None:
        return Discovered(None, (yield from _find_old_server(server, wanted, policy)))
    # Only issuers that the resource names are tried: a preference must not send a person, or a client's secret, to any
    # other issuer.
    preferred = [issuer for wish in prefer for issuer in resource.servers if same_issuer(wish, issuer)]
    problem: AuthorizationError | None = None
    # Looking up one issuer may take three HTTP exchanges, and a flow may make only twelve in all.
    for issuer in list(dict.fromkeys([*preferred, *resource.servers]))[:MAX_SERVERS]:
        try:
            return Discovered(resource, (yield from find_server(issuer, policy, server)))
        except AuthorizationError as exc:
            problem = problem or exc
    assert problem is not None  # the resource names at least one server
    raise problem


def resource_urls(server: str) -> list[str]:
    """Return the URLs where a server's resource metadata may be, the most likely first (RFC 9728, section 3.1).

    Raises:
        ValueError: If ``server`` is not an HTTP or WebSocket URL.
    """
    parts = take_apart(server)
    base = f"{parts.origin}/.well-known/oauth-protected-resource"
    path = parts.path if parts.path != "/" else ""
    # The well-known part goes before the path and the query, which belong to the identifier. A slash at the end may or
    # may not be part of the identifier, so both URLs are tried.
    return list(dict.fromkeys([base + path + parts.query, base + path.removesuffix("/"), base]))


def find_resource(server: str, wanted: Wanted, policy: UrlPolicy) -> Flow[ProtectedResource | None]:
    """Find a server's resource metadata; return None if it publishes none."""
    try:
        urls = resource_urls(server)
    except ValueError as exc:
        raise AuthorizationError(RESOURCE, f"the URL of the MCP server {exc}") from None
    # The URL in the challenge may be wrong, so the well-known URLs are tried after it.
    for url in dict.fromkeys([wanted.metadata or urls[0], *urls]):
        document = yield from _document(RESOURCE, url, server, policy)
        if document is not None:
            # If this document can't be used, that is an error: only a server that publishes no document at all is
            # treated as one of 2025-03-26, a revision without resource metadata.
            return _read_resource(document, url, server)
    return None


def _read_resource(document: Mapping[str, Any], url: str, server: str) -> ProtectedResource:
    resource = document.get("resource")
    # A tenant that owns one path on a shared host can publish a document below that path, but must not get tokens for
    # the whole host. So a parent of the server's URL is accepted only from the well-known URLs, which belong to the
    # host itself. A path with dot segments may begin like a well-known URL but lead somewhere else.
    root = resource_urls(server)[-1]
    known = (url == root or url.startswith((f"{root}/", f"{root}?"))) and not take_apart(url).dotted
    if not isinstance(resource, str) or not covers(resource, server, parent=known):
        raise AuthorizationError(
            RESOURCE,
            f"{without_query(url)} is the metadata of {_named(resource)}, but the server is {without_query(server)}",
            advice="check the URL of the server; if it is right, its operator has to correct the metadata",
        )
    servers = strings(document, "authorization_servers")
    if not servers:
        raise AuthorizationError(RESOURCE, f"the metadata at {without_query(url)} names no authorization server")
    return ProtectedResource(
        resource,
        servers,
        _scopes(document),
        strings(document, "dpop_signing_alg_values_supported") or (),
        document.get("dpop_bound_access_tokens_required") is True,
    )


def server_urls(issuer: str) -> list[str]:
    """Return the URLs where an issuer's metadata may be, in the order of 2025-11-25 `basic/authorization`.

    Raises:
        ValueError: If the string can't be an issuer.
    """
    parts = take_apart(issuer)
    # An issuer must have neither a query nor a fragment (RFC 8414, section 2); `take_apart` has already refused a
    # fragment.
    if parts.query:
        raise ValueError("has a query, which an issuer can't have")
    # RFC 8414, section 3.1: a slash at the end is left out before the well-known part goes in.
    path = parts.path.removesuffix("/")
    urls = [f"{parts.origin}/.well-known/{kind}{path}" for kind in ("oauth-authorization-server", _OPENID)]
    # OpenID Connect Discovery appends the well-known part to the path instead. If there is no path, both rules give the
    # same URL.
    return [*urls, f"{parts.origin}{path}/.well-known/{_OPENID}"] if path else urls


_OPENID: Final = "openid-configuration"


def find_server(issuer: str, policy: UrlPolicy, server: str) -> Flow[AuthorizationServerMetadata]:
    """Find the metadata of an issuer, on its own host only.

    Args:
        issuer: The issuer, as it was advertised or configured.
        policy: Which URLs are allowed.
        server: The URL of the MCP server, as `UrlPolicy.check` takes it.

    Raises:
        AuthorizationError: If no metadata is found, or it is another issuer's, or names a URL that is refused.
    """
    # The issuer is checked before URLs are made from it, because they would hide a wrong scheme: `take_apart` turns wss
    # into https.
    policy.check(issuer, server, SERVER)
    try:
        urls = server_urls(issuer)
    except ValueError as exc:
        raise AuthorizationError(SERVER, f"the issuer {shown(issuer)} {exc}") from None
    problem = "there is no metadata document at the well-known URLs"
    for url in urls:
        document = yield from _document(SERVER, url, server, policy)
        if document is None:
            continue
        published = document.get("issuer")
        if isinstance(published, str) and same_issuer(issuer, published):
            return _read_server(document, published, server, policy)
        # Another issuer's document is skipped: a host may serve the metadata of its root issuer at this URL, and the
        # right document at the next one.
        problem = f"{without_query(url)} is the metadata of {_named(published)}, not of this issuer"
    raise AuthorizationError(SERVER, problem, issuer=issuer)


def _read_server(
    document: Mapping[str, Any], issuer: str, server: str, policy: UrlPolicy
) -> AuthorizationServerMetadata:
    endpoints = {name: document[field] for name, field in _ENDPOINTS.items() if isinstance(document.get(field), str)}
    # All endpoints are checked now: the authorization endpoint is opened in a browser, so no fetch would check it
    # later.
    for name, url in endpoints.items():
        try:
            policy.check(url, server, SERVER)
        except AuthorizationError as exc:
            problem = f"its {_ENDPOINTS[name]} is refused: {exc.problem}"
            raise AuthorizationError(SERVER, problem, issuer=issuer, advice=exc.advice) from None
    return AuthorizationServerMetadata(
        issuer,
        scopes=_scopes(document),
        grants=strings(document, "grant_types_supported"),
        methods=strings(document, "token_endpoint_auth_methods_supported"),
        pkce=strings(document, "code_challenge_methods_supported"),
        documents=document.get("client_id_metadata_document_supported") is True,
        sends_iss=document.get("authorization_response_iss_parameter_supported") is True,
        dpop=strings(document, "dpop_signing_alg_values_supported") or (),
        profiles=strings(document, "authorization_grant_profiles_supported") or (),
        **endpoints,
    )


def _find_old_server(server: str, wanted: Wanted, policy: UrlPolicy) -> Flow[AuthorizationServerMetadata]:
    """Find the authorization server as in 2025-03-26: on the origin of the MCP server, with or without metadata."""
    # 2025-03-26 supports only the scheme Bearer. Without this check, the client would try to register at a server that
    # does not use OAuth.
    if wanted.others and not (wanted.bearer or wanted.dpop):
        problem = (
            f"{without_query(server)} has no resource metadata, and asks for authentication by "
            f"{' or '.join(wanted.others)[:100]}"
        )
        raise AuthorizationError(RESOURCE, problem, advice="pass the credentials with headers=")
    base = take_apart(server).origin
    # The section Server Metadata Discovery of 2025-03-26 requires the header with the protocol version.
    url, fields = f"{base}/.well-known/oauth-authorization-server", {PROTOCOL_VERSION: "2025-03-26"}
    document = yield from _document(SERVER, url, server, policy, fields)
    if document is not None:
        published = document.get("issuer")
        if not isinstance(published, str) or not same_issuer(base, published):
            raise AuthorizationError(
                SERVER, f"{without_query(url)} is the metadata of {_named(published)}, not of this issuer", issuer=base
            )
        return _read_server(document, published, server, policy)
    return AuthorizationServerMetadata(
        base,
        # The fallback endpoints of 2025-03-26 need no check, because they are on the MCP server's own origin.
        published=False,
        authorization=f"{base}/authorize",
        token=f"{base}/token",
        registration=f"{base}/register",
    )


def _document(
    step: str, url: str, server: str, policy: UrlPolicy, fields: Mapping[str, str] | None = None
) -> Flow[dict[str, Any] | None]:
    """Fetch a metadata document; return None if this URL has no such document."""
    policy.check(url, server, step)
    response: Fetched = yield Fetch(step, "GET", url, {"Accept": JSON, **(fields or {})})
    # A 429 doesn't mean that there is no document at this URL: if it did, a busy server would be treated as one without
    # metadata.
    if 400 <= response.status < 500 and response.status != 429:
        return None
    if not 200 <= response.status < 300:
        raise AuthorizationError(
            step, f"{without_query(url)} responded with status {response.status}", advice="try again later"
        )
    # Many sites respond to every unknown URL with an HTML page, so such a page means that there is no document.
    if response.headers.media_type == "text/html":
        return None
    document = json_object(response)
    if document is None:
        # A malformed document must not count as missing: the client would then fall back to an older revision.
        raise AuthorizationError(step, f"{without_query(url)} did not respond with a JSON object and a JSON media type")
    return document


def _named(identifier: object) -> str:
    return shown(identifier) if isinstance(identifier, str) else "an unnamed server"


def _scopes(document: Mapping[str, Any]) -> frozenset[str] | None:
    scopes = strings(document, "scopes_supported")
    return None if scopes is None else read_scopes(" ".join(scopes))
