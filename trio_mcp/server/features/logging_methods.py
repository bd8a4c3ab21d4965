"""The part of `Server` that lets clients choose their log messages (`server/utilities/logging`)."""

from __future__ import annotations

from typing import Any

from trio_mcp.errors import McpError
from trio_mcp.server.connection import Handler
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.features.logging import severity_of
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["LoggingMethods"]


class LoggingMethods(ServerCore):
    """Declaring the capability, and the level of a session."""

    def _capabilities(self, revision: str) -> dict[str, Any]:
        # Any handler may log, so it is declared always.
        return {**super()._capabilities(revision), "logging": {}}

    def _handlers(self) -> dict[str, Handler]:
        return {**super()._handlers(), "logging/setLevel": _set_level}


async def _set_level(server: ServerCore, context: Context[Any]) -> dict[str, Any]:
    level = context.params.get("level")
    try:
        severity_of(level)
    except ValueError as exc:
        raise McpError(INVALID_PARAMS, f"invalid level: {exc}") from None
    context._client.log_level = level  # of the session: only the legacy era has this method
    return {}
