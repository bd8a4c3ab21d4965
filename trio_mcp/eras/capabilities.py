"""Reading what a side declares: capabilities, by a dotted path such as ``resources.subscribe``, and extensions.

Extensions go beyond the protocol (2026-07-28 `basic/versioning`, Extension Negotiation).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cache
from typing import Any

from trio_mcp.types.meta import is_valid_key
from trio_mcp.types.methods import method_spec, methods_of
from trio_mcp.types.versions import REVISIONS

__all__ = ["checked_extensions", "declared_extensions", "declares", "is_spec_method", "requests_of_clients"]


def declares(capabilities: Mapping[str, Any], path: str) -> bool:
    """Whether the capability at a dotted path is declared: an object is there, or a flag is true."""
    value: Any = capabilities
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    return value is not None and value is not False


def is_spec_method(method: str) -> bool:
    """Whether the specification defines a method in any revision; otherwise it is somebody's own."""
    return any(method_spec(revision, method) is not None for revision in REVISIONS)


@cache
def requests_of_clients(revision: str) -> frozenset[str]:
    """The methods of the requests that a client may make in a revision."""
    specs = methods_of(revision).values()
    return frozenset(spec.method for spec in specs if spec.is_request and "client" in spec.senders)


def checked_extensions(given: Mapping[str, Mapping[str, Any]] | None, what: str) -> dict[str, dict[str, Any]]:
    """Check the extensions that an application declares.

    Args:
        given: The settings of each extension, by its identifier.
        what: Whose they are, for the error message.

    Returns:
        A copy.

    Raises:
        TypeError: They are no mapping of mappings.
        ValueError: An identifier is malformed.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: extensions must map identifiers to settings, got {type(given).__name__}")
    for identifier, settings in given.items():
        # As keys of `_meta`, with a mandatory prefix.
        if not isinstance(identifier, str) or not is_valid_key(identifier) or not all(identifier.partition("/")):
            raise ValueError(
                f"{what}: {str(identifier)[:100]!r} is no identifier of an extension: it must be a prefix of labels "
                "with dots between them, a slash and a name, as in 'com.example/feature'"
            )
        if not isinstance(settings, Mapping):
            raise TypeError(
                f"{what}: the settings of the extension {identifier!r} must be a mapping (empty if there are none), "
                f"got {type(settings).__name__}"
            )
    return {identifier: copy.deepcopy(dict(settings)) for identifier, settings in given.items()}


def declared_extensions(capabilities: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The extensions in what a peer has declared; what is malformed there counts as not declared."""
    given = capabilities.get("extensions")
    if not isinstance(given, dict):
        return {}
    return {identifier: settings for identifier, settings in given.items() if isinstance(settings, dict)}
