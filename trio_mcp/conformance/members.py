"""Gives safe access to JSON that a peer has sent, where any member may be missing or have the wrong type."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["is_refused", "items_of", "member_of", "object_of", "objects_of", "parsed"]


def parsed(text: bytes) -> Any:
    """Parse a JSON text.

    Returns:
        The value; None if the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_refused(response: Any) -> bool:
    """Return whether the response to a call is an error, or a result that says that the call failed."""
    return member_of(response, "error") is not None or member_of(response, "result", "isError") is True


def object_of(value: object) -> dict[str, Any]:
    """Return a JSON value if it is an object, and an empty object otherwise."""
    return value if isinstance(value, dict) else {}


def member_of(value: Any, *path: str) -> Any:
    """Return a member of a JSON value, at any depth.

    Args:
        value: The JSON value.
        path: The names of the members along the way, the outermost first.

    Returns:
        The member, or None where an object or a member on the way is missing.
    """
    for name in path:
        value = object_of(value).get(name)
    return value


def items_of(value: Any, *path: str) -> list[Any]:
    """Return the array at a path in a JSON value; an empty list if there is no array at the path."""
    found = member_of(value, *path)
    return found if isinstance(found, list) else []


def objects_of(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects in the array at a path (see `items_of`), leaving out all other items."""
    return [each for each in items_of(value, *path) if isinstance(each, dict)]
