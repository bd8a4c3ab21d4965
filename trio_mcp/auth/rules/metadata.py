"""Metadata of resources (RFC 9728) and of authorization servers (RFC 8414, OpenID Connect Discovery): found and read."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trio_mcp.auth.rules.challenges import Wanted
from trio_mcp.auth.rules.steps import Flow
from trio_mcp.auth.rules.urls import UrlPolicy

__all__ = ["AuthorizationServer", "Discovered", "ProtectedResource", "discover", "find_resource", "find_server"]


@attrs.frozen
class ProtectedResource:
    """What a server says about itself (RFC 9728).

    Attributes:
        resource: Its identifier, byte for byte: what the parameter ``resource`` is everywhere.
        servers: The issuers of its authorization servers, as it names them.
        scopes: The scopes that it lists, or None.
        dpop: The algorithms that it accepts for DPoP; empty if it lists none.
        dpop_required: Whether it accepts only tokens that are bound by DPoP.
    """

    resource: str
    servers: tuple[str, ...]
    scopes: frozenset[str] | None = None
    dpop: tuple[str, ...] = ()
    dpop_required: bool = False


@attrs.frozen
class AuthorizationServer:
    """What an authorization server says about itself (RFC 8414).

    Attributes:
        issuer: Its issuer, as the document has it: all later comparisons are with this string.
        published: Whether there is a document; otherwise the endpoints are those that 2025-03-26 assumes.
        authorization: The authorization endpoint, or None. All endpoints have passed the URL policy.
        token: The token endpoint, or None.
        registration: The registration endpoint, or None.
        revocation: The revocation endpoint, or None.
        device: The device authorization endpoint (RFC 8628), or None.
        introspection: The introspection endpoint, or None.
        jwks: Where its keys are (``jwks_uri``), or None.
        scopes: The scopes that it lists, or None.
        grants: The grant types that it lists, or None.
        methods: How clients can prove who they are at the token endpoint; None if it doesn't say.
        pkce: The methods of PKCE that it lists; None if it doesn't say.
        documents: Whether it accepts the URL of a client's metadata document as its id.
        sends_iss: Whether it puts ``iss`` into redirections (RFC 9207).
        dpop: The algorithms that it accepts for DPoP; empty if it lists none.
        profiles: The profiles of grants that it lists (``authorization_grant_profiles_supported``).
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
    grants: frozenset[str] | None = None
    methods: tuple[str, ...] | None = None
    pkce: tuple[str, ...] | None = None
    documents: bool = False
    sends_iss: bool = False
    dpop: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()


@attrs.frozen
class Discovered:
    """Where a client gets tokens for a server.

    Attributes:
        resource: What the server says about itself; None if it says nothing, which only 2025-03-26 allows.
        server: Its authorization server.
    """

    resource: ProtectedResource | None
    server: AuthorizationServer

    @property
    def audience(self) -> str | None:
        """The parameter ``resource`` of all requests for a token, or None where it is not sent."""
        return None if self.resource is None else self.resource.resource


def discover(server: str, wanted: Wanted, policy: UrlPolicy, prefer: Sequence[str] = ()) -> Flow[Discovered]:
    """Find out where to get tokens for an MCP server.

    The resource metadata is looked for where the challenge says, else below the server's path, else at its root. The
    authorization server is the preferred one, else the first one with usable metadata. A server without resource metadata
    is taken to be its own authorization server, as 2025-03-26 has it.

    Args:
        server: The URL of the MCP server.
        wanted: What its response asks for.
        policy: Which URLs are allowed.
        prefer: Issuers to prefer, such as that of a client registered beforehand, the most preferred first.

    Raises:
        AuthorizationError: If there is no metadata to be found, or it can't be used.
    """
    raise NotImplementedError
    yield


def find_resource(server: str, wanted: Wanted, policy: UrlPolicy) -> Flow[ProtectedResource | None]:
    """Find a server's resource metadata; None if it has none."""
    raise NotImplementedError
    yield


def find_server(issuer: str, policy: UrlPolicy, server: str) -> Flow[AuthorizationServer]:
    """Find the metadata of an issuer, on its own host only.

    Args:
        issuer: The issuer, as it was advertised or configured.
        policy: Which URLs are allowed.
        server: The URL of the MCP server, as `UrlPolicy.check` takes it.

    Raises:
        AuthorizationError: If there is none, or it is of another issuer, or names a URL that is refused.
    """
    raise NotImplementedError
    yield
