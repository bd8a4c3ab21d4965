"""JSON that a peer has sent: it may be malformed, and any member may be of another type than it should be."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["items_of", "member_of", "object_of", "objects_of", "parsed"]


def parsed(text: bytes) -> Any:
    """Return a JSON text as a value.

    Returns:
        The value, or None if the text is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def object_of(value: object) -> dict[str, Any]:
    """Return a JSON value if it is an object, and an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def member_of(value: Any, *path: str) -> Any:
    """Return a member of a JSON value, or of a member of it.

    Args:
        value: The value.
        path: The names of the members that lead to it, the outermost first.

    Returns:
        The member, or None where an object or a member on the way is missing.
    """
    for name in path:
        value = object_of(value).get(name)
    return value


def items_of(value: Any, *path: str) -> list[Any]:
    """Return the array that a member of a JSON value is, and an empty one if it is missing or something else."""
    found = member_of(value, *path)
    return found if isinstance(found, list) else []


def objects_of(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects in the array that a JSON value, or a member of it, is; anything else in it is left out."""
    return [each for each in items_of(value, *path) if isinstance(each, dict)]
