"""How a server learns, sans-IO, which revision a request speaks and what its client can do.

One server serves both eras on one link: a request with modern ``_meta`` is served statelessly, ``initialize`` opens
the legacy session (`basic/versioning`, section Backward Compatibility with Initialization-Based Versions).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias, get_args

import attrs

from trio_mcp.eras.capabilities import is_spec_method, requests_of_clients
from trio_mcp.eras.rules import Rules, rules_of
from trio_mcp.errors import McpError
from trio_mcp.jsonrpc.messages import Request
from trio_mcp.types import meta
from trio_mcp.types.error_codes import INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION
from trio_mcp.types.notices import LoggingLevel
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
"""The levels of log messages, the least severe first (RFC 5424, section 6.2.1)."""


@attrs.frozen
class LegacyServerEra:
    """Adds nothing to a result: the handshake has said it all.

    Attributes:
        revision: The revision that the handshake has settled.
        rules: What differs by revision, of that one.
    """

    revision: str

    rules: Rules = attrs.field(init=False, repr=False, eq=False)

    @rules.default
    def _rules(self) -> Rules:
        return rules_of(self.revision)

    def finish_result(self, result: dict[str, Any]) -> dict[str, Any]:
        return result


@attrs.frozen
class ModernServerEra:
    """Says of every result what type it is and who made it.

    Attributes:
        revision: The revision that the request named.
        server_info: The server's `Implementation`, as plain data.
    """

    revision: str
    server_info: dict[str, Any]

    rules: Rules = attrs.field(init=False, repr=False, eq=False)

    @rules.default
    def _rules(self) -> Rules:
        return rules_of(self.revision)

    def finish_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result as it goes out; the argument is not changed."""
        given = result.get("_meta")
        stamp = {meta.SERVER_INFO: self.server_info}
        finished = {"resultType": "complete", **result}
        finished["_meta"] = {**stamp, **given} if given else stamp
        return finished


ServerEra: TypeAlias = LegacyServerEra | ModernServerEra
"""How a server's results go out."""


@attrs.define
class ClientDeclaration:
    """What the client of one request has declared: once in the handshake, or in the request itself.

    Attributes:
        era: The rules that the answer follows.
        client_info: The client's `Implementation` as plain data; None if it did not say.
        capabilities: The client's `ClientCapabilities` as plain data.
        log_level: The lowest level of log messages that this request wants (modern era; None for none), or that the
            session wants (legacy era; None if the client has not said).
        revision: The revision that is spoken.
        rules: What differs by revision, of that one.
    """

    era: ServerEra
    client_info: dict[str, Any] | None
    capabilities: dict[str, Any]
    log_level: str | None = None
    revision: str = attrs.field(init=False, default=attrs.Factory(attrgetter("era.revision"), takes_self=True))
    rules: Rules = attrs.field(init=False, default=attrs.Factory(attrgetter("era.rules"), takes_self=True))


@attrs.frozen
class ServerIdentity:
    """What a server says of itself, as plain JSON data.

    Attributes:
        info: Its `Implementation`.
        capabilities: Gives its `ServerCapabilities` for a revision.
        instructions: Guidance for the model, or None.
        revisions: The revisions it serves.
        discover_hints: The caching hints of ``server/discover`` (``ttlMs``, ``cacheScope``).
        legacy: Those of the revisions that are of the legacy era.
        modern: How results go out, for those that are of the modern era.
        supported: All of them, the newest first, as errors name them.

    Raises:
        ValueError: It serves no revision that this library speaks.
    """

    info: dict[str, Any]
    capabilities: Callable[[str], dict[str, Any]]
    instructions: str | None = None
    revisions: tuple[str, ...] = REVISIONS
    discover_hints: dict[str, Any] = attrs.Factory(lambda: {"ttlMs": 0, "cacheScope": "private"})

    # What follows from the revisions, once for all links.
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
            raise ValueError(f"revisions must name one of {', '.join(REVISIONS)}, got {self.revisions!r}")

    def modern_client(self, given: dict[str, Any]) -> ClientDeclaration:
        """Read what the ``_meta`` of a modern request declares: its revision, and who the client is.

        Raises:
            McpError: A field is missing or malformed, or the revision is not served.
        """
        revision = given.get(meta.PROTOCOL_VERSION)
        if type(revision) is not str:
            raise McpError(INVALID_PARAMS, f"params._meta[{meta.PROTOCOL_VERSION!r}] must be a string")
        era = self.modern.get(revision)
        if era is None:
            data = {"supported": self.supported, "requested": revision}
            raise McpError(UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", data)
        capabilities = given.get(meta.CLIENT_CAPABILITIES)
        if type(capabilities) is not dict:
            # `basic/index`, Per-request protocol fields: a request that lacks a required field is malformed.
            raise McpError(
                INVALID_PARAMS, f"params._meta[{meta.CLIENT_CAPABILITIES!r}] is required and must be an object"
            )
        info = given.get(meta.CLIENT_INFO)
        if info is not None and type(info) is not dict:
            raise McpError(INVALID_PARAMS, f"params._meta[{meta.CLIENT_INFO!r}] must be an object")
        level = given.get(meta.LOG_LEVEL)
        if level is not None and level not in LOG_LEVELS:
            # `server/utilities/logging`, Error Handling
            text = f"params._meta[{meta.LOG_LEVEL!r}] must be one of {', '.join(LOG_LEVELS)}"
            raise McpError(INVALID_PARAMS, text)
        return ClientDeclaration(era, info, capabilities, level)

    def discover(self, client: ClientDeclaration) -> dict[str, Any]:
        """Answer ``server/discover`` (2026-07-28 `server/discover`) for a client of the modern era."""
        result: dict[str, Any] = {
            "supportedVersions": [*self.supported],
            "capabilities": self.capabilities(client.revision),
            **self.discover_hints,
        }
        if self.instructions is not None:
            result["instructions"] = self.instructions
        return client.era.finish_result(result)


def check_method(client: ClientDeclaration, method: str) -> None:
    """Refuse a method of the specification that is not for clients to call, or not in their revision.

    Methods that the specification does not know are for the server to judge.

    Raises:
        McpError: -32601.
    """
    if method not in requests_of_clients(client.revision) and is_spec_method(method):
        text = f"{method!r} is not a method of revision {client.revision} that a client may call"
        raise McpError(METHOD_NOT_FOUND, text)


class ServerNegotiation:
    """The state of one link's negotiation.

    Attributes:
        identity: What the server says of itself.
        session: What the handshake declared; None while there was none.
        declared: The capabilities that the handshake told the client of; those that came later it knows nothing of.
        initialized: The client has confirmed the handshake with ``notifications/initialized``.
        lasting: After the answer to a request the client can still be told things.
    """

    def __init__(self, identity: ServerIdentity) -> None:
        self.identity = identity
        self.session: ClientDeclaration | None = None
        self.initialized = False
        self.lasting = True
        self.declared: dict[str, Any] = {}

    def declaration(self, request: Request) -> ClientDeclaration:
        """Judge under which rules a request is served, and whether they have its method.

        Raises:
            McpError: It can't be served; the error is its answer.
        """
        identity, method = self.identity, request.method
        given = request.params.get("_meta") if request.params else None
        # A server without a modern revision does as legacy servers do, which know no such key: a modern error would
        # keep the client from falling back to initialize (2026-07-28 `transports/stdio`, Backward Compatibility).
        if identity.modern and type(given) is dict and meta.PROTOCOL_VERSION in given:
            client = identity.modern_client(given)
        elif method == "server/discover" and not identity.modern:
            raise McpError(METHOD_NOT_FOUND, "unknown method 'server/discover'")
        elif self.session is not None:
            client = self.session
        elif identity.modern:
            raise McpError(
                INVALID_PARAMS,
                f"params._meta lacks {meta.PROTOCOL_VERSION!r}, and no initialize came before {method[:100]!r}",
                {"supported": identity.supported},
            )
        else:
            raise McpError(INVALID_REQUEST, f"{method[:100]!r} came before the initialize request")
        if method not in requests_of_clients(client.revision):
            check_method(client, method)
        return client

    def initialize(self, request: Request) -> dict[str, Any]:
        """Answer the handshake and open the legacy session (`basic/lifecycle`, 2025-11-25).

        Raises:
            McpError: The handshake is refused.
        """
        params = request.params or {}
        requested = params.get("protocolVersion")
        if not self.identity.legacy:
            # Naming the versions served may be the only diagnosis that a legacy client can show (`basic/versioning`).
            text = f"this server has no initialize handshake; it serves {', '.join(self.identity.modern)}"
            if type(requested) is not str:
                raise McpError(INVALID_PARAMS, text, {"supported": self.identity.supported})
            data = {"supported": self.identity.supported, "requested": requested}
            raise McpError(UNSUPPORTED_PROTOCOL_VERSION, text, data)
        if self.session is not None:
            raise McpError(INVALID_REQUEST, "this session is initialized already")
        info, capabilities = params.get("clientInfo"), params.get("capabilities")
        if type(requested) is not str or type(info) is not dict or type(capabilities) is not dict:
            raise McpError(
                INVALID_PARAMS, "initialize needs protocolVersion (a string), capabilities and clientInfo (objects)"
            )
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
    """The capabilities without those to tell of a change, which could never be told."""
    offered: dict[str, Any] = {
        name: dict(capabilities[name]) for name in ("tools", "prompts", "resources") if name in capabilities
    }
    for capability in offered.values():
        capability.pop("listChanged", None)
        capability.pop("subscribe", None)
    return {**capabilities, **offered}
