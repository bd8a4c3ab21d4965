"""`Logging`: a middleware that logs each request and how it ended."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from trio_mcp.middleware.requests import LOGGER, described, outcome_of
from trio_mcp.server.context import Context

__all__ = ["Logging"]


@attrs.frozen(kw_only=True)
class Logging:
    """Logs each request when it begins, and how it ended: ok, with an error, asking for input, or cancelled.

    Attributes:
        level: The level of the records.
        logger: The logger; ``trio_mcp.middleware`` by default.
        params: How many characters of the parameters to log as well. They may hold secrets, so none by default.
    """

    level: int = logging.INFO
    logger: logging.Logger = attrs.field(factory=lambda: logging.getLogger(LOGGER))
    params: int = 0

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        request = described(context)
        given = f": {repr(context.params)[: self.params]}" if self.params else ""
        self.logger.log(self.level, "%s begins%s", request, given)
        outcome = "cancelled"  # what else it may end with is an Exception
        try:
            result = await call_next()
            outcome = outcome_of(result)
            return result
        except Exception as exc:
            outcome = f"error: {str(exc)[:200]!r}"
            raise
        finally:
            self.logger.log(self.level, "%s ended: %s", request, outcome)
