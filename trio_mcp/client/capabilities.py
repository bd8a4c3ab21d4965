"""What a client declares: put together from the callbacks it has and from what it is told to declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["merged"]


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Several declarations as one: objects are joined, whatever else is said twice is as the later part says it."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            known = whole.get(name)
            both = isinstance(value, Mapping) and isinstance(known, Mapping)
            whole[name] = merged(known, value) if both else value  # type: ignore[arg-type]
    return whole
