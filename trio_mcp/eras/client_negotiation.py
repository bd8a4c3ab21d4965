"""How a client reads, sans-IO, what a server says of its revisions, in either era."""

from __future__ import annotations

from typing import Any

import attrs

from trio_mcp.eras.rules import Rules, rules_of
from trio_mcp.errors import McpError, NegotiationError, RemoteProtocolError
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = [
    "RESULT_TYPES",
    "ModernClientEra",
    "ServerDeclaration",
    "modern_choice",
    "read_discover_result",
    "read_initialize_result",
    "supported_by",
]

_MODERN_ERRORS = frozenset({UNSUPPORTED_PROTOCOL_VERSION, MISSING_REQUIRED_CLIENT_CAPABILITY, HEADER_MISMATCH})


RESULT_TYPES = frozenset({"complete", "input_required"})
"""The result types of the core protocol; extensions may add their own."""


@attrs.frozen
class ModernClientEra:
    """Stamps every request with what a stateless server needs to know.

    Attributes:
        revision: The revision named in every request.
        client_info: The client's `Implementation`, as plain data.
        capabilities: The client's `ClientCapabilities`, as plain data.
        log_level: The lowest level of log messages wanted; None for none at all.
        result_types: The values of ``resultType`` that are understood.
    """

    revision: str
    client_info: dict[str, Any]
    capabilities: dict[str, Any]
    log_level: str | None = None
    result_types: frozenset[str] = RESULT_TYPES

    _stamp: dict[str, Any] = attrs.field(init=False, repr=False, eq=False)

    @_stamp.default
    def _make_stamp(self) -> dict[str, Any]:
        stamp: dict[str, Any] = {
            meta.PROTOCOL_VERSION: self.revision,
            meta.CLIENT_INFO: self.client_info,
            meta.CLIENT_CAPABILITIES: self.capabilities,
        }
        return stamp if self.log_level is None else {**stamp, meta.LOG_LEVEL: self.log_level}

    rules: Rules = attrs.field(init=False, repr=False, eq=False)

    @rules.default
    def _rules(self) -> Rules:
        return rules_of(self.revision)

    def request_params(self, params: dict[str, Any] | None) -> dict[str, Any]:
        """The parameters as they go out; the argument is not changed."""
        if not params:
            return {"_meta": self._stamp}
        given = params.get("_meta")
        return {**params, "_meta": {**self._stamp, **given} if given else self._stamp}

    def read_result(self, result: dict[str, Any]) -> dict[str, Any]:
        """The result as it came in.

        Raises:
            RemoteProtocolError: The ``resultType`` is one that this client does not know.
        """
        # An absent type means "complete"; an unknown one makes the result invalid (`basic/index`, ResultType).
        kind = result.get("resultType", "complete")
        if not isinstance(kind, str) or kind not in self.result_types:
            shown = kind[:100] if isinstance(kind, str) else type(kind).__name__
            raise RemoteProtocolError(f"the server answered with the unknown resultType {shown!r}")
        return result


@attrs.frozen
class ServerDeclaration:
    """What a server has said of itself, as plain JSON data.

    Attributes:
        revision: The revision that is spoken from now on.
        info: Its `Implementation`; None if it did not say.
        capabilities: Its `ServerCapabilities`.
        instructions: Guidance for the model, or None.
    """

    revision: str
    info: dict[str, Any] | None
    capabilities: dict[str, Any]
    instructions: str | None


def read_initialize_result(result: dict[str, Any]) -> ServerDeclaration:
    """Read the answer to ``initialize``.

    Raises:
        NegotiationError: The server chose a revision that this client does not speak, or the answer is malformed.
    """
    revision, info = result.get("protocolVersion"), result.get("serverInfo")
    capabilities = result.get("capabilities")
    if not isinstance(revision, str) or not isinstance(info, dict) or not isinstance(capabilities, dict):
        raise NegotiationError("the server's answer to initialize lacks protocolVersion, serverInfo or capabilities")
    if revision not in LEGACY_REVISIONS:
        known = ", ".join(LEGACY_REVISIONS)
        raise NegotiationError(
            f"the server speaks {revision[:100]!r}, which this client does not; it speaks {known}", (revision,)
        )
    return ServerDeclaration(revision, info, capabilities, _text(result.get("instructions")))


def read_discover_result(result: dict[str, Any]) -> tuple[list[str], ServerDeclaration] | None:
    """Read the answer to ``server/discover``.

    Returns:
        The revisions that the server serves and its declaration (with the revision yet to be chosen);
        None if it is no such answer: then it is no evidence of a modern server.
    """
    supported, capabilities = result.get("supportedVersions"), result.get("capabilities")
    if not isinstance(supported, list) or not isinstance(capabilities, dict):
        return None
    given = result.get("_meta")
    info = given.get(meta.SERVER_INFO) if isinstance(given, dict) else None
    declaration = ServerDeclaration(
        "", info if isinstance(info, dict) else None, capabilities, _text(result.get("instructions"))
    )
    return [revision for revision in supported if isinstance(revision, str)], declaration


def modern_choice(supported: list[str]) -> str | None:
    """The newest modern revision that both sides speak, or None."""
    return next((revision for revision in reversed(MODERN_REVISIONS) if revision in supported), None)


def supported_by(error: McpError) -> list[str] | None:
    """The revisions that a modern error names, or None where the error is no evidence of a modern server.

    A recognised modern error means: do not fall back to ``initialize`` (`basic/transports/stdio`, section Backward
    Compatibility). Only UnsupportedProtocolVersion names versions; otherwise the list is empty.
    """
    if error.code not in _MODERN_ERRORS:
        return None
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return [revision for revision in supported if isinstance(revision, str)] if isinstance(supported, list) else []


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
