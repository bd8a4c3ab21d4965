"""Functions that look up what a peer declares: capabilities, by dotted path (``resources.subscribe``), and extensions.

An extension adds features to the protocol (2026-07-28 `basic/versioning`, Extension Negotiation).
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


def declares(capabilities: object, path: str) -> bool:
    """Return whether a capability is declared, by an object at its dotted path or by a flag that is true."""
    value: Any = capabilities
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return False
        value = value[name]
    # An empty object also declares a capability, so a test for truth is not enough.
    return value is not None and value is not False


def is_spec_method(method: str) -> bool:
    """Return whether any revision of the specification defines a method; otherwise it is an application's own."""
    return any(method_spec(revision, method) is not None for revision in REVISIONS)


@cache
def requests_of_clients(revision: str) -> frozenset[str]:
    """Return the methods of the requests that a client may send in a revision."""
    # The result is cached, because every request that a server receives is checked against this set.
    return frozenset(
        method for method, spec in methods_of(revision).items() if spec.is_request and "client" in spec.senders
    )


def checked_extensions(given: Mapping[str, Mapping[str, Any]] | None, what: str) -> dict[str, dict[str, Any]]:
    """Check the extensions that an application declares.

    Args:
        given: The settings of each extension, by identifier.
        what: The side that declares them, for the error message.

    Returns:
        A deep copy of the extensions.

    Raises:
        TypeError: If the extensions are not a mapping of mappings.
        ValueError: If an identifier is malformed.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: extensions must map identifiers to settings, got {type(given).__name__}")
    for identifier, settings in given.items():
        # Identifiers have the form of `_meta` keys, but with a mandatory prefix and a name that is not empty.
        if not isinstance(identifier, str) or not is_valid_key(identifier) or not all(identifier.partition("/")):
            raise ValueError(
                f"{what}: {str(identifier)[:100]!r} is not a valid extension identifier: it must be a prefix of "
                "labels separated by dots, then a slash and a name, as in 'com.example/feature'"
            )
        if not isinstance(settings, Mapping):
            raise TypeError(
                f"{what}: the settings of the extension {identifier!r} must be a mapping (empty if there are none), "
                f"got {type(settings).__name__}"
            )
    # The settings are copied, so that later changes by the application do not alter what sessions declare.
    return {identifier: copy.deepcopy(dict(settings)) for identifier, settings in given.items()}


def declared_extensions(capabilities: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the extensions that a peer has declared, leaving out malformed ones."""
    # A malformed extension is left out rather than refused: a peer's mistake in one extension must not end the session.
    given = capabilities.get("extensions")
    if not isinstance(given, dict):
        return {}
    return {identifier: settings for identifier, settings in given.items() if isinstance(settings, dict)}
