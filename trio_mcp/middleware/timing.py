"""`Timing`: a middleware that logs how long requests take."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio

from trio_mcp._checks import check_seconds, validator
from trio_mcp.middleware.logging import LOGGER, described
from trio_mcp.server.context import Context

__all__ = ["Timing"]


@attrs.frozen(kw_only=True)
class Timing:
    """Logs how long each request took, whether it succeeded, failed or was cancelled.

    Attributes:
        slow: A request that took at least this many seconds is logged as a warning.
        level: The level of all other records.
        logger: The logger; ``trio_mcp.middleware`` by default.
    """

    slow: float = attrs.field(default=10.0, validator=validator(check_seconds, zero=True))
    level: int = logging.INFO
    logger: logging.Logger = attrs.field(factory=lambda: logging.getLogger(LOGGER))

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        started = trio.current_time()
        try:
            return await call_next()
        finally:
            seconds = trio.current_time() - started
            level = logging.WARNING if seconds >= self.slow else self.level
            self.logger.log(level, "%s took %.1f ms", described(context), seconds * 1000)
