"""What peers send as text and JSON, made fit to be read and shown."""

from __future__ import annotations

import json
from typing import Any

from trio_mcp.auth.rules.steps import Fetched
from trio_mcp.errors import AuthorizationError

__all__ = ["cleaned", "json_object", "refusal"]


def cleaned(text: object) -> str | None:
    """Return a text from a peer as it is shown: shortened, on one line, without control characters; None if empty."""
    if not isinstance(text, str):
        return None
    return "".join(character if character.isprintable() else " " for character in text[:300]).strip() or None


def json_object(response: Fetched) -> dict[str, Any] | None:
    """Return the JSON object in a response, or None if its body is anything else."""
    if response.headers.media_type != "application/json" and not response.headers.media_type.endswith("+json"):
        return None
    try:
        # Numbers beyond all bounds are for the reader of the field; what nests too deeply ends as RecursionError.
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def refusal(step: str, problem: str, response: Fetched, issuer: str, advice: str = "") -> AuthorizationError:
    """Return the error for a response that refuses what was asked, with the code and the description it gives."""
    answer = json_object(response) or {}
    description = cleaned(answer.get("error_description"))
    said = f"{problem} with status {response.status}" + (f": {description}" if description else "")
    return AuthorizationError(step, said, issuer=issuer, error=cleaned(answer.get("error")), advice=advice)
