"""Text and JSON from peers, made safe to read and to show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.http.headers import Headers

__all__ = ["cleaned", "clock_ahead", "json_object", "strings"]


def cleaned(text: object) -> str | None:
    """Return a peer's text in a form that is safe to show: short, on one line, without control characters.

    Returns:
        The text; None if ``text`` is not a string, or nothing is left of it.
    """
    if not isinstance(text, str):
        return None
    # The text is shown in terminals and logs, where control characters would move the cursor or begin a new line.
    return "".join(character if character.isprintable() else " " for character in text[:300]).strip() or None


def clock_ahead(headers: Headers, now: float) -> float:
    """Return how many seconds our clock is ahead of a response's ``Date``; 0 if the response has no valid date."""
    try:
        return now - parsedate_to_datetime(headers.get("Date") or "").timestamp()
    except (ValueError, TypeError, OverflowError):
        return 0.0


def json_object(response: Fetched) -> dict[str, Any] | None:
    """Return the JSON object in a response, or None if its body is anything else.

    The media type must be that of JSON, too: many servers respond to every URL with an HTML page.
    """
    if response.headers.media_type != "application/json" and not response.headers.media_type.endswith("+json"):
        return None
    try:
        # The members' values are not validated yet, because the code that reads a member checks its value. JSON that is
        # nested too deeply raises RecursionError.
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def strings(document: Mapping[str, Any], field: str) -> tuple[str, ...] | None:
    """Return the strings in a list field, ignoring its other elements; None if the field is not a list.

    A malformed value counts as missing, so use this for optional fields only.
    """
    values = document.get(field)
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else None
