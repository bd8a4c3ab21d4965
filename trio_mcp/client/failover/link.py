"""A client's link over several ways to its server, which looks to the session like one link that does not fail."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_on_trio
from trio_mcp._nursery import background_nursery
from trio_mcp.client.failover.connecting import Way
from trio_mcp.client.failover.failures import brief_cause
from trio_mcp.client.failover.parameters import FailoverParameters, TransportStatus
from trio_mcp.client.failover.router import ReadEnd, Router, WriteEnd
from trio_mcp.client.failover.ways import Phase
from trio_mcp.convert import another
from trio_mcp.errors import AuthorizationError, TransportError
from trio_mcp.link import Link
from trio_mcp.stopwatch import current_stopwatch

__all__ = ["FailoverConnector", "FailoverLink", "NamedWay"]

NamedWay: TypeAlias = tuple[str, Callable[[], AbstractAsyncContextManager[Link]]]
"""The name of one way to the server, and the function that opens a link that uses it."""


class FailoverLink:
    """The link of one client over all ways to its server.

    Args:
        ways: The ways to the server, the best first.
        settings: The parameters, including all time limits.
    """

    def __init__(self, ways: Sequence[NamedWay], settings: FailoverParameters) -> None:
        self._settings = settings
        self._router = Router(settings.on_switch, alone=len(ways) == 1)
        self._ways: list[Way] = []
        for place, (name, connect) in enumerate(ways):
            self._ways.append(Way(place, name, connect, self._router, settings, self._ways))
        self._running = 0
        self._ended = trio.Event()

    @property
    def status(self) -> TransportStatus:
        """A snapshot of all ways to the server, with counts of switches and of repeated calls."""
        traffic = self._router.traffic
        return TransportStatus(
            tuple(way.status for way in self._ways), self._router.ways.switches, traffic.repeated, traffic.unknown
        )

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Link]:
        """Keep a link to the server open while the block runs."""
        check_on_trio()
        # Entering an async context manager has to be a checkpoint (docs/design.md, rule 11), but opening a nursery is
        # not one.
        await trio.lowlevel.checkpoint()
        async with background_nursery(self._end) as nursery:
            # The tasks are counted before they start. If each task counted itself when it began, and the block ended at
            # once, the first task to end might seem to be the last.
            self._running = len(self._ways)
            for way in self._ways:
                nursery.start_soon(self._run, way, name=f"way to the server: {way.name}")
            nursery.start_soon(self._lose_patience)
            yield Link(ReadEnd(self._router), WriteEnd(self._router, lambda: self.status))

    async def _run(self, way: Way) -> None:
        try:
            await way.run()
        finally:
            self._running -= 1
            if not self._running:
                self._ended.set()

    async def _end(self) -> None:
        """Close the links gracefully, which may take a moment."""
        # The phase is set first: a link that ends with the block must not be logged as a failure, and its calls must
        # not be repeated.
        self._router.ways.advance(Phase.FINISHED)
        for way in self._ways:
            way.stop()
        # When this method returns, the nursery cancels its tasks and with them their links, which would then lose their
        # last messages.
        await self._ended.wait()

    async def _lose_patience(self) -> None:
        """Give up if no way to the server works within `patience`; once one has worked, that limit no longer applies.

        From then on, calls wait for a way until their own time limits.
        """
        router = self._router
        with current_stopwatch().limit(self._settings.patience):
            await trio.sleep_forever()
        while router.ways.phase is Phase.CONNECTING:
            # Both conditions are needed: when a link is lost, `carrier` is cleared at once, but the cause, which the
            # message needs, is recorded only after the way's task has left the link.
            if router.ways.carrier is None and not any(way.state == "carrying" for way in self._ways):
                tried = "; ".join(f"{way.name}: {_said(way)}" for way in self._ways)
                text = f"no way to the server has worked within patience={self._settings.patience:g} seconds: {tried}"
                # If every way failed because a login is missing, one of these errors is raised instead, because the
                # user can act on it.
                logins = [way.cause for way in self._ways if isinstance(way.cause, AuthorizationError)]
                whole = len(logins) == len(self._ways)
                router.give_up(another(logins[0]) if whole else TransportError(text))
                return
            await router.changed.wait()


def _said(way: Way) -> str:
    return "no response yet" if way.cause is None else brief_cause(way.cause)


@attrs.frozen
class FailoverConnector:
    """Connects to a server over the best of several ways."""

    ways: Sequence[NamedWay]
    settings: FailoverParameters

    def __call__(self) -> AbstractAsyncContextManager[Link]:
        return FailoverLink(self.ways, self.settings).opened()
