"""Reads what a server declares to a client about itself and its revisions, in both eras. Sans-I/O."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from trio_mcp import _attrs as attrs
from trio_mcp.eras.rules import Rules, rules_of_owner
from trio_mcp.errors import McpError, NegotiationError, RemoteProtocolError
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = [
    "NO_ADDITIONS",
    "RESULT_TYPES",
    "Additions",
    "ModernClientEra",
    "ServerDeclaration",
    "modern_choice",
    "read_discover_result",
    "read_initialize_result",
    "supported_by",
]

# The error codes that only modern servers use: any of them proves that the server is modern.
_MODERN_ERRORS = frozenset({UNSUPPORTED_PROTOCOL_VERSION, MISSING_REQUIRED_CLIENT_CAPABILITY, HEADER_MISMATCH})


RESULT_TYPES = frozenset({"complete", "input_required"})
"""The result types of the core protocol (2026-07-28 `basic/index`, ResultType); extensions may add their own."""


class Additions(NamedTuple):
    """The names that a client's extensions add to a revision of the modern era.

    Attributes:
        methods: The methods of requests.
        result_types: The values of ``resultType``, each with the methods that may return it.
    """

    methods: frozenset[str]
    result_types: Mapping[str, frozenset[str]]


NO_ADDITIONS: Final = Additions(frozenset(), MappingProxyType({}))


@attrs.frozen
class ModernClientEra:
    """Applies the modern era's rules for a client: every request declares the client, every result has a known type.

    Attributes:
        revision: The revision named in every request.
        client_info: The client's `Implementation`, as plain data.
        capabilities: The client's `ClientCapabilities`, as plain data.
        log_level: The lowest level of log messages to ask for; None to ask for none.
        result_types: The values of ``resultType`` that the client understands in the result of any method.
        added_types: Those that it understands only in the results of the given methods.
        rules: The rules of the revision.
    """

    revision: str
    client_info: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str | None = None
    result_types: frozenset[str] = RESULT_TYPES
    added_types: Mapping[str, frozenset[str]] = NO_ADDITIONS.result_types

    _stamp: dict[str, Any] = attrs.field(init=False, repr=False, eq=False)

    @_stamp.default
    def _make_stamp(self) -> dict[str, Any]:
        # All requests carry this one object, so nothing may change it.
        stamp: dict[str, Any] = {
            meta.PROTOCOL_VERSION: self.revision,
            meta.CLIENT_INFO: self.client_info,
            meta.CLIENT_CAPABILITIES: self.capabilities,
        }
        return stamp if self.log_level is None else {**stamp, meta.LOG_LEVEL: self.log_level}

    rules: Rules = attrs.field(init=False, repr=False, eq=False, default=attrs.Factory(rules_of_owner, takes_self=True))

    def request_params(self, params: dict[str, Any] | None) -> dict[str, Any]:
        """Return the parameters with the client's declaration in ``_meta``; the argument is not changed."""
        if not params:
            return {"_meta": self._stamp}
        # The caller's own keys take precedence: a call may set its own log level.
        given = params.get("_meta")
        return {**params, "_meta": {**self._stamp, **given} if given else self._stamp}

    def read_result(self, result: dict[str, Any], method: str) -> dict[str, Any]:
        """Check the type of the result of a method, and return the result unchanged.

        Raises:
            RemoteProtocolError: If this client does not support the ``resultType``.
        """
        # An absent type means "complete"; an unknown type makes the result invalid (`basic/index`, ResultType).
        kind = result.get("resultType", "complete")
        if not isinstance(kind, str) or kind not in self.result_types:
            if isinstance(kind, str) and kind in self.added_types:
                if method in self.added_types[kind]:
                    return result
                raise RemoteProtocolError(f"a result of {method!r} must not have the resultType {kind!r}")
            shown = kind[:100] if isinstance(kind, str) else type(kind).__name__
            raise RemoteProtocolError(f"the server's result has the unknown resultType {shown!r}")
        return result


@attrs.frozen
class ServerDeclaration:
    """A server's declaration about itself, as plain JSON data.

    Attributes:
        revision: The revision that the session speaks.
        info: The server's `Implementation`; None if it sent none.
        capabilities: The server's `ServerCapabilities`.
        instructions: The server's guidance for the model, or None.
    """

    revision: str
    info: dict[str, Any] | None
    capabilities: dict[str, Any]
    instructions: str | None


def read_initialize_result(result: dict[str, Any]) -> ServerDeclaration:
    """Read the result of ``initialize``.

    Raises:
        NegotiationError: If the server chose a revision that this client does not support, or the result is malformed.
    """
    revision, info = result.get("protocolVersion"), result.get("serverInfo")
    capabilities = result.get("capabilities")
    if not isinstance(revision, str) or not isinstance(info, dict) or not isinstance(capabilities, dict):
        raise NegotiationError("the server's result for initialize lacks protocolVersion, serverInfo or capabilities")
    # A modern revision is refused, too: the modern era has no handshake, so a server can't choose a modern revision in
    # a handshake.
    if revision not in LEGACY_REVISIONS:
        raise NegotiationError(
            f"the server speaks revision {revision[:100]!r}, which this client does not support; "
            f"the client speaks {', '.join(LEGACY_REVISIONS)}",
            (revision,),
        )
    return ServerDeclaration(revision, info, capabilities, _text(result.get("instructions")))


def read_discover_result(result: dict[str, Any]) -> tuple[list[str], ServerDeclaration] | None:
    """Read the result of ``server/discover``.

    Returns:
        The revisions that the server serves, and its declaration; the declaration's revision is empty, because the
        caller has yet to choose one. None if the result is malformed, and so does not prove that the server is modern.
    """
    supported, capabilities = result.get("supportedVersions"), result.get("capabilities")
    if not isinstance(supported, list) or not isinstance(capabilities, dict):
        return None
    given = result.get("_meta")
    # Malformed server info does not disqualify the server, because the info is only displayed.
    info = given.get(meta.SERVER_INFO) if isinstance(given, dict) else None
    declaration = ServerDeclaration(
        "", info if isinstance(info, dict) else None, capabilities, _text(result.get("instructions"))
    )
    return [revision for revision in supported if isinstance(revision, str)], declaration


def modern_choice(supported: list[str]) -> str | None:
    """Return the newest modern revision that both sides speak, or None."""
    # Our order decides, not the server's: the specification doesn't say that the server's list is sorted.
    return next((revision for revision in reversed(MODERN_REVISIONS) if revision in supported), None)


def supported_by(error: McpError) -> list[str] | None:
    """Return the revisions that a modern error lists; None if the error does not prove that the server is modern."""
    # After a modern error a client must not fall back to `initialize` (`basic/transports/stdio`, Backward
    # Compatibility). Only UnsupportedProtocolVersion lists revisions; for other modern errors the list is empty. A
    # legacy server responds with -32601, or with some other error for an unknown method.
    if error.code not in _MODERN_ERRORS:
        return None
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return [revision for revision in supported if isinstance(revision, str)] if isinstance(supported, list) else []


def _text(value: object) -> str | None:
    # Instructions are advice for the model, so malformed ones count as missing.
    return value if isinstance(value, str) else None
