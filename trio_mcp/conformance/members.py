"""Members of JSON values that a peer has sent, any of which may be of another type than it should be."""

from __future__ import annotations

from typing import Any

__all__ = ["member_of", "object_of"]


def object_of(value: object) -> dict[str, Any]:
    """Return a JSON value if it is an object, and an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def member_of(value: object, *path: str) -> object:
    """Return the member at a path of names, or None where an object or a member on the way is missing."""
    for name in path:
        value = object_of(value).get(name)
    return value
