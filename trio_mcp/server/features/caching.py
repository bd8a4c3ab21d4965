"""For how long clients may keep an answer, and for whom (`server/utilities/caching`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import attrs

from trio_mcp.types.common import CacheScope
from trio_mcp.types.methods import methods_of
from trio_mcp.types.versions import MODERN_REVISIONS

__all__ = ["MAX_TTL", "CacheHint", "CacheHints", "checked_hint", "checked_hints"]

MAX_TTL = 365 * 24 * 3600.0
"""Seconds: a year. The milliseconds of it fit any JSON reader."""

CacheHints = Mapping[str, "CacheHint"]


def _check_ttl(instance: object, attribute: object, ttl: Any) -> None:
    if isinstance(ttl, bool) or not isinstance(ttl, (int, float)):
        raise TypeError(f"ttl must be a number of seconds, got {ttl!r}")
    if not 0 <= ttl <= MAX_TTL:
        raise ValueError(f"ttl must be from 0 to {MAX_TTL:.0f} seconds (a year), got {ttl!r}")


def _check_scope(instance: object, attribute: object, scope: Any) -> None:
    if scope not in get_args(CacheScope):
        raise ValueError(f"scope must be 'public' or 'private', got {scope!r}")


@attrs.frozen
class CacheHint:
    """For how long a client may keep an answer, and whether it may give it to others (modern era only).

    Attributes:
        ttl: Seconds for which the answer may be taken for fresh; 0 for not at all. It is no promise: the data may
            change before.
        scope: ``"private"``: only for the one who asked. ``"public"``: for anybody, also through shared caches, even
            where the server asks for credentials.
    """

    ttl: float = attrs.field(default=0.0, validator=_check_ttl)
    scope: CacheScope = attrs.field(default="private", validator=_check_scope)

    def to_wire(self) -> dict[str, Any]:
        """The fields of a result, ``ttlMs`` in whole milliseconds."""
        return {"ttlMs": round(self.ttl * 1000), "cacheScope": self.scope}


def checked_hint(hint: object, what: str) -> CacheHint:
    """A hint that is one.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(hint, CacheHint):
        raise TypeError(f"{what}: a cache hint must be a CacheHint(ttl=…, scope=…), got {hint!r}")
    return hint


def checked_hints(given: CacheHints | None) -> dict[str, dict[str, Any]]:
    """The fields that the result of each cacheable method gets.

    Raises:
        TypeError: A hint is none, or they are no mapping.
        ValueError: A method has no results that can be kept.
    """
    specs = methods_of(MODERN_REVISIONS[-1])
    wire = {method: CacheHint().to_wire() for method, spec in specs.items() if spec.cacheable}
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(f"cache_hints must be a mapping of methods to CacheHint, got {type(given).__name__}")
    for method, hint in (given or {}).items():
        if method not in wire:
            raise ValueError(f"cache_hints: results of {method!r} can't be kept; those of {', '.join(wire)} can")
        wire[method] = checked_hint(hint, f"cache_hints[{method!r}]").to_wire()
    return wire
