"""Reading capabilities: a dotted path such as ``resources.subscribe`` into what a side has declared."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from trio_mcp.types.methods import method_spec, methods_of
from trio_mcp.types.versions import REVISIONS

__all__ = ["declares", "is_spec_method", "requests_of_clients"]


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
