"""`Logging`: a middleware that logs each request and how it ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs

from trio_mcp._secrets import mask_text
from trio_mcp.server.context import Context
from trio_mcp.types.common import COMPLETE, INPUT_REQUIRED

__all__ = ["LOGGER", "Logging", "described", "outcome_of"]

LOGGER: Final = "trio_mcp.middleware"
"""The name of the logger that the ready-made middleware writes to by default."""

LONGEST: Final = 200
"""How many characters of a name, a URI or an error are logged at most (arbitrary)."""

AHEAD: Final = 500
"""How many characters beyond the logged part are examined, to recognise a secret that begins in that part
(arbitrary)."""


def described(context: Context[Any]) -> str:
    """Return a request's method, the name or URI in it, and its principal: ``tools/call 'add' for 'alice'``."""
    named = context.params.get("name", context.params.get("uri"))
    # The client chooses the name, so it is cut and its control characters are escaped: it must not fill logs or forge
    # lines.
    text = context.method if type(named) is not str else f"{context.method} {_shown(named)!r}"
    return text if context.principal is None else f"{text} for {context.principal.subject!r}"


def _shown(name: str) -> str:
    # Only a URI can contain a secret. All other names, which every call has, need no masking.
    return _masked(name, LONGEST) if ":" in name else name[:LONGEST]


def _masked(text: str, length: int) -> str:
    """Return the beginning of a text, with secrets masked."""
    masked = mask_text(text[: length + AHEAD])
    # Some secrets are recognised only by the text that follows them, as a password in a URL is by the @. So if the text
    # was cut, the last AHEAD characters may contain an unmasked secret.
    sure = len(masked) if len(text) <= length + AHEAD else max(0, len(masked) - AHEAD)
    return masked[: min(length, sure)]


def outcome_of(result: dict[str, Any]) -> str:
    """Return how a request with this result ended: ok, with an error, by asking for input, or as an extension says."""
    kind = result.get("resultType", COMPLETE)
    if kind != COMPLETE:
        return "asks for input" if kind == INPUT_REQUIRED else f"becomes a {kind}"
    return "error" if result.get("isError") is True else "ok"


@attrs.frozen(kw_only=True)
class Logging:
    """Logs each request when it begins, and how it ended: ok, with an error, asking for input, or cancelled.

    Attributes:
        level: The level of the records.
        logger: The logger; ``trio_mcp.middleware`` by default.
        params: How many characters of the parameters to log as well; 0 by default, because they may contain secrets.
            Anything recognised as a secret is masked.
    """

    level: int = logging.INFO
    logger: logging.Logger = attrs.field(factory=lambda: logging.getLogger(LOGGER))
    params: int = 0

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        request = described(context)
        given = f": {_masked(repr(context.params), self.params)}" if self.params else ""
        self.logger.log(self.level, "%s begins%s", request, given)
        outcome = "cancelled"  # stays unless the call returns a result or raises an Exception
        try:
            result = await call_next()
            outcome = outcome_of(result)
            return result
        except Exception as exc:
            # The error's text may quote what the client has sent, so secrets are masked in it.
            outcome = f"error: {_masked(str(exc), LONGEST)!r}"
            raise
        finally:
            self.logger.log(self.level, "%s ended: %s", request, outcome)
