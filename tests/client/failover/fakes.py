"""Ways to a server in memory, with faults by script."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import trio

from trio_mcp import Link, Server, SessionMessage, TransportError, memory_link_pair
from trio_mcp._nursery import background_nursery, start
from trio_mcp.jsonrpc.messages import Failure

__all__ = ["Fault", "Way"]


class Fault(TransportError):
    """A failure that a test has made."""


class Way:
    """A target: each connection is a new one to the same server.

    Attributes:
        up: Whether it can be connected.
        opened: How often it was connected.
        open: How many connections are open.
        passed: The messages that the client has sent, over all connections.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.name = name
        self.server = server
        self.up = True
        self.opened = self.open = 0
        self.passed: list[Any] = []
        self._flow = trio.Event()
        self._flow.set()
        self._to_client: trio.MemorySendChannel[SessionMessage] | None = None

    def stall(self) -> None:
        """Let nothing pass, in either direction."""
        self._flow = trio.Event()

    def resume(self) -> None:
        self._flow.set()

    def down(self) -> None:
        """Refuse new connections, and break the open one."""
        self.up = False
        self.tear()

    def tear(self) -> None:
        """Break the open connection; new ones are let in."""
        if self._to_client is not None:
            with contextlib.suppress(trio.WouldBlock, trio.BrokenResourceError, trio.ClosedResourceError):
                self._to_client.send_nowait(SessionMessage(Failure(Fault(f"{self.name} is torn"))))
            self._to_client.close()

    def end(self) -> None:
        """End the open connection in an orderly way."""
        if self._to_client is not None:
            self._to_client.close()

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Link]:
        await trio.lowlevel.checkpoint()
        if not self.up:
            raise Fault(f"{self.name} is down")
        self.opened += 1
        async with memory_link_pair() as (near, far), background_nursery() as nursery:
            to_client, read = trio.open_memory_channel[SessionMessage](64)
            write, from_client = trio.open_memory_channel[SessionMessage](64)
            self._to_client = to_client

            async def serve(task_status: trio.TaskStatus[None]) -> None:  # noqa: ASYNC128
                await self.server.serve(far, task_status=task_status)

            await start(nursery, serve)
            nursery.start_soon(self._pass, near.read, to_client, False)
            nursery.start_soon(self._pass, from_client, near.write, True)
            self.open += 1
            try:
                with to_client, read, write, from_client:
                    yield Link(read, write)
            finally:
                self.open -= 1

    async def _pass(self, source: Any, target: Any, noted: bool) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for item in source:
                await self._flow.wait()
                if noted:
                    self.passed.append(item.message)
                await target.send(item)
        await target.aclose()
