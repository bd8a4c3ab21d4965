"""Defines cache hints: how long clients may cache a result, and for whom (`server/utilities/caching`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice, check_number, validator
from trio_mcp.types.common import CacheScope
from trio_mcp.types.methods import methods_of
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["MAX_TTL", "CacheHint", "CacheHints", "checked_hint", "checked_hints"]

# The limit is an arbitrary choice: a year, as is usual for max-age. In milliseconds it is less than 2**53, and so exact
# in any JSON parser.
MAX_TTL = 365 * 24 * 3600.0
"""The longest time to live, in seconds."""

CacheHints = Mapping[str, "CacheHint"]


def _check_ttl(instance: object, attribute: object, ttl: Any) -> None:
    check_number("ttl", ttl, what="a number of seconds")
    if not 0 <= ttl <= MAX_TTL:
        raise ValueError(f"ttl must be from 0 to {MAX_TTL:.0f} seconds (a year), got {ttl!r}")


@attrs.frozen
class CacheHint:
    """How long a client may cache a result, and whether caches may share the result among users (modern era only).

    Attributes:
        ttl: Seconds for which the result counts as fresh; 0 if it must not be cached. This is not a promise: the data
            may change earlier.
        scope: ``"private"``: only for the user who made the request. ``"public"``: for all users, including shared
            caches, even if the server requires credentials.
    """

    ttl: float = attrs.field(default=0.0, validator=_check_ttl)
    scope: CacheScope = attrs.field(default="private", validator=validator(check_choice, choices=get_args(CacheScope)))

    def to_wire(self) -> dict[str, Any]:
        """Return the fields to add to a result, with ``ttlMs`` in whole milliseconds."""
        # The value is rounded, because `ttlMs` is an integer (`server/utilities/caching`).
        return {"ttlMs": round(self.ttl * 1000), "cacheScope": self.scope}


def checked_hint(hint: object, what: str) -> CacheHint:
    """Check that a hint is a `CacheHint`, and return it.

    Raises:
        TypeError: If the hint is not a `CacheHint`.
    """
    if not isinstance(hint, CacheHint):
        raise TypeError(f"{what}: a cache hint must be a CacheHint(ttl=…, scope=…), got {hint!r}")
    return hint


def checked_hints(given: CacheHints | None) -> dict[str, dict[str, Any]]:
    """Return, for each cacheable method, the fields to add to its result.

    Raises:
        TypeError: If the hints are not a mapping of methods to `CacheHint`.
        ValueError: If the results of a method can't be cached.
    """
    # The modern era requires these fields in the results, so each cacheable method has them even without a hint. The
    # method table says which methods are cacheable, so a new revision needs no change in this function.
    wire = {
        method: CacheHint().to_wire() for method, spec in methods_of(MODERN_REVISIONS[-1]).items() if spec.cacheable
    }
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"cache_hints must be a mapping of methods to CacheHint, got {type(given).__name__}")
    for method, hint in (given or {}).items():
        if method not in wire:
            raise ValueError(f"cache_hints: results of {method!r} can't be cached; those of {', '.join(wire)} can")
        wire[method] = checked_hint(hint, f"cache_hints[{method!r}]").to_wire()
    return wire
