"""Ways to a server in memory, which a test can break."""

from __future__ import annotations

from typing import Any

from trio_mcp import Server, TransportError
from trio_mcp.client.targets import link_factory
from trio_mcp.testing import FaultLinks

__all__ = ["Fault", "Way"]


class Fault(TransportError):
    """A failure that a test has made."""


class Way(FaultLinks):
    """A target: each connection is a new one to the same server.

    Attributes:
        server: What new connections lead to.
        passed: The messages that the client has sent, over all connections.
    """

    def __init__(self, server: Server, name: str) -> None:
        super().__init__(lambda: link_factory(self.server)(), on_sent=lambda item: self.passed.append(item.message))
        self.server, self.name = server, name
        self.passed: list[Any] = []

    @property
    def opened(self) -> int:
        """How often it was connected."""
        return self.statistics().connections

    @property
    def open(self) -> int:
        """How many connections are open."""
        return self.statistics().live

    def down(self) -> None:
        """Refuse new connections, and break the open one."""
        self.refuse(Fault(f"{self.name} is down"))
        self.cut()

    def cut(self) -> None:
        """Break the open connection; new ones are let in."""
        self.reset(Fault(f"{self.name} is cut"))
