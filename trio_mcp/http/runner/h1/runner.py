"""The runners without hypercorn, which differ in their parser alone."""

from __future__ import annotations

from typing import Any

from hypercorn.config import Config

from trio_mcp.http.runner.h1.connection import Connection
from trio_mcp.http.runner.h1.hangups import Hangups
from trio_mcp.http.runner.h1.incoming import Heads
from trio_mcp.http.runner.h1.parsers import ParseFields, httptools_parser, parse_with_h11
from trio_mcp.http.runner.settings import ServerLimits

__all__ = ["LeanRunner", "h11_runner", "httptools_runner"]


class LeanRunner:
    """HTTP/1.1 for the connections of one server, each served by one task.

    Args:
        app: The ASGI application.
        config: The configuration.
        limits: Limits on connections.
        parse: What parses the fields of a head.
    """

    def __init__(self, app: Any, config: Config, limits: ServerLimits, parse: ParseFields) -> None:
        self.protocols = ["http/1.1"]
        self.app = app
        self.config = config
        self.heads = Heads(parse, config.h11_max_incomplete_size)
        self.hangups = Hangups(limits.write_timeout)
        self.write_timeout = limits.write_timeout
        self.ending = False

    def connect(self, stream: Any) -> Connection:
        return Connection(self, stream)

    async def run(self) -> None:
        """Watch for clients that leave."""
        await self.hangups.run()

    async def end(self) -> None:
        self.ending = True


def h11_runner(app: Any, config: Config, limits: ServerLimits) -> LeanRunner:
    """Return the runner that parses with h11."""
    return LeanRunner(app, config, limits, parse_with_h11)


def httptools_runner(app: Any, config: Config, limits: ServerLimits) -> LeanRunner:
    """Return the runner that parses with httptools.

    Raises:
        RuntimeError: If httptools is not installed.
    """
    return LeanRunner(app, config, limits, httptools_parser())
