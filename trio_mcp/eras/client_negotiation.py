"""How a client reads, sans-IO, what a server says of its revisions, in either era."""

from __future__ import annotations

from typing import Any

import attrs

from trio_mcp.errors import McpError, NegotiationError
from trio_mcp.types import meta
from trio_mcp.types.error_codes import (
    HEADER_MISMATCH,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from trio_mcp.types.versions import LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = ["ServerDeclaration", "modern_choice", "read_discover_result", "read_initialize_result", "supported_by"]

_MODERN_ERRORS = frozenset({UNSUPPORTED_PROTOCOL_VERSION, MISSING_REQUIRED_CLIENT_CAPABILITY, HEADER_MISMATCH})


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
