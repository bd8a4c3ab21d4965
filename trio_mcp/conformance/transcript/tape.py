"""The tape, which records events as they happen and lets tasks wait for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import trio

from trio_mcp.conformance.transcript.events import Event, Kind, Sender

__all__ = ["Tape"]


class Tape:
    """Records events as they happen, and lets tasks wait for them.

    Attributes:
        events: The events so far, in order.
        traffic: Bytes that were sent and received, if the wires count them.
        most: The number of events at which the tape is full; the tape itself does not enforce it.
    """

    def __init__(self, most: float = math.inf) -> None:
        self.events: list[Event] = []
        self.traffic = 0
        self.most = most
        self._began = trio.current_time()
        self._news = trio.lowlevel.ParkingLot()

    @property
    def is_full(self) -> bool:
        """Whether the tape has reached its limit of events."""
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
        """Record an event, and wake the tasks that wait for one."""
        now = trio.current_time() - self._began
        event = Event(kind, sender, connection, exchange, now, message, text, facts)
        self.events.append(event)
        # The waiting tasks check their conditions themselves, so an exception from a condition is raised in the task
        # that waits for it.
        self._news.unpark_all()
        return event

    async def until(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until a condition is true, checked after each event; return False if the timeout passes first.

        A cancelled call loses no event.
        """
        with trio.move_on_after(timeout):
            # The condition is checked first: it may be true already, and no further event may come.
            while not condition():
                await self._news.park()
            await trio.lowlevel.checkpoint()
        # The condition is checked once more: the timeout may strike at the checkpoint, although the condition is true.
        return condition()
