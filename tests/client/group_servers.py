"""Servers that fail, for groups that must not care."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable

import trio

from tests.client.servers import make_server
from trio_mcp import Backoff, ClientGroup, Server, StdioServerParameters
from trio_mcp._nursery import background_nursery
from trio_mcp.low_level import Link, memory_link_pair
from trio_mcp.statistics import ServerStatus

CALCULATOR = StdioServerParameters(sys.executable, ["-m", "trio_mcp.cli.demo_server"], stderr="discard")
AT_ONCE = Backoff(first=0.01, longest=0.02, attempts=None)
NEVER = Backoff(attempts=0)


class Oops(Exception):
    pass


class Flaky:
    """A server in memory whose connection can be cut, and that can refuse to be connected to."""

    def __init__(self, server: Server | None = None, refusal: Exception | None = None) -> None:
        self.server = server or make_server()
        self.refusal = refusal
        self.attempts: list[float] = []
        self.cut: Callable[[], object] = lambda: None

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        self.attempts.append(trio.current_time())
        if self.refusal is not None:
            raise self.refusal
        async with memory_link_pair() as (ours, theirs), background_nursery() as nursery:
            await nursery.start(self.server.serve, theirs)
            self.cut = lambda: (theirs.read.close(), theirs.write.close())  # type: ignore[attr-defined]
            yield ours


class Statuses:
    """The ``on_status`` of a group: which states its servers were in, and the last status of each."""

    def __init__(self) -> None:
        self.last: dict[str, ServerStatus] = {}
        self.heard: list[tuple[str, str]] = []
        self._news = trio.lowlevel.ParkingLot()

    def __call__(self, server: str, status: ServerStatus) -> None:
        self.last[server] = status
        self.heard.append((server, status.state))
        self._news.unpark_all()

    async def until(self, server: str, state: str) -> ServerStatus:
        """Wait until a server is in a state."""
        while server not in self.last or self.last[server].state != state:
            await self._news.park()
        return self.last[server]


async def add(group: ClientGroup, server: str) -> int:
    value: int = (await group.call_tool(f"{server}__add", {"a": 1, "b": 2})).data
    return value
