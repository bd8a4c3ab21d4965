"""Declares logging, and serves ``logging/setLevel`` (`server/utilities/logging`); `Context.log` sends the messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trio_mcp.errors import McpError
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import Needs
from trio_mcp.server.log_messages import severity_of
from trio_mcp.types.error_codes import INVALID_PARAMS

__all__ = ["LoggingFeature"]


class LoggingFeature:
    """The logging capability, and the log level of a legacy-era session.

    In the modern era each request states the level it wants in its ``_meta``.
    """

    def __init__(self) -> None:
        self.methods = {"logging/setLevel": self.set_level}
        self.needs: Mapping[str, Needs] = {}

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        return {"logging": {}}  # declared in any case, because every handler may log

    async def set_level(self, context: ServedContext[Any]) -> dict[str, Any]:
        """Handle ``logging/setLevel``.

        Raises:
            McpError: If the level is unknown (-32602).
        """
        # `Context.log` uses the same check, but there the exceptions are meant for the author of the handler.
        level = context.params.get("level")
        try:
            severity_of(level)
        except (TypeError, ValueError) as exc:
            raise McpError(INVALID_PARAMS, f"invalid level: {exc}") from None
        assert context.client is not None
        context.client.log_level = level  # lasts for the session: only the legacy era has this method
        return {}
