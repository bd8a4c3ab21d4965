"""How a server learns the revision of a request and what its client can do. Sans-I/O.

A server serves both eras on one link: a request with modern ``_meta`` is served statelessly, and ``initialize`` opens
a legacy session (`basic/versioning`, section Backward Compatibility with Initialization-Based Versions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, TypeAlias, get_args

from trio_mcp import _attrs as attrs
from trio_mcp.eras.capabilities import is_spec_method, requests_of_clients
from trio_mcp.eras.rules import Rules, rules_of_owner
from trio_mcp.errors import McpError
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.types import meta
from trio_mcp.types.common import LoggingLevel
from trio_mcp.types.error_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS, REVISIONS

__all__ = [
    "ClientDeclaration",
    "LegacyServerEra",
    "ModernServerEra",
    "ServerEra",
    "ServerIdentity",
    "ServerNegotiation",
    "check_method",
]

LOG_LEVELS: tuple[str, ...] = get_args(LoggingLevel)
"""The levels of log messages, least severe first (RFC 5424, section 6.2.1)."""


@attrs.frozen
class LegacyServerEra:
    """Applies the legacy era's rules for results: they are sent unchanged, because the handshake declared the server.

    Attributes:
        revision: The revision that the handshake chose.
        rules: The rules of the revision.
    """

    revision: str
    rules: Rules = attrs.field(init=False, repr=False, eq=False, default=attrs.Factory(rules_of_owner, takes_self=True))

    def finish_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result unchanged."""
        return result


@attrs.frozen
class ModernServerEra:
    """Applies the modern era's rules for results: each one states its type and the server that made it.

    Attributes:
        revision: The revision that the request named.
        server_info: The server's `Implementation`, as plain data.
        rules: The rules of the revision.
    """

    revision: str
    server_info: dict[str, Any]
    rules: Rules = attrs.field(init=False, repr=False, eq=False, default=attrs.Factory(rules_of_owner, takes_self=True))

    def finish_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result with its type and the server's information added; the argument is not changed."""
        given = result.get("_meta")
        stamp = {meta.SERVER_INFO: self.server_info}
        # The result's own fields take precedence: an InputRequiredResult has a different resultType.
        finished = {"resultType": "complete", **result}
        finished["_meta"] = {**stamp, **given} if given else stamp
        return finished


ServerEra: TypeAlias = LegacyServerEra | ModernServerEra
"""The era whose rules a server follows when it sends results."""


# This class is not frozen, because logging/setLevel changes the log level of a legacy session.
@attrs.define
class ClientDeclaration:
    """The client's declaration about itself, made in the handshake (legacy era) or in the request (modern era).

    Attributes:
        era: The era whose rules govern the result.
        client_info: The client's `Implementation`, as plain data; None if it sent none.
        capabilities: The client's `ClientCapabilities`, as plain data.
        log_level: The lowest level of log messages that this request asks for (modern era; None if it asks for no
            messages), or that the session asks for (legacy era; None if the client has not set a level).
        revision: The revision of the request.
        rules: The rules of the revision.
    """

    era: ServerEra
    client_info: dict[str, Any] | None
    capabilities: dict[str, Any]
    log_level: str | None = None
    revision: str = attrs.field(init=False, default=attrs.Factory(attrgetter("era.revision"), takes_self=True))
    rules: Rules = attrs.field(init=False, default=attrs.Factory(attrgetter("era.rules"), takes_self=True))


@attrs.frozen
class ServerIdentity:
    """A server's declaration about itself, as plain JSON data.

    Attributes:
        info: The server's `Implementation`.
        capabilities: Called with a revision; returns the `ServerCapabilities` declared to clients of that revision.
        instructions: Guidance for the model, or None.
        revisions: The revisions that the server serves.
        discover_hints: The caching hints of ``server/discover`` (``ttlMs``, ``cacheScope``).
        more_methods: By revision, the methods that extensions add; for each the parameter that the header ``Mcp-Name``
            repeats, or None.
        legacy: The legacy revisions among ``revisions``, oldest first.
        modern: The era of each modern revision among ``revisions``.
        supported: The revisions in ``legacy`` and ``modern``, newest first, as errors list them.

    Raises:
        ValueError: If this library speaks none of the revisions.
    """

    info: dict[str, Any]
    capabilities: Callable[[str], dict[str, Any]]
    instructions: str | None = None
    revisions: tuple[str, ...] = REVISIONS
    # The default is the cautious choice: the result is stale at once, and valid for this client only.
    discover_hints: dict[str, Any] = attrs.Factory(lambda: {"ttlMs": 0, "cacheScope": "private"})
    more_methods: Mapping[str, Mapping[str, str | None]] = attrs.Factory(dict)

    # These fields are derived from `revisions` once, for all links, because every request needs them.
    legacy: tuple[str, ...] = attrs.field(init=False, repr=False, eq=False)
    modern: dict[str, ModernServerEra] = attrs.field(init=False, repr=False, eq=False)
    supported: list[str] = attrs.field(init=False, repr=False, eq=False)

    @legacy.default
    def _legacy(self) -> tuple[str, ...]:
        return tuple(revision for revision in LEGACY_REVISIONS if revision in self.revisions)

    @modern.default
    def _modern(self) -> dict[str, ModernServerEra]:
        return {r: ModernServerEra(r, self.info) for r in MODERN_REVISIONS if r in self.revisions}

    @supported.default
    def _supported(self) -> list[str]:
        return [*reversed(self.modern), *reversed(self.legacy)]

    def __attrs_post_init__(self) -> None:
        if not self.supported:
            raise ValueError(f"revisions must name at least one of {', '.join(REVISIONS)}, got {self.revisions!r}")

    def modern_client(self, given: dict[str, Any]) -> ClientDeclaration:
        """Read the revision and the client's declaration from the ``_meta`` of a modern request.

        Raises:
            McpError: If a field is missing or malformed, or the server does not serve the revision.
        """
        # Types are compared exactly, because this runs for every modern request, and the JSON parser makes no
        # subclasses.
        revision = given.get(meta.PROTOCOL_VERSION)
        if type(revision) is not str:
            raise McpError(INVALID_PARAMS, f"params._meta[{meta.PROTOCOL_VERSION!r}] must be a string")
        era = self.modern.get(revision)
        if era is None:
            # `supported` tells the client what to try next (`basic/versioning`, Version Negotiation).
            data = {"supported": self.supported, "requested": revision}
            raise McpError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
        capabilities = given.get(meta.CLIENT_CAPABILITIES)
        if type(capabilities) is not dict:
            # `basic/index`, Per-request protocol fields: a request that lacks a required field is malformed.
            raise McpError(
                INVALID_PARAMS, f"params._meta[{meta.CLIENT_CAPABILITIES!r}] is required and must be an object"
            )
        # The client info is optional: clients should send it, but need not.
        info = given.get(meta.CLIENT_INFO)
        if info is not None and type(info) is not dict:
            raise McpError(INVALID_PARAMS, f"params._meta[{meta.CLIENT_INFO!r}] must be an object")
        level = given.get(meta.LOG_LEVEL)
        if level is not None and level not in LOG_LEVELS:
            # `server/utilities/logging`, Error Handling, prescribes this code for an invalid level.
            raise McpError(INVALID_PARAMS, f"params._meta[{meta.LOG_LEVEL!r}] must be one of {', '.join(LOG_LEVELS)}")
        return ClientDeclaration(era, info, capabilities, level)

    def discover(self, client: ClientDeclaration) -> dict[str, Any]:
        """Return the result of ``server/discover`` for a modern client (2026-07-28 `server/discover`)."""
        result: dict[str, Any] = {
            "supportedVersions": [*self.supported],
            "capabilities": self.capabilities(client.revision),
            **self.discover_hints,
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return client.era.finish_result(result)


def check_method(client: ClientDeclaration, method: str, identity: ServerIdentity) -> None:
    """Refuse a method that the specification defines but clients must not call, in this client's revision or in any.

    Methods that the specification does not define, and those of extensions, are left to the server.

    Raises:
        McpError: With code -32601, if the method is refused.
    """
    # `requests_of_clients` contains no notifications, so a request with a notification's name is refused as well.
    if (
        method not in requests_of_clients(client.revision)
        and is_spec_method(method)
        and method not in identity.more_methods.get(client.revision, ())
    ):
        raise McpError(
            METHOD_NOT_FOUND, f"{method!r} is not a method of revision {client.revision} that a client may call"
        )


class ServerNegotiation:
    """The state of the negotiation on one link.

    Attributes:
        identity: The server's declaration about itself.
        session: The client's declaration in the handshake; None before the handshake.
        declared: The capabilities declared to the client in the handshake. Capabilities that the server gains later are
            not included.
        initialized: Whether the client has confirmed the handshake with ``notifications/initialized``.
        lasting: Whether messages can still reach the client after the response to its request.
    """

    def __init__(self, identity: ServerIdentity) -> None:
        self.identity = identity
        self.session: ClientDeclaration | None = None
        self.initialized = False
        self.lasting = True
        self.declared: dict[str, Any] = {}

    def declaration(self, request: Request) -> ClientDeclaration:
        """Return the declaration of the client that made a request, after checking that its revision has the method.

        Raises:
            McpError: If the request can't be served; the error is to be sent as its response.
        """
        identity, method = self.identity, request.method
        given = request.params.get("_meta") if request.params else None
        # A server without a modern revision ignores the revision in `_meta`, as any legacy server does: a modern error
        # would prevent the client from falling back to initialize (2026-07-28 `transports/stdio`, Backward
        # Compatibility).
        if identity.modern and type(given) is dict and meta.PROTOCOL_VERSION in given:
            client = identity.modern_client(given)
        elif method == "server/discover" and not identity.modern:
            # To a client that probes for the modern era, a legacy server responds with this error, and the client then
            # sends initialize.
            raise McpError(METHOD_NOT_FOUND, "unknown method 'server/discover'")
        # Without modern `_meta`, the request belongs to the session that a handshake has opened on this link, if any.
        elif self.session is not None:
            client = self.session
        elif identity.modern:
            raise McpError(
                INVALID_PARAMS,
                f"params._meta lacks {meta.PROTOCOL_VERSION!r}, and {method[:100]!r} was not preceded by initialize",
                {"supported": identity.supported},
            )
        else:
            raise McpError(INVALID_REQUEST, f"{method[:100]!r} came before the initialize request")
        # This path runs for every request, and nearly every method is in this set, so the set is checked first.
        if method not in requests_of_clients(client.revision):
            check_method(client, method, identity)
        return client

    def initialize(self, request: Request) -> dict[str, Any]:
        """Open the legacy session and return the result of ``initialize`` (2025-11-25 `basic/lifecycle`).

        Raises:
            McpError: If the handshake is refused.
        """
        params = request.params or {}
        requested = params.get("protocolVersion")
        if not self.identity.legacy:
            # The message may be the only diagnosis that a legacy client can show, so it names the revisions
            # (`basic/versioning`).
            text = f"this server does not support the initialize handshake; it serves {', '.join(self.identity.modern)}"
            if type(requested) is not str:
                raise McpError(INVALID_PARAMS, text, {"supported": self.identity.supported})
            data = {"supported": self.identity.supported, "requested": requested}
            raise McpError(UNSUPPORTED_PROTOCOL_VERSION, text, data)
        # A second handshake is refused, because it could change the revision while requests are being served.
        if self.session is not None:
            raise McpError(INVALID_REQUEST, "this session is already initialized")
        info, capabilities = params.get("clientInfo"), params.get("capabilities")
        if type(requested) is not str or type(info) is not dict or type(capabilities) is not dict:
            raise McpError(
                INVALID_PARAMS, "initialize needs protocolVersion (a string), capabilities and clientInfo (objects)"
            )
        # An unknown revision is not an error: the server offers its newest legacy revision, and the client may
        # disconnect (2025-11-25 `basic/lifecycle`, Version Negotiation).
        revision = requested if requested in self.identity.legacy else self.identity.legacy[-1]
        self.session = ClientDeclaration(LegacyServerEra(revision), info, capabilities)
        declared = self.identity.capabilities(revision)
        self.declared = declared if self.lasting else _without_promises(declared)
        result: dict[str, Any] = {
            "protocolVersion": revision,
            "capabilities": self.declared,
            "serverInfo": self.identity.info,
        }
        if self.identity.instructions is not None:
            result["instructions"] = self.identity.instructions
        return result


def _without_promises(capabilities: dict[str, Any]) -> dict[str, Any]:
    """Return the capabilities without the promises to announce changes, which this link can't keep."""
    # The objects are copied before they are changed, because they belong to the server.
    offered: dict[str, Any] = {
        name: dict(capabilities[name]) for name in ("tools", "prompts", "resources") if name in capabilities
    }
    for capability in offered.values():
        capability.pop("listChanged", None)
        capability.pop("subscribe", None)
    return {**capabilities, **offered}
