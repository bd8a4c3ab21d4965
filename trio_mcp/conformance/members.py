"""JSON that a peer has sent: it may be malformed, and any member may be of another type than it should be."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["member_of", "object_of", "parsed"]


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


def member_of(value: object, *path: str) -> object:
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
