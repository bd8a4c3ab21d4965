"""A connection that is given its messages one HTTP request at a time, instead of reading them from a link."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from trio_mcp.errors import SessionClosed
from trio_mcp.server.connection import Connection
from trio_mcp.session.sink import SessionSink

if TYPE_CHECKING:
    from trio_mcp.server.run import Run

__all__ = ["HostedConnection"]

logger = logging.getLogger("trio_mcp")


class HostedConnection(Connection):
    """A connection whose only task, while it is idle, is the host of its nursery.

    Args:
        serving: The run of the server.
        way: Where what it sends goes.
    """

    def __init__(self, serving: Run, way: SessionSink) -> None:
        super().__init__(serving, (None, way))
        self._run_of_server = serving

    async def host(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run what belongs to the session until `end`. A fault of its own costs nobody else anything."""
        connections = self._run_of_server.connections
        connections.add(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                try:
                    await trio.sleep_forever()
                finally:  # before the nursery is closed, which takes a turn of the event loop
                    self.end("the server has ended")
        except Exception:
            logger.exception("an HTTP session failed")
        finally:
            self._notices.clear()
            self._finished.set()
            self.audience.forget_everything()
            connections.discard(self)
            await self._last_words()

    async def _last_words(self) -> None:
        """What is still to be done when nothing runs any more."""

    def end(self, why: str) -> None:
        """End the session: handlers are cancelled, calls raise `SessionClosed`. Again is a no-op."""
        self._closing = True
        self._settle_everything(SessionClosed(why))
        self._sink.give_up()
        if self._nursery is not None:
            nursery, self._nursery = self._nursery, None
            nursery.cancel_scope.cancel(why)

    async def aclose(self) -> None:
        """End the session, from any task, and wait until it has ended."""
        self.end("the session was closed")
        await self._finished.wait()

    async def idle(self) -> None:
        """Wait until no handler runs."""
        await self._handlers.wait_idle()

    @property
    def busy(self) -> bool:
        """Whether a request of the client's is under way."""
        return self._peer.incoming_count > 0 or self._peer.running_count > 0
