"""What a client declares: what it has callbacks for, its extensions, and what else it is told to declare."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from trio_mcp.eras.era import RESULT_TYPES

__all__ = ["known_result_types", "merged"]


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Several declarations as one: objects are joined, whatever else is said twice is as the later part says it."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            known = whole.get(name)
            both = isinstance(value, Mapping) and isinstance(known, Mapping)
            whole[name] = merged(known, value) if both else value  # type: ignore[arg-type]
    return whole


def known_result_types(given: Collection[str], extensions: Mapping[str, object]) -> frozenset[str]:
    """The types of results that a client knows: those of the protocol, and those of the extensions it declares.

    They are what its extensions add to the protocol (2026-07-28 `basic/index`, ResultType).

    Raises:
        TypeError: They are no collection of strings.
        ValueError: No extension is declared.
    """
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise TypeError(f"result_types must be a list of strings, got {given!r}")
    if given and not extensions:
        raise ValueError("result_types are those of extensions that the client declares: pass extensions=… too")
    return RESULT_TYPES.union(given)
