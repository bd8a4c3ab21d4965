"""`ErrorMasking`: a middleware that gives each unexpected error a number under which it appears in the log."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import attrs

from trio_mcp.errors import McpError
from trio_mcp.middleware.logging import LOGGER, described
from trio_mcp.server.context import Context
from trio_mcp.types.error_codes import INTERNAL_ERROR

__all__ = ["ErrorMasking"]


@attrs.frozen(kw_only=True)
class ErrorMasking:
    """Replaces the text of each unexpected error with a fixed text and a number, under which the error is logged.

    All exceptions are unexpected except `ToolError`, `ResourceNotFound` and `McpError`, whose texts are meant for the
    client. Errors are masked even with ``expose_errors=True``.

    Attributes:
        text: The text that clients read, followed by the number.
        logger: The logger; ``trio_mcp.middleware`` by default.
    """

    text: str = "something went wrong on the server"
    logger: logging.Logger = attrs.field(factory=lambda: logging.getLogger(LOGGER))

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        try:
            result = await call_next()
        except McpError as exc:
            if context.failure is None:
                raise
            raise McpError(exc.code, self._masked(context, context.failure)) from None
        except Exception as exc:  # an inner middleware has raised the exception, which is not logged yet
            raise McpError(INTERNAL_ERROR, self._masked(context, exc, with_traceback=True)) from None
        if context.failure is None or result.get("isError") is not True:
            return result
        return {"content": [{"type": "text", "text": self._masked(context, context.failure)}], "isError": True}

    def _masked(self, context: Context[Any], exc: Exception, with_traceback: bool = False) -> str:
        number = secrets.token_hex(4)
        # If a handler raised the exception, its traceback has already been logged.
        self.logger.error("error %s: %s: %r", number, described(context), exc, exc_info=exc if with_traceback else None)
        return f"{self.text} (error {number})"
