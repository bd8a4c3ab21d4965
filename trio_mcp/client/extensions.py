"""What a client's extensions add to the protocol (2026-07-28 `basic/index`, ResultType)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from trio_mcp.eras.era import RESULT_TYPES

__all__ = ["known_result_types"]


def known_result_types(given: Collection[str], extensions: Mapping[str, object]) -> frozenset[str]:
    """The types of results that a client knows: those of the protocol, and those of the extensions it declares.

    Raises:
        TypeError: They are no collection of strings.
        ValueError: No extension is declared.
    """
    if isinstance(given, str) or not all(isinstance(each, str) for each in given):
        raise TypeError(f"result_types must be a list of strings, got {given!r}")
    if given and not extensions:
        raise ValueError("result_types are those of extensions that the client declares: pass extensions=… too")
    return RESULT_TYPES.union(given)
