"""What the middleware here tells of a request and its outcome."""

from __future__ import annotations

from typing import Any, Final

from trio_mcp.server.context import Context
from trio_mcp.types.input_required import INPUT_REQUIRED

__all__ = ["LOGGER", "described", "outcome_of"]

LOGGER: Final = "trio_mcp.middleware"
"""The name of the logger that the middleware here writes to."""


def described(context: Context[Any]) -> str:
    """Return a request's method, what it names, and on whose behalf it is made: ``tools/call 'add' for 'alice'``."""
    named = context.params.get("name", context.params.get("uri"))
    # The client's text: cut, and with its control characters escaped, so that it can't fill logs or forge lines.
    text = context.method if type(named) is not str else f"{context.method} {named[:200]!r}"
    return text if context.principal is None else f"{text} for {context.principal.subject!r}"


def outcome_of(result: dict[str, Any]) -> str:
    """Return how a request ended that has a result."""
    if result.get("resultType") == INPUT_REQUIRED:
        return "asks for input"
    return "error" if result.get("isError") is True else "ok"
