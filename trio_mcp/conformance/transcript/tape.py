"""A tape: records events as they happen, and lets tasks wait for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import trio

from trio_mcp.conformance.transcript.events import Event, Kind, Sender

__all__ = ["Tape"]


class Tape:
    """Records events.

    Attributes:
        events: The events so far, in order.
        traffic: Bytes that were sent and received, as far as wires count them.
        most: Events that it may hold, as far as wires ask.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.events: list[Event] = []
        self.traffic = 0
        self.most = most
        self._began = trio.current_time()
        self._news = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether it holds as many events as it may."""
        return len(self.events) >= self.most

    def note(
        self,
        kind: Kind,
        sender: Sender,
        *,
        connection: int = 0,
        exchange: int | None = None,
        message: Any = None,
        text: bytes | None = None,
        **facts: Any,
    ) -> Event:
        """Record an event, and wake those that wait for one."""
        now = trio.current_time() - self._began
        event = Event(kind, sender, connection, exchange, now, message, text, facts)
        self.events.append(event)
        # The tasks are woken, and the conditions run in them, so what a condition raises is raised there.
        self._news.unpark_all()
        return event

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition holds, which is checked after each event; return whether it did within the timeout.

        When cancelled, nothing is lost.
        """
        with trio.move_on_after(timeout):
            # The condition is checked first: it may hold already, and no further event may come.
            while not condition():
                await self._news.park()
            await trio.lowlevel.checkpoint()
        # It is checked once more, because the timeout may strike while the checkpoint waits and the condition holds.
        return condition()
