"""The runners without hypercorn, which differ in their parser alone."""

from __future__ import annotations

from typing import Any

from trio_mcp.http.runner.h1.connection import AcceptedConnection, Shared
from trio_mcp.http.runner.h1.parsers import httptools_parser, parse_with_h11
from trio_mcp.http.runner.settings import ServerLimits, ServerSettings

__all__ = ["LeanRunner", "h11_runner", "httptools_runner"]


class LeanRunner(Shared):
    """HTTP/1.1 for the connections of one server, each served by one task."""

    def connect(self, stream: Any) -> AcceptedConnection:
        return AcceptedConnection(self, stream)

    async def run(self) -> None:
        """Watch for clients that leave."""
        await self.hangups.run()

    async def end(self) -> None:
        self.ending = True


def h11_runner(app: Any, settings: ServerSettings, limits: ServerLimits) -> LeanRunner:
    """Return the runner that parses with h11."""
    return LeanRunner(app, settings, limits, parse_with_h11)


def httptools_runner(app: Any, settings: ServerSettings, limits: ServerLimits) -> LeanRunner:
    """Return the runner that parses with httptools.

    Raises:
        RuntimeError: If httptools is not installed.
    """
    return LeanRunner(app, settings, limits, httptools_parser())
